package limits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// users counts what each tenant does in a pool.
type users struct {
	mu   sync.Mutex
	held map[string]int
	most map[string]int
	all  []string // in the order of their turns
}

func (u *users) begin(tenant string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held == nil {
		u.held, u.most = map[string]int{}, map[string]int{}
	}
	u.all = append(u.all, tenant)
	u.held[tenant]++
	u.most[tenant] = max(u.most[tenant], u.held[tenant])
}

func (u *users) end(tenant string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held[tenant]--
}

// flood has a tenant use as many slots as it gets until the context ends, each for some time.
func flood(ctx context.Context, wait *sync.WaitGroup, p *Pool, u *users, tenant string, requests int, each time.Duration) {
	for range requests {
		wait.Go(func() {
			for ctx.Err() == nil {
				release, err := p.Acquire(ctx, tenant)
				if err != nil {
					return
				}
				u.begin(tenant)
				time.Sleep(each) // synthetic time
				u.end(tenant)
				release()
			}
		})
	}
}

// TestShares: a tenant that is alone has all slots. While others wait, none gets a slot beyond a quarter, and a newcomer gets one at once.
func TestShares(t *testing.T) {
	for size, share := range map[int]int{1: 1, 2: 1, 3: 1, 4: 1, 8: 2, 16: 4, 19: 4} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewPool(size)
				ctx, stop := context.WithCancel(t.Context())
				var wait sync.WaitGroup
				defer wait.Wait()
				defer stop()
				alone := &users{}
				flood(ctx, &wait, p, alone, "alone", 3*size, time.Second)
				synctest.Wait()
				if alone.held["alone"] != size {
					t.Errorf("a tenant that is alone has %d slots of %d", alone.held["alone"], size)
				}
				many := &users{}
				for _, tenant := range []string{"a", "b"} {
					flood(ctx, &wait, p, many, tenant, 3*size, time.Second)
				}
				time.Sleep(2 * time.Second)
				alone.most = map[string]int{}
				time.Sleep(10 * time.Second)
				if alone.most["alone"] > share || many.most["a"] > share || many.most["b"] > share {
					t.Errorf("the tenants have up to %d, %d and %d slots of %d, want at most %d", alone.most["alone"], many.most["a"], many.most["b"], size, share)
				}
				began := time.Now()
				release, err := p.Acquire(t.Context(), "newcomer")
				if err != nil {
					t.Fatal(err)
				}
				release()
				if waited := time.Since(began); waited > time.Second || size > 3*share && waited > 0 {
					t.Errorf("the newcomer to a pool of %d waits %s", size, waited)
				}
			})
		})
	}
}

// TestTurns: tenants take turns in a small pool, however many requests each of them has, and each one's requests are served in their order.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, u := NewPool(1), &users{}
		release, err := p.Acquire(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for _, tenant := range []string{"a", "a", "a", "b", "c", "b"} {
			wait.Go(func() {
				release, err := p.Acquire(t.Context(), tenant)
				if err != nil {
					t.Error(err)
					return
				}
				u.begin(tenant)
				time.Sleep(time.Millisecond)
				release()
				release() // counts only once
			})
			synctest.Wait()
		}
		release()
		wait.Wait()
		if got := fmt.Sprint(u.all[3:]); len(u.all) != 6 || got != "[a b a]" && got != "[b a a]" {
			t.Errorf("turns %v, want that no tenant has a second one before each has one", u.all)
		}
		if first := slices.Sorted(slices.Values(u.all[:3])); !slices.Equal(first, []string{"a", "b", "c"}) {
			t.Errorf("turns %v, want that no tenant has a second one before each has one", u.all)
		}
		if p.used != 0 || len(p.tenants) != 0 {
			t.Errorf("%d slots are used, and %v are remembered", p.used, slices.Collect(maps.Keys(p.tenants)))
		}
	})
}

// TestNewcomersGoFirst: a hundred tenants that each come again and again delay one that was not served lately by one turn.
func TestNewcomersGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(2)
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		defer wait.Wait()
		defer stop()
		for i := range 100 {
			flood(ctx, &wait, p, &users{}, fmt.Sprint("sender-", i), 4, 20*time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		for range 3 {
			began := time.Now()
			release, err := p.Acquire(t.Context(), "newcomer")
			if err != nil {
				t.Fatal(err)
			}
			release()
			if waited := time.Since(began); waited > 20*time.Millisecond {
				t.Errorf("it waits %s, want one turn", waited)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestReclaimedWork: work beyond a tenant's share ends when another tenant waits, and is done again later. Work within its share goes on.
func TestReclaimedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(4)
		var wait sync.WaitGroup
		var mu sync.Mutex
		begun, done := 0, 0
		for range 4 {
			wait.Go(func() {
				err := p.Do(t.Context(), "long", func(ctx context.Context) error {
					mu.Lock()
					begun++
					mu.Unlock()
					select {
					case <-time.After(time.Minute):
					case <-ctx.Done():
						return ctx.Err()
					}
					mu.Lock()
					done++
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for i := range 3 {
			began := time.Now()
			release, err := p.Acquire(t.Context(), fmt.Sprint("other-", i))
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > 2*reclaimAfter {
				t.Errorf("the tenant waits %s for its share", waited)
			}
			wait.Go(func() { time.Sleep(10 * time.Second); release() })
		}
		wait.Wait()
		if begun != 7 || done != 4 {
			t.Errorf("the work began %d times and was done %d times, want 7 and 4", begun, done)
		}
	})
}

// TestWorkEnds: the end of a request ends its wait and its work, and leaves nothing behind. An error of the work is returned.
func TestWorkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, broken := NewPool(1), errors.New("broken")
		if err := p.Do(t.Context(), "a", func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("error %v, want that of the work", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		var wait sync.WaitGroup
		for range 2 { // one works, one waits
			wait.Go(func() {
				err := p.Do(ctx, "a", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want the context's", err)
				}
			})
		}
		wait.Wait()
		if p.used != 0 || len(p.tenants) != 0 {
			t.Errorf("%d slots are used by %d tenants", p.used, len(p.tenants))
		}
	})
}

// TestStrictPool: a tenant that is alone has no more than its share, so that others never wait for its work.
func TestStrictPool(t *testing.T) {
	for size, share := range map[int]int{1: 1, 3: 1, 8: 2} {
		synctest.Test(t, func(t *testing.T) {
			p, u := NewStrictPool(size), &users{}
			ctx, stop := context.WithCancel(t.Context())
			var wait sync.WaitGroup
			defer wait.Wait()
			defer stop()
			flood(ctx, &wait, p, u, "alone", 3*size, time.Minute)
			synctest.Wait()
			if u.held["alone"] != share {
				t.Errorf("a tenant that is alone has %d slots of %d, want %d", u.held["alone"], size, share)
			}
			if size == 1 {
				return
			}
			began := time.Now()
			release, err := p.Acquire(t.Context(), "other")
			if err != nil {
				t.Fatal(err)
			}
			release()
			if waited := time.Since(began); waited > 0 {
				t.Errorf("another tenant waits %s", waited)
			}
		})
	}
}
