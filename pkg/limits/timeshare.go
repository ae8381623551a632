package limits

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// comesBack is how long somebody who has worked for no tenant counts as waiting: one piece of work often follows another.
const comesBack = 100 * time.Millisecond

// TimeShare lets one at a time work. A tenant that has worked lets those who wait go first until three times that time has passed: so it works for at
// most a quarter of the time while others wait, whatever one turn takes. Tenants among themselves take turns. All others, and a tenant that is alone,
// go in the order of their arrival. The zero value is ready, and its methods are safe for concurrent use.
type TimeShare struct {
	mu      sync.Mutex
	working bool
	waiting []*turn // the oldest first
	// yields has until when a tenant lets others go first. Tenants whose time has passed are dropped with the next turn of any tenant.
	yields map[string]time.Time
	// others is until when somebody who works for no tenant counts as waiting. retry grants the turn then.
	others time.Time
	retry  *time.Timer
}

type turn struct {
	tenant  string
	granted chan struct{} // closed with the grant
}

// Acquire waits for a turn until the context ends, and returns ErrBusy then. An empty tenant never lets others go first. The caller must call release
// once.
func (s *TimeShare) Acquire(ctx context.Context, tenant string) (release func(), err error) {
	mine := &turn{tenant, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, mine)
	s.grant()
	s.mu.Unlock()
	select {
	case <-mine.granted:
	case <-ctx.Done():
		if s.withdraw(mine) {
			return nil, fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
	}
	began := time.Now()
	return func() { s.release(tenant, began) }, nil
}

// AcquireSlot waits for a slot of a pool for work that ends with a turn of the writer, a tenant. A writer that has to let others go first holds no slot
// meanwhile, unless it has several: the slots would be lost for others, whose turns it waits for. slotTenant is who takes the slot. Otherwise it is as
// Pool.Acquire.
func (s *TimeShare) AcquireSlot(ctx context.Context, from *Pool, slotTenant, writer string) (release func(), err error) {
	for {
		if err := s.await(ctx, writer); err != nil {
			return nil, err
		}
		if release, err = from.Acquire(ctx, slotTenant); err != nil || !s.mustYield(writer) {
			return release, err
		}
		release()
	}
}

// await waits until a tenant that must let others go first would get a turn. The tenant then need not let others go first until it has worked again.
func (s *TimeShare) await(ctx context.Context, tenant string) error {
	if !s.mustYield(tenant) {
		return nil
	}
	if _, err := s.Acquire(ctx, tenant); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.yields, tenant)
	s.working = false
	s.grant()
	return nil
}

func (s *TimeShare) mustYield(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.yields[tenant].After(time.Now())
}

// withdraw ends the wait for a turn. It returns false if the turn was granted meanwhile.
func (s *TimeShare) withdraw(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, t)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i >= 0
}

func (s *TimeShare) release(tenant string, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if tenant == "" {
		s.others = now.Add(comesBack)
	} else {
		for other, until := range s.yields {
			if !until.After(now) {
				delete(s.yields, other)
			}
		}
		if s.yields == nil {
			s.yields = map[string]time.Time{}
		}
		s.yields[tenant] = now.Add(3 * now.Sub(began))
	}
	s.working = false
	s.grant()
}

// grant gives the turn to the first who need not let others go first or, if all of them must, to the one whose time passes first. The caller holds
// the lock.
func (s *TimeShare) grant() {
	if s.working || len(s.waiting) == 0 {
		return
	}
	now, next := time.Now(), 0
	for i, t := range s.waiting {
		until := s.yields[t.tenant]
		if !until.After(now) {
			next = i
			break
		}
		if until.Before(s.yields[s.waiting[next].tenant]) {
			next = i
		}
	}
	if until := earlier(s.yields[s.waiting[next].tenant], s.others); until.After(now) {
		if s.retry != nil {
			s.retry.Stop()
		}
		s.retry = time.AfterFunc(until.Sub(now), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.grant()
		})
		return
	}
	granted := s.waiting[next]
	s.waiting, s.working = slices.Delete(s.waiting, next, next+1), true
	close(granted.granted)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
