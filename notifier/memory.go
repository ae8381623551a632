package notifier

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// memoryAge is longer than the day for which the manager retries a refused message.
	memoryAge = 25 * time.Hour
	// maxRemembered bounds the memory that is used. A receiver gets a message every few minutes at most, so this is a day for many
	// receivers.
	maxRemembered = 10_000
)

// DeliveryCache records which messages were delivered recently. A restart clears it: a message whose outcome did not reach the manager may then be
// delivered twice. It is safe for concurrent use.
type DeliveryCache struct {
	delivered *cache.LRUExpireCache
}

// NewDeliveryCache returns an empty Memory.
func NewDeliveryCache(clock cache.Clock) *DeliveryCache {
	return &DeliveryCache{delivered: cache.NewLRUExpireCacheWithClock(maxRemembered, clock)}
}

// Remember records that a message was delivered.
func (m *DeliveryCache) Remember(key string) { m.delivered.Add(key, true, memoryAge) }

// Delivered reports whether a message was delivered.
func (m *DeliveryCache) Delivered(key string) bool {
	_, found := m.delivered.Get(key)
	return found
}
