package backend

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// FailureMemo remembers failures by key, each for its own time. It needs a Clock, and is safe for concurrent use.
type FailureMemo[K comparable] struct {
	Clock clock.PassiveClock
	mu    sync.Mutex
	known map[K]rememberedFailure
}

type rememberedFailure struct {
	failure *Failure
	until   time.Time
}

// Set remembers a failure for ttl instead of the one before, and drops all failures whose time is over.
func (m *FailureMemo[K]) Set(key K, failure *Failure, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.Clock.Now()
	for other, known := range m.known {
		if !now.Before(known.until) {
			delete(m.known, other)
		}
	}
	if m.known == nil {
		m.known = map[K]rememberedFailure{}
	}
	m.known[key] = rememberedFailure{failure, now.Add(ttl)}
}

// Get returns the failure of a key; nil if there is none.
func (m *FailureMemo[K]) Get(key K) *Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, found := m.known[key]; found && m.Clock.Now().Before(known.until) {
		return known.failure
	}
	return nil
}

// Shorten makes the failure of a key, if there is one, end after ttl at the latest.
func (m *FailureMemo[K]) Shorten(key K, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, found := m.known[key]; found {
		if until := m.Clock.Now().Add(ttl); until.Before(known.until) {
			m.known[key] = rememberedFailure{known.failure, until}
		}
	}
}
