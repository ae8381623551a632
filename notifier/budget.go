package notifier

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// Slack takes about one message per second and webhook (https://docs.slack.dev/apis/web-api/rate-limits).
const (
	postGap = time.Second
	// maxWait is how long a delivery may wait for its slot before the manager is told to come back.
	maxWait = 5 * time.Second
	// maxQueue is the longest wait that anybody is told: the manager waits for an hour at most. Slots beyond it are not handed out.
	maxQueue = 55 * time.Minute
	// slotGrace is for how long a slot is kept for a caller that is late. A caller that is later queues up again.
	slotGrace = time.Minute
	// Budgets are forgotten when they have not been used for longer than any pause.
	maxBudgets = 10_000
	budgetAge  = 2 * time.Hour
)

// Budget spaces out posts, per address and whoever asks for them. Callers that cannot post soon get a slot each, in the order in which
// they come, so that many that come together do not come back together.
type Budget struct {
	clock  cache.Clock
	sleep  func(ctx context.Context, d time.Duration) error
	random func() float64

	mu      sync.Mutex
	buckets *cache.LRUExpireCache
}

// bucket is one address's.
type bucket struct {
	// last is the latest slot in which somebody posts, next the first that nobody has.
	last, next time.Time
	// slots of callers that were told to come back.
	slots map[string]time.Time
	// pausedUntil is what the receiver asked for.
	pausedUntil time.Time
}

// NewBudget returns an empty Budget. sleep waits, or returns the context's error. random gives numbers from 0 to 1, which are never 1.
func NewBudget(clock cache.Clock, sleep func(context.Context, time.Duration) error, random func() float64) *Budget {
	return &Budget{clock: clock, sleep: sleep, random: random, buckets: cache.NewLRUExpireCacheWithClock(maxBudgets, clock)}
}

// Take takes the right to post once, and waits for it if that is short. When it is not, how long it would be is returned, and the caller
// has that slot in the address's queue when it comes back then. An error is the context's.
func (b *Budget) Take(ctx context.Context, key, caller string) (later time.Duration, err error) {
	wait, ok := b.reserve(key, caller)
	if !ok {
		return wait, nil
	}
	if wait > 0 {
		return 0, b.sleep(ctx, wait)
	}
	return 0, ctx.Err()
}

// reserve returns how long to wait; not ok if that is too long.
func (b *Budget) reserve(key, caller string) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, bucket := b.clock.Now(), b.bucket(key)
	bucket.dropLate(now)
	slot, queued := bucket.slots[caller]
	if !queued {
		slot = bucket.next
	}
	// Callers that are late, and those after a pause, do not post all at once.
	slot = latest(slot, now, bucket.pausedUntil, bucket.last.Add(postGap))
	switch wait = slot.Sub(now); {
	case wait <= maxWait:
		delete(bucket.slots, caller)
		bucket.last, bucket.next = slot, latest(bucket.next, slot.Add(postGap))
		return wait, true
	case wait > maxQueue && !queued:
		return maxQueue - time.Duration(b.random()*float64(maxQueue/2)), false
	}
	bucket.slots[caller], bucket.next = slot, latest(bucket.next, slot.Add(postGap))
	return wait + time.Duration(b.random()*float64(postGap)), false
}

// dropLate frees the slots of callers that did not come back.
func (b *bucket) dropLate(now time.Time) {
	for caller, slot := range b.slots {
		if now.Sub(slot) > slotGrace {
			delete(b.slots, caller)
		}
	}
}

// Pause lets nothing be posted to an address for a time. All who wait for a slot there wait for as much longer.
func (b *Budget) Pause(key string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, bucket := b.clock.Now(), b.bucket(key)
	until := now.Add(d)
	longer := until.Sub(latest(bucket.pausedUntil, now))
	if longer <= 0 {
		return
	}
	bucket.pausedUntil = until
	for caller := range bucket.slots {
		bucket.slots[caller] = bucket.slots[caller].Add(longer)
	}
	bucket.next = latest(bucket.next, now).Add(longer)
}

func latest(first time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if other.After(first) {
			first = other
		}
	}
	return first
}

// bucket finds or makes one; the caller holds the lock.
func (b *Budget) bucket(key string) *bucket {
	found, ok := b.buckets.Get(key)
	if !ok {
		found = &bucket{slots: map[string]time.Time{}}
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
