package store

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// maxQuiet is how many entries a quietMemory holds at least before it drops the oldest. One entry is some fifty bytes.
const maxQuiet = 100_000

// quietMemory remembers where there was nothing to tell: as long as neither what is present nor what was told changes, there is
// none. It spares most of the looks that are taken again and again.
type quietMemory struct {
	mutex sync.Mutex
	// rounds are those of each Scanner's receivers. One begins whenever what a receiver was told changes, or is first asked for; no number
	// comes twice, so that what was forgotten is never taken for what begins anew.
	rounds map[string]map[string]uint64
	last   uint64
	quiet  recent[bool]
}

// of names what a receiver has been told so far. It is to be taken before the look at the store.
func (m *quietMemory) of(scanner, receiver string) string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	round, found := m.rounds[scanner][receiver]
	if !found {
		round = m.begin(scanner, receiver)
	}
	return fmt.Sprintf("%q %q %d", scanner, receiver, round)
}

// told notes that what a receiver was told has changed.
func (m *quietMemory) told(scanner, receiver string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.begin(scanner, receiver)
}

// forget forgets what is known of a Scanner's receivers, which may all be gone.
func (m *quietMemory) forget(scanner string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.rounds, scanner)
}

// begin begins a receiver's next round. The caller holds the mutex.
func (m *quietMemory) begin(scanner, receiver string) uint64 {
	if m.rounds == nil {
		m.rounds = make(map[string]map[string]uint64)
	}
	if m.rounds[scanner] == nil {
		m.rounds[scanner] = make(map[string]uint64)
	}
	m.last++
	m.rounds[scanner][receiver] = m.last
	return m.last
}

// is says whether there was nothing to tell of something.
func (m *quietMemory) is(what string) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	quiet, _ := m.quiet.get(sha256.Sum256([]byte(what)))
	return quiet
}

// note notes that there is nothing to tell of it.
func (m *quietMemory) note(what string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.quiet.put(sha256.Sum256([]byte(what)), true, maxQuiet)
}

// recent holds the entries that were used last: between one and two times as many as its limit. Older ones are dropped together, and
// what is asked for between two such times stays, so that nothing begins anew because the limit is reached. The zero value is empty.
type recent[V any] struct {
	newer, older map[[sha256.Size]byte]V
}

func (r *recent[V]) get(key [sha256.Size]byte) (value V, found bool) {
	if value, found = r.newer[key]; found {
		return value, true
	}
	if value, found = r.older[key]; found {
		r.newer[key] = value // newer is there, since older was newer once
	}
	return value, found
}

func (r *recent[V]) put(key [sha256.Size]byte, value V, limit int) {
	if r.newer == nil || len(r.newer) >= limit {
		r.older, r.newer = r.newer, make(map[[sha256.Size]byte]V)
	}
	r.newer[key] = value
}
