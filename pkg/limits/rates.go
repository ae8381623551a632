package limits

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Rates are token buckets by owner. Its methods are safe for concurrent use.
type Rates struct {
	limit rate.Limit
	burst int
	clock clock.PassiveClock

	mu      sync.Mutex
	buckets *cache.LRUExpireCache
}

const (
	maxRates = 10_000
	// rateAge is longer than any bucket needs to become full.
	rateAge = 24 * time.Hour
)

// NewRates returns buckets that hold burst tokens and gain limit tokens a second.
func NewRates(limit rate.Limit, burst int, c clock.PassiveClock) *Rates {
	return &Rates{limit: limit, burst: burst, clock: c, buckets: cache.NewLRUExpireCacheWithClock(maxRates, c)}
}

// Take takes a token of an owner. If there is none, it returns the time until the next one.
func (r *Rates) Take(owner string) (wait time.Duration) {
	bucket, now := r.bucket(owner), r.clock.Now()
	if bucket.AllowN(now, 1) {
		return 0
	}
	return max(time.Millisecond, time.Duration((1-bucket.TokensAt(now))/float64(r.limit)*float64(time.Second)))
}

// Wait takes a token of an owner, and waits until there is one. The error is that of the context: then no token was taken.
func (r *Rates) Wait(ctx context.Context, owner string) error {
	bucket := r.bucket(owner)
	// One at a time has a reservation: it cannot be given back once there is one behind it.
	select {
	case bucket.turn <- struct{}{}:
		defer func() { <-bucket.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	now := r.clock.Now()
	token := bucket.ReserveN(now, 1)
	wait := time.NewTimer(token.DelayFrom(now))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		token.CancelAt(r.clock.Now())
		return ctx.Err()
	}
}

// bucket is the bucket of an owner.
type bucket struct {
	*rate.Limiter
	turn chan struct{} // of those who wait
}

func (r *Rates) bucket(owner string) *bucket {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.buckets.Get(owner)
	b, _ := found.(*bucket)
	if b == nil {
		b = &bucket{rate.NewLimiter(r.limit, r.burst), make(chan struct{}, 1)}
	}
	r.buckets.Add(owner, b, rateAge) // renews its age
	return b
}
