package limits

import (
	"cmp"
	"sync"
)

// Quota bounds what owners have at the same time. It refuses instead of letting wait. The zero value is ready, and its methods are safe for
// concurrent use.
type Quota struct {
	mu   sync.Mutex
	used map[string]int
}

// Bound is the largest number of things that an owner may have.
type Bound struct {
	Owner string
	Max   int
	// Weight is as how many a thing counts, such as its bytes; 0 means 1.
	Weight int
}

func (b Bound) weight() int { return cmp.Or(b.Weight, 1) }

// Take counts one thing for the owners of all bounds, unless one of them would have more than its maximum: exceeded is then the index of the first such bound, and
// release is nil. Otherwise the caller must call release once.
func (q *Quota) Take(bounds ...Bound) (release func(), exceeded int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, b := range bounds {
		if q.used[b.Owner]+b.weight() > b.Max {
			return nil, i
		}
	}
	if q.used == nil {
		q.used = make(map[string]int)
	}
	for _, b := range bounds {
		q.used[b.Owner] += b.weight()
	}
	return sync.OnceFunc(func() { q.release(bounds) }), -1
}

func (q *Quota) release(bounds []Bound) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range bounds {
		if q.used[b.Owner] -= b.weight(); q.used[b.Owner] == 0 {
			delete(q.used, b.Owner)
		}
	}
}

// Used returns how many things an owner has.
func (q *Quota) Used(owner string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used[owner]
}
