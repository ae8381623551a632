package store

import (
	"fmt"
	"maps"
	"sync"
)

// maxUnchanged is how many entries an unchangedCache holds at least before it drops the oldest. An entry takes about fifty bytes.
const maxUnchanged = 100_000

// unchangedCache caches for which repositories there was nothing to announce. That stays true until what is present or what was
// announced changes. It saves most of the periodic evaluations.
type unchangedCache struct {
	mutex sync.Mutex // guards rounds and last
	// rounds has the number of each receiver's current round. A new round begins when the receiver's announcements change or are first
	// evaluated. Numbers are never reused, so a receiver that is deleted and added again never gets an old entry.
	rounds    map[receiverName]uint64
	last      uint64
	unchanged recent[bool]
}

// receiverName identifies a receiver.
type receiverName struct{ scanner, receiver string }

// key returns a key for what a receiver was notified of so far. The caller must take it before it reads the store.
func (m *unchangedCache) key(scanner, receiver string) string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	round, found := m.rounds[receiverName{scanner, receiver}]
	if !found {
		round = m.begin(scanner, receiver)
	}
	return fmt.Sprintf("%q %q %d", scanner, receiver, round)
}

// invalidate records that a receiver's announcements have changed.
func (m *unchangedCache) invalidate(scanner, receiver string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.begin(scanner, receiver)
}

// deleteScanner deletes the rounds of a Scanner's receivers, which may all be deleted.
func (m *unchangedCache) deleteScanner(scanner string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	maps.DeleteFunc(m.rounds, func(name receiverName, _ uint64) bool { return name.scanner == scanner })
}

// begin starts a receiver's next round. The caller holds the mutex.
func (m *unchangedCache) begin(scanner, receiver string) uint64 {
	m.last++
	m.rounds[receiverName{scanner, receiver}] = m.last
	return m.last
}

// isUnchanged reports whether there was nothing to announce for a key.
func (m *unchangedCache) isUnchanged(what string) bool {
	_, quiet := m.unchanged.get(what)
	return quiet
}

// recordUnchanged records that there is nothing to announce for a key.
func (m *unchangedCache) recordUnchanged(what string) {
	m.unchanged.put(what, true, 1)
}
