package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/lru"
)

const (
	// reclaimAfter is how long a tenant waits before it gets back a slot that another tenant has beyond its share.
	reclaimAfter = 100 * time.Millisecond
	// maxRemembered is the number of tenants whose last turn is remembered.
	maxRemembered = 4096
)

// ErrBusy means that no slot became free before the context ended. Such an error is also the context's.
var ErrBusy = errors.New("too many others wait")

// errReclaimed is the cause of the end of a context whose slot another tenant needs.
var errReclaimed = errors.New("limits: another tenant waits for the slot")

// Pool shares slots between tenants. A tenant that is alone may have all of them. While others wait, a tenant gets no further slot beyond its share:
// a quarter of the pool, or one slot of a pool with fewer than four. Of the tenants that wait, the one with the fewest slots is next, then the one
// whose last turn was the longest ago, then the one that came first. The requests of a tenant are served in their order. All methods are safe for concurrent use.
type Pool struct {
	size, share int
	strict      bool

	mu      sync.Mutex
	used    int
	tenants map[string]*poolTenant // those with a slot or a waiting request
	// events counts the requests and the slots that were given. turns has the last slot of a tenant.
	events uint64
	turns  *lru.Cache
}

// poolTenant has the slots of a tenant and the requests that wait for one, the oldest first.
type poolTenant struct {
	name          string
	held, waiting []*poolSlot
}

// poolSlot is a slot, or a request that waits for one.
type poolSlot struct {
	tenant  *poolTenant
	arrival uint64
	granted chan struct{} // closed with the grant
	// reclaim ends the work in the slot, which is then repeated; nil if it cannot be interrupted, or was already.
	reclaim func()
	timer   *time.Timer
}

// NewPool returns a pool with a number of slots.
func NewPool(slots int) *Pool {
	return &Pool{size: slots, share: max(1, slots/4), tenants: map[string]*poolTenant{}, turns: lru.New(maxRemembered)}
}

// NewStrictPool returns a pool in which no tenant has more than its share, even if it is alone. It is for work that takes long and cannot be
// interrupted.
func NewStrictPool(slots int) *Pool {
	p := NewPool(slots)
	p.strict = true
	return p
}

// Acquire waits for a slot until the context ends, and returns ErrBusy then. The caller must call release, once or several times.
func (p *Pool) Acquire(ctx context.Context, tenant string) (release func(), err error) {
	return p.acquire(ctx, tenant, nil)
}

// Do runs work in a slot. If another tenant needs a slot that this tenant has beyond its share, the context of the work ends, and the work is done
// again in a later slot. So the work must change nothing before it succeeds. The error is that of the work, or ErrBusy if none was done.
func (p *Pool) Do(ctx context.Context, tenant string, work func(context.Context) error) error {
	for {
		reclaimed, err := p.try(ctx, tenant, work)
		if err == nil || !reclaimed || ctx.Err() != nil {
			return err
		}
	}
}

// Used returns the number of slots that are taken.
func (p *Pool) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// IsFull reports whether all slots are taken.
func (p *Pool) IsFull() bool { return p.Used() == p.size }

func (p *Pool) try(ctx context.Context, tenant string, work func(context.Context) error) (reclaimed bool, err error) {
	inSlot, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	release, err := p.acquire(ctx, tenant, func() { cancel(errReclaimed) })
	if err != nil {
		return false, err
	}
	defer release()
	err = work(inSlot)
	return errors.Is(context.Cause(inSlot), errReclaimed), err
}

func (p *Pool) acquire(ctx context.Context, name string, reclaim func()) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	slot := &poolSlot{granted: make(chan struct{}), reclaim: reclaim}
	p.enqueue(name, slot)
	select {
	case <-slot.granted:
	case <-ctx.Done():
		p.remove(slot)
		return nil, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
	return func() { p.remove(slot) }, nil
}

func (p *Pool) enqueue(name string, slot *poolSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tenant := p.tenants[name]
	if tenant == nil {
		tenant = &poolTenant{name: name}
		p.tenants[name] = tenant
	}
	p.events++
	slot.tenant, slot.arrival = tenant, p.events
	tenant.waiting = append(tenant.waiting, slot)
	p.grant()
	if slot.isWaiting() {
		slot.timer = time.AfterFunc(reclaimAfter, func() { p.reclaimFor(slot) })
	}
}

func (s *poolSlot) isWaiting() bool { return slices.Contains(s.tenant.waiting, s) }

// remove ends a slot, or the wait for one. Further calls do nothing.
func (p *Pool) remove(slot *poolSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tenant := slot.tenant
	if slot.timer != nil {
		slot.timer.Stop()
	}
	if i := slices.Index(tenant.held, slot); i >= 0 {
		tenant.held = slices.Delete(tenant.held, i, i+1)
		p.used--
	} else if i := slices.Index(tenant.waiting, slot); i >= 0 {
		tenant.waiting = slices.Delete(tenant.waiting, i, i+1)
	} else {
		return
	}
	if len(tenant.held)+len(tenant.waiting) == 0 {
		delete(p.tenants, tenant.name)
	}
	p.grant()
}

// grant gives the free slots to those who wait. The caller holds the lock.
func (p *Pool) grant() {
	for p.used < p.size {
		next := p.next()
		if next == nil {
			return
		}
		slot := next.waiting[0]
		next.waiting, next.held = next.waiting[1:], append(next.held, slot)
		p.used++
		p.events++
		p.turns.Add(next.name, p.events)
		close(slot.granted)
	}
}

// next returns the tenant that gets the next slot; nil if none may have one. The caller holds the lock.
func (p *Pool) next() (next *poolTenant) {
	waiting := 0
	for _, tenant := range p.tenants {
		if len(tenant.waiting) == 0 {
			continue
		}
		if waiting++; next == nil || p.compare(tenant, next) < 0 {
			next = tenant
		}
	}
	if next != nil && (waiting > 1 || p.strict) && len(next.held) >= p.share {
		return nil
	}
	return next
}

// compare orders tenants by their slots, then by their last turn, then by their arrival. The caller holds the lock.
func (p *Pool) compare(a, b *poolTenant) int {
	return cmp.Or(cmp.Compare(len(a.held), len(b.held)), cmp.Compare(p.lastTurn(a), p.lastTurn(b)), cmp.Compare(a.waiting[0].arrival, b.waiting[0].arrival))
}

func (p *Pool) lastTurn(t *poolTenant) uint64 {
	last, _ := p.turns.Get(t.name)
	turn, _ := last.(uint64)
	return turn
}

// reclaimFor ends work of the tenant with the most slots, if it has more than its share while a tenant with less waits, and again until that gets
// its slot.
func (p *Pool) reclaimFor(slot *poolSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slot.isWaiting() {
		return
	}
	slot.timer.Reset(reclaimAfter)
	if len(slot.tenant.held) >= p.share {
		return
	}
	var most *poolTenant
	for _, tenant := range p.tenants {
		if len(tenant.held) > p.share && (most == nil || len(tenant.held) > len(most.held)) {
			most = tenant
		}
	}
	if most == nil {
		return
	}
	for _, newest := range slices.Backward(most.held) {
		if newest.reclaim != nil {
			newest.reclaim()
			newest.reclaim = nil
			return
		}
	}
}
