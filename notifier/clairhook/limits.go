package clairhook

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Limits are by namespace: Scanners in one are free to make.
const (
	// Requests at a time.
	maxRequestsPerNamespace = 16
	maxRequests             = 128
	// Notifications at a time, those included that wait for their turn, or that nobody waits for any more.
	maxWorkPerNamespace = 16
	maxWork             = 128
	// maxTurns is how many of them are read at a time, each of another namespace.
	maxTurns = 3
	// Looks at Scanners with their Secrets. Clair makes a notification for each updater and image when it is new, and stops
	// sending for a minute when one is refused: all of those should pass at once.
	lookupsPerSecond = 10
	lookupsAtOnce    = 100
	// Notifications.
	notificationsPerSecond = 5
	notificationsAtOnce    = 100
	// What is kept of a namespace.
	maxNamespaces = 10_000
	namespaceAge  = 24 * time.Hour
	// maxSaid bounds the lines that are not repeated.
	maxSaid = 1000
)

// places is room for so many at a time, for each namespace and in all.
type places struct {
	perNamespace, total int

	mu    sync.Mutex
	taken map[string]*share
	sum   int
}

// share is a namespace's.
type share struct {
	taken int
	// turn is held by the one whose turn it is.
	turn chan struct{}
}

func newPlaces(perNamespace, total int) *places {
	return &places{perNamespace: perNamespace, total: total, taken: map[string]*share{}}
}

// take takes a place, which leave gives back; errBusy if there is none. Whoever has a place may wait for the namespace's
// turn, which only one of them has.
func (p *places) take(namespace string) (turn chan struct{}, leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.taken[namespace]
	if own == nil {
		own = &share{turn: make(chan struct{}, 1)}
	}
	if own.taken >= p.perNamespace || p.sum >= p.total {
		return nil, nil, errBusy
	}
	own.taken++
	p.sum++
	p.taken[namespace] = own
	return own.turn, func() { p.leave(namespace) }, nil
}

func (p *places) leave(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum--
	if p.taken[namespace].taken--; p.taken[namespace].taken == 0 {
		delete(p.taken, namespace)
	}
}

// rates are token buckets by name.
type rates struct {
	perSecond rate.Limit
	atOnce    int
	clock     clock.PassiveClock

	mu      sync.Mutex
	buckets *cache.LRUExpireCache
}

func newRates(perSecond rate.Limit, atOnce int, clock clock.PassiveClock) *rates {
	return &rates{perSecond: perSecond, atOnce: atOnce, clock: clock, buckets: cache.NewLRUExpireCacheWithClock(maxNamespaces, clock)}
}

// allow takes one token, if there is one.
func (r *rates) allow(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	bucket, found := r.buckets.Get(name)
	if !found {
		bucket = rate.NewLimiter(r.perSecond, r.atOnce)
	}
	// Adding again renews the age, after which a bucket is full anyway.
	r.buckets.Add(name, bucket, namespaceAge)
	return bucket.(*rate.Limiter).AllowN(r.clock.Now(), 1)
}
