// Package queue orders waiting work fairly among tenants. It is the one rule of all engines for images that wait to be cataloged.
//
// The caller owns the slots: it counts what runs, because some engines must know that after a restart and others need not.
//
// The match queue (pkg/store) does not use this package. It holds every image of all namespaces after each new build of the vulnerability
// data, has to outlast restarts, and is therefore ordered by SQL, without ever being in memory.
package queue

import "slices"

// Flow identifies whose work an item is: a tenant, and one of the flows of that tenant.
type Flow struct{ Tenant, Name string }

// Item is an item in a queue. Its Flow never changes.
type Item interface {
	comparable
	Flow() Flow
}

// Slots are the slots for items of a queue.
type Slots struct {
	// Free is the number of free slots.
	Free int
	// Running counts occupied slots by tenant. Limit is the maximum for one tenant.
	Running map[string]int
	Limit   int
}

// Fair is a fair queue. It serves tenants round-robin, the flows of a tenant round-robin, and the items of a flow first in, first out. A
// tenant with hundreds of items or flows therefore delays other tenants by one turn at most. The zero value is an empty queue. It is not
// safe for concurrent use.
type Fair[T Item] struct {
	// flows holds the flows with items; the first is the next. Each has at least one item.
	flows []*flowItems[T]
}

type flowItems[T Item] struct {
	Flow
	items []T
}

// Push adds an item at the end of its flow. A flow without items joins behind all others.
func (q *Fair[T]) Push(item T) {
	flow := item.Flow()
	at := slices.IndexFunc(q.flows, func(f *flowItems[T]) bool { return f.Flow == flow })
	if at < 0 {
		at = len(q.flows)
		q.flows = append(q.flows, &flowItems[T]{Flow: flow})
	}
	q.flows[at].items = append(q.flows[at].items, item)
}

// Find returns the first item of a flow for which is holds.
func (q *Fair[T]) Find(flow Flow, is func(T) bool) (item T, found bool) {
	for _, f := range q.flows {
		if f.Flow != flow {
			continue
		}
		if at := slices.IndexFunc(f.items, is); at >= 0 {
			return f.items[at], true
		}
	}
	return item, false
}

// Next returns the items that are to get the free slots, in order: one item of each flow, then a second one of each, and so on, within the
// limit of each tenant. It skips items for which ready is false. The items stay in the queue: see Take.
func (q *Fair[T]) Next(slots Slots, ready func(T) bool) (next []T) {
	taken, at := map[string]int{}, make([]int, len(q.flows))
	for more := true; more; {
		more = false
		for i, f := range q.flows {
			if len(next) >= slots.Free {
				return next
			}
			if slots.Running[f.Tenant]+taken[f.Tenant] >= slots.Limit {
				continue
			}
			for at[i] < len(f.items) && !ready(f.items[at[i]]) {
				at[i]++
			}
			if at[i] == len(f.items) {
				continue
			}
			next, more = append(next, f.items[at[i]]), true
			at[i]++
			taken[f.Tenant]++
		}
	}
	return next
}

// Take removes an item that got a slot. Its tenant is then served after all others, and its flow after the tenant's other flows.
func (q *Fair[T]) Take(item T) {
	flow := item.Flow()
	rank := func(f *flowItems[T]) int {
		switch {
		case f.Tenant != flow.Tenant:
			return 0
		case f.Flow != flow:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(q.flows, func(a, b *flowItems[T]) int { return rank(a) - rank(b) })
	q.Remove(func(other T) bool { return other == item })
}

// Remove removes all items for which is holds. The others keep their position.
func (q *Fair[T]) Remove(is func(T) bool) {
	for _, f := range q.flows {
		f.items = slices.DeleteFunc(f.items, is)
	}
	q.flows = slices.DeleteFunc(q.flows, func(f *flowItems[T]) bool { return len(f.items) == 0 })
}

// Len returns the number of items.
func (q *Fair[T]) Len() (n int) {
	for _, f := range q.flows {
		n += len(f.items)
	}
	return n
}
