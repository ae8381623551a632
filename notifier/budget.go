package notifier

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// Slack accepts about one message per second and webhook (https://docs.slack.dev/apis/web-api/rate-limits).
const (
	postGap = time.Second
	// maxWait is how long a delivery may wait for its slot in the notifier. With a longer wait, the manager is asked to retry later.
	maxWait = 5 * time.Second
	// maxQueue bounds the wait for a new slot, since the manager waits for an hour at most. Later slots are not assigned. A pause can make
	// the wait of a caller that has a slot longer.
	maxQueue = 55 * time.Minute
	// slotGrace is how long a slot is kept for a caller that is late. After that the caller is queued again.
	slotGrace = time.Minute
	// Budgets are deleted when they were not used for budgetAge, which is longer than any pause.
	maxBudgets = 10_000
	budgetAge  = 2 * time.Hour
)

// Budget rate limits posts per address and caller. Callers that cannot post soon get one slot each, in the order of their requests, so that
// callers that are throttled together do not retry together. It is safe for concurrent use.
type Budget struct {
	clock  cache.Clock
	sleep  func(ctx context.Context, d time.Duration) error
	random func() float64

	mu      sync.Mutex
	buckets *cache.LRUExpireCache
}

// bucket is the budget of one address.
type bucket struct {
	// last is the latest slot that is used for a post, next the first slot that is free.
	last, next time.Time
	// slots are those of throttled callers, by caller.
	slots map[string]time.Time
	// pausedUntil is until when the receiver accepts nothing, by its Retry-After.
	pausedUntil time.Time
}

// NewBudget returns an empty Budget. sleep waits, or returns the context's error. random returns numbers of at least 0 and less than 1.
func NewBudget(clock cache.Clock, sleep func(context.Context, time.Duration) error, random func() float64) *Budget {
	return &Budget{clock: clock, sleep: sleep, random: random, buckets: cache.NewLRUExpireCacheWithClock(maxBudgets, clock)}
}

// Take reserves one post to the address that key stands for. If the wait is at most maxWait, Take waits and returns 0. Otherwise it returns
// the time to wait, and the caller keeps that slot if it retries then. An error is the context's.
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

// reserve returns how long the caller has to wait. ok is false if that is longer than maxWait.
func (b *Budget) reserve(key, caller string) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, bucket := b.clock.Now(), b.bucket(key)
	bucket.freeLateSlots(now)
	slot, queued := bucket.slots[caller]
	if !queued {
		slot = bucket.next
	}
	// Late callers, and all callers after a pause, are spaced out by postGap too.
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

// freeLateSlots frees the slots of callers that did not retry in time.
func (b *bucket) freeLateSlots(now time.Time) {
	for caller, slot := range b.slots {
		if now.Sub(slot) > slotGrace {
			delete(b.slots, caller)
		}
	}
}

// Pause blocks posts to an address for d. All slots of the address move back by the added time.
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

// bucket returns the bucket of an address and creates it if needed. The caller holds the lock.
func (b *Budget) bucket(key string) *bucket {
	found, ok := b.buckets.Get(key)
	if !ok {
		found = &bucket{slots: map[string]time.Time{}}
	}
	// Adding the bucket again renews its age.
	b.buckets.Add(key, found, budgetAge)
	return found.(*bucket)
}

// Sleep waits in real time. It returns the context's error if the context ends first.
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
