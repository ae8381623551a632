package limits

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// work has a tenant work again and again, each time for a while, until the context ends. It adds up the time.
func work(ctx context.Context, wait *sync.WaitGroup, s *TimeShare, tenant string, each time.Duration, total *time.Duration) {
	wait.Go(func() {
		for ctx.Err() == nil {
			release, err := s.Acquire(ctx, tenant)
			if err != nil {
				return
			}
			time.Sleep(each) // synthetic time
			*total += each
			release()
		}
	})
}

// TestTimeShare: while others wait, a tenant works for at most a quarter of the time, however long its turns are and however many it wants. A tenant
// that is alone has all of the time.
func TestTimeShare(t *testing.T) {
	for name, test := range map[string]struct {
		others   []string
		requests int
		each     time.Duration
		min, max time.Duration // of a minute
	}{
		"alone":                         {nil, 3, time.Second, 58 * time.Second, 61 * time.Second},
		"with one that is no tenant":    {[]string{""}, 1, time.Second, 13 * time.Second, 16 * time.Second},
		"with many requests":            {[]string{""}, 20, time.Second, 13 * time.Second, 16 * time.Second},
		"with long turns":               {[]string{""}, 1, 5 * time.Second, 10 * time.Second, 16 * time.Second},
		"with another tenant":           {[]string{"b"}, 1, time.Second, 20 * time.Second, 59 * time.Second},
		"with four other tenants":       {[]string{"b", "c", "d", "e"}, 1, time.Second, 10 * time.Second, 15 * time.Second},
		"with other tenants and no one": {[]string{"b", "c", ""}, 1, time.Second, 10 * time.Second, 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s TimeShare
				var wait sync.WaitGroup
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				totals := make([]time.Duration, test.requests+len(test.others))
				for i := range test.requests {
					work(ctx, &wait, &s, "a", test.each, &totals[i])
				}
				for i, other := range test.others {
					each := time.Second
					if other == "" {
						each = 20 * time.Millisecond
					}
					work(ctx, &wait, &s, other, each, &totals[test.requests+i])
				}
				wait.Wait()
				var worked time.Duration
				for i := range test.requests {
					worked += totals[i]
				}
				if worked < test.min || worked > test.max {
					t.Errorf("the tenant works %s of a minute, want %s to %s; the others %s", worked, test.min, test.max, totals[test.requests:])
				}
				if len(s.waiting) != 0 || s.working {
					t.Errorf("%d turns wait, one works: %v", len(s.waiting), s.working)
				}
			})
		})
	}
}

// TestSlotsOfThoseWhoYield: tenants that have to let others go first hold no slot meanwhile, so a tenant that works little gets one soon.
func TestSlotsOfThoseWhoYield(t *testing.T) {
	for name, acquire := range map[string]func(s *TimeShare, p *Pool, ctx context.Context, tenant string) (func(), error){
		"by tenant": func(s *TimeShare, p *Pool, ctx context.Context, tenant string) (func(), error) {
			return s.AcquireSlot(ctx, p, tenant, tenant)
		},
		"by user": func(s *TimeShare, p *Pool, ctx context.Context, tenant string) (func(), error) {
			return s.AcquireSlot(ctx, p, "user of "+tenant, tenant)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s TimeShare
				var wait sync.WaitGroup
				slots := NewPool(2)
				ctx, stop := context.WithCancel(t.Context())
				defer wait.Wait()
				defer stop()
				var small time.Duration
				work(ctx, &wait, &s, "", 20*time.Millisecond, &small)
				save := func(tenant string, each time.Duration) {
					leave, err := acquire(&s, slots, ctx, tenant)
					if err != nil {
						return
					}
					defer leave()
					if release, err := s.Acquire(ctx, tenant); err == nil {
						time.Sleep(each) // synthetic time
						release()
					}
				}
				for _, tenant := range []string{"a", "a", "a", "b", "b", "b"} {
					wait.Go(func() {
						for ctx.Err() == nil {
							save(tenant, 5*time.Second)
						}
					})
				}
				for range 20 {
					time.Sleep(7 * time.Second)
					began := time.Now()
					save("c", 10*time.Millisecond)
					// One turn of each of the others, and the rest of the one before.
					if waited := time.Since(began); waited > 11*time.Second {
						t.Errorf("a small report waits %s, want 11s or less", waited)
					}
				}
			})
		})
	}
}

// TestTurnsOfOthers: others wait for one turn of a tenant that wants many, and who stops waiting is given none.
func TestTurnsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s TimeShare
		var wait sync.WaitGroup
		defer wait.Wait()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var total time.Duration
		for range 10 {
			work(ctx, &wait, &s, "a", time.Second, &total)
		}
		synctest.Wait()
		short, end := context.WithTimeout(t.Context(), time.Millisecond)
		defer end()
		if _, err := s.Acquire(short, ""); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want ErrBusy", err)
		}
		for i := range 3 {
			began := time.Now()
			release, err := s.Acquire(t.Context(), fmt.Sprint("other-", i))
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("another tenant waits %s, want one turn", waited)
			}
			release()
		}
		time.Sleep(time.Minute)
		stop()
		wait.Wait()
		release, err := s.Acquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		release()
		time.Sleep(time.Minute)
		if release, err = s.Acquire(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		release()
		if len(s.yields) != 1 {
			t.Errorf("%v are remembered, want the last", s.yields)
		}
	})
}
