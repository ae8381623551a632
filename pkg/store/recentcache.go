package store

import (
	"crypto/sha256"
	"sync"
)

// recent is a cache of the entries that were used last: their sizes amount to between one and two times its limit. It drops the older half
// at once. Entries that were read since the last drop stay, so reaching the limit does not empty the cache. It holds hashes of the
// keys, and is safe for concurrent use.
type recent[V any] struct {
	limit        int
	mutex        sync.Mutex
	newer, older map[[sha256.Size]byte]recentEntry[V]
	// size is that of newer.
	size int
}

type recentEntry[V any] struct {
	value V
	size  int
}

func (r *recent[V]) get(key string) (value V, found bool) {
	sum := sha256.Sum256([]byte(key))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if entry, found := r.newer[sum]; found {
		return entry.value, true
	}
	entry, found := r.older[sum]
	if found {
		r.add(sum, entry)
	}
	return entry.value, found
}

// put adds an entry of a size: in bytes, or 1 if the limit is a number of entries.
func (r *recent[V]) put(key string, value V, size int) {
	sum := sha256.Sum256([]byte(key))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.add(sum, recentEntry[V]{value, size})
}

func (r *recent[V]) add(sum [sha256.Size]byte, entry recentEntry[V]) {
	if r.newer == nil || r.size >= r.limit {
		r.older, r.newer, r.size = r.newer, make(map[[sha256.Size]byte]recentEntry[V]), 0
	}
	r.size += entry.size - r.newer[sum].size
	r.newer[sum] = entry
}
