package store

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"
)

// maxUnchanged is how many entries a unchangedCache holds at least before it drops the oldest. An entry takes about fifty bytes.
const maxUnchanged = 100_000

// unchangedCache caches for which repositories there was nothing to announce. That stays true until what is present or what was
// announced changes. It saves most of the periodic evaluations.
type unchangedCache struct {
	mutex sync.Mutex
	// A receiver's new round begins when a receiver's announcements change or are first evaluated. Numbers
	// are never reused, so a receiver that is deleted and added again never gets an old entry.
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
	m.mutex.Lock()
	defer m.mutex.Unlock()
	quiet, _ := m.unchanged.get(sha256.Sum256([]byte(what)))
	return quiet
}

// recordUnchanged records that there is nothing to announce for a key.
func (m *unchangedCache) recordUnchanged(what string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.unchanged.put(sha256.Sum256([]byte(what)), true, maxUnchanged)
}

// recent is a cache of the entries that were used last: between one and two times as many as its limit. It drops the older half
// at once. Entries that were read since the last drop stay, so reaching the limit does not empty the cache. The zero value is
// empty.
type recent[V any] struct {
	newer, older map[[sha256.Size]byte]V
}

func (r *recent[V]) get(key [sha256.Size]byte) (value V, found bool) {
	if value, found = r.newer[key]; found {
		return value, true
	}
	if value, found = r.older[key]; found {
		r.newer[key] = value // newer is not nil, since older was newer before
	}
	return value, found
}

func (r *recent[V]) put(key [sha256.Size]byte, value V, limit int) {
	if r.newer == nil || len(r.newer) >= limit {
		r.older, r.newer = r.newer, make(map[[sha256.Size]byte]V)
	}
	r.newer[key] = value
}
