package clairwebhook

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Limits are per namespace, not per Scanner: a tenant can create any number of Scanners in a namespace.
const (
	// Concurrent requests.
	maxRequestsPerNamespace = 16
	maxRequests             = 128
	// Notifications that are handled at a time, including those that wait to be read, and those whose webhook has timed out.
	maxWorkPerNamespace = 16
	maxWork             = 128
	// maxReads is how many notifications are read at a time, at most one of each namespace.
	maxReads = 3
	// Lookups of Scanners with their Secrets. Clair creates a notification for each updater and new image, and stops sending for a minute
	// when one is refused. So the burst must be large enough for all of them.
	lookupsPerSecond = 10
	lookupBurst      = 100
	// Notifications that are handled.
	notificationsPerSecond = 5
	notificationBurst      = 100
	// Namespaces for which state is kept.
	maxNamespaces = 10_000
	namespaceAge  = 24 * time.Hour
	// maxLoggedLines bounds the log lines that are remembered so that they are not repeated.
	maxLoggedLines = 1000
)

// namespaceSemaphore is a semaphore with a limit for each namespace and one in total.
type namespaceSemaphore struct {
	perNamespace, total int

	mu    sync.Mutex
	taken map[string]*namespaceUse
	sum   int
}

// namespaceUse is the part of the semaphore that one namespace uses.
type namespaceUse struct {
	taken int
	// readLock is a mutex: one holder at a time may read a notification.
	readLock chan struct{}
}

func newNamespaceSemaphore(perNamespace, total int) *namespaceSemaphore {
	return &namespaceSemaphore{perNamespace: perNamespace, total: total, taken: map[string]*namespaceUse{}}
}

// acquire acquires a place, which leave releases, or returns errBusy. turn is the mutex of the namespace, as a channel with room for one
// element.
func (p *namespaceSemaphore) acquire(namespace string) (turn chan struct{}, leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.taken[namespace]
	if own == nil {
		own = &namespaceUse{readLock: make(chan struct{}, 1)}
	}
	if own.taken >= p.perNamespace || p.sum >= p.total {
		return nil, nil, errBusy
	}
	own.taken++
	p.sum++
	p.taken[namespace] = own
	return own.readLock, func() { p.release(namespace) }, nil
}

func (p *namespaceSemaphore) release(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum--
	if p.taken[namespace].taken--; p.taken[namespace].taken == 0 {
		delete(p.taken, namespace)
	}
}

// namespaceLimiters are token buckets by name.
type namespaceLimiters struct {
	perSecond rate.Limit
	burst     int
	clock     clock.PassiveClock

	mu      sync.Mutex
	buckets *cache.LRUExpireCache
}

func newNamespaceLimiters(perSecond rate.Limit, atOnce int, clock clock.PassiveClock) *namespaceLimiters {
	return &namespaceLimiters{perSecond: perSecond, burst: atOnce, clock: clock, buckets: cache.NewLRUExpireCacheWithClock(maxNamespaces, clock)}
}

// allow takes one token and reports whether there was one.
func (r *namespaceLimiters) allow(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	bucket, found := r.buckets.Get(name)
	if !found {
		bucket = rate.NewLimiter(r.perSecond, r.burst)
	}
	// Adding the bucket again renews its age. A bucket that expires is full again anyway.
	r.buckets.Add(name, bucket, namespaceAge)
	return bucket.(*rate.Limiter).AllowN(r.clock.Now(), 1)
}
