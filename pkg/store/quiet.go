package store

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// maxQuiet bounds a quietMemory, which then begins anew. One entry is some fifty bytes.
const maxQuiet = 200_000

// quietMemory remembers where there was nothing to tell: as long as neither what is present nor what was told changes, there is
// none. It spares most of the looks that are taken again and again.
type quietMemory struct {
	mutex sync.Mutex
	// rounds count the changes of what each receiver was told; round those of all.
	rounds map[string]int
	round  int
	quiet  map[[sha256.Size]byte]bool
}

// of names what a receiver has been told so far. It is to be taken before the look at the store.
func (m *quietMemory) of(scanner, receiver string) string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return fmt.Sprintf("%q %q %d %d", scanner, receiver, m.round, m.rounds[scanner+"\x00"+receiver])
}

// told notes that what a receiver was told has changed.
func (m *quietMemory) told(scanner, receiver string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.rounds == nil {
		m.rounds = make(map[string]int)
	}
	m.rounds[scanner+"\x00"+receiver]++
}

// forget forgets everything.
func (m *quietMemory) forget() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.round++
	m.rounds, m.quiet = nil, nil
}

// is says whether there was nothing to tell of something.
func (m *quietMemory) is(what string) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.quiet[sha256.Sum256([]byte(what))]
}

// note notes that there is nothing to tell of it.
func (m *quietMemory) note(what string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.quiet == nil || len(m.quiet) >= maxQuiet {
		m.quiet = make(map[[sha256.Size]byte]bool)
	}
	m.quiet[sha256.Sum256([]byte(what))] = true
}
