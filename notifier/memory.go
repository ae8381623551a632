package notifier

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// memoryAge is longer than the manager tries to deliver a message (a day).
	memoryAge = 25 * time.Hour
	// maxRemembered bounds memory. A receiver gets a message every few minutes at most, so this is a day of many receivers.
	maxRemembered = 10_000
)

// Memory knows which messages were delivered lately. What was delivered before a restart is forgotten, so
// that a message whose outcome the manager did not hear may come twice then.
type Memory struct {
	delivered *cache.LRUExpireCache
}

// NewMemory returns an empty Memory.
func NewMemory(clock cache.Clock) *Memory {
	return &Memory{delivered: cache.NewLRUExpireCacheWithClock(maxRemembered, clock)}
}

// Remember notes that a message was delivered.
func (m *Memory) Remember(key string) { m.delivered.Add(key, true, memoryAge) }

// Delivered says whether a message was delivered.
func (m *Memory) Delivered(key string) bool {
	_, found := m.delivered.Get(key)
	return found
}
