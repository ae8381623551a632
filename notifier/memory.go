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

// Memory records which messages were delivered recently. A restart clears it: a message whose outcome did not reach the manager may then be
// delivered twice. It is safe for concurrent use.
type Memory struct {
	delivered *cache.LRUExpireCache
}

// NewMemory returns an empty Memory.
func NewMemory(clock cache.Clock) *Memory {
	return &Memory{delivered: cache.NewLRUExpireCacheWithClock(maxRemembered, clock)}
}

// Remember records that a message was delivered.
func (m *Memory) Remember(key string) { m.delivered.Add(key, true, memoryAge) }

// Delivered reports whether a message was delivered.
func (m *Memory) Delivered(key string) bool {
	_, found := m.delivered.Get(key)
	return found
}
