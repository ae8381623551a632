package notifier

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// Slack takes about one message per second and webhook (https://docs.slack.dev/apis/web-api/rate-limits).
const (
	postsPerSecond = 1
	postsAtOnce    = 1
	// maxWait is how long a delivery may wait for its turn before the manager is told to come back.
	maxWait = 5 * time.Second
	// Budgets are forgotten when they have not been used for longer than any pause.
	maxBudgets = 10_000
	budgetAge  = 2 * time.Hour
)

// Budget spaces out posts, per address and whoever asks for them.
type Budget struct {
	clock cache.Clock
	sleep func(ctx context.Context, d time.Duration) error

	mu      sync.Mutex
	buckets *cache.LRUExpireCache
}

// bucket is one address's.
type bucket struct {
	limiter *rate.Limiter
	// pausedUntil is what the receiver asked for.
	pausedUntil time.Time
}

// NewBudget returns an empty Budget. sleep waits, or returns the context's error.
func NewBudget(clock cache.Clock, sleep func(context.Context, time.Duration) error) *Budget {
	return &Budget{clock: clock, sleep: sleep, buckets: cache.NewLRUExpireCacheWithClock(maxBudgets, clock)}
}

// Take takes the right to post once, and waits for it if that is short. When it is not, nothing is taken, and
// how long it would be is returned. An error is the context's.
func (b *Budget) Take(ctx context.Context, key string) (later time.Duration, err error) {
	wait, ok := b.reserve(key)
	if !ok {
		return wait, nil
	}
	if wait > 0 {
		return 0, b.sleep(ctx, wait)
	}
	return 0, ctx.Err()
}

// reserve returns how long to wait; not ok if that is too long.
func (b *Budget) reserve(key string) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	bucket := b.bucket(key)
	start := now
	if bucket.pausedUntil.After(now) {
		start = bucket.pausedUntil
	}
	if paused := start.Sub(now); paused > maxWait {
		return paused, false
	}
	reservation := bucket.limiter.ReserveN(start, 1)
	wait = start.Sub(now) + reservation.DelayFrom(start)
	if wait > maxWait {
		reservation.CancelAt(start)
		return wait, false
	}
	return wait, true
}

// Pause lets nothing be posted to an address for a time.
func (b *Budget) Pause(key string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := b.clock.Now().Add(d); until.After(b.bucket(key).pausedUntil) {
		b.bucket(key).pausedUntil = until
	}
}

// bucket finds or makes one; the caller holds the lock.
func (b *Budget) bucket(key string) *bucket {
	found, ok := b.buckets.Get(key)
	if !ok {
		found = &bucket{limiter: rate.NewLimiter(postsPerSecond, postsAtOnce)}
	}
	// Adding again renews the age.
	b.buckets.Add(key, found, budgetAge)
	return found.(*bucket)
}

// Sleep waits in real time.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
