package store

import (
	"crypto/sha256"
	"sync"
)

// recent is a cache of the entries that were used last: between one and two times as many as its limit. It drops the older half
// at once. Entries that were read since the last drop stay, so reaching the limit does not empty the cache. It holds hashes of the
// keys, and is safe for concurrent use.
type recent[V any] struct {
	limit        int
	mutex        sync.Mutex
	newer, older map[[sha256.Size]byte]V
}

func (r *recent[V]) get(key string) (value V, found bool) {
	sum := sha256.Sum256([]byte(key))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if value, found = r.newer[sum]; found {
		return value, true
	}
	if value, found = r.older[sum]; found {
		r.newer[sum] = value // newer is not nil, since older was newer before
	}
	return value, found
}

func (r *recent[V]) put(key string, value V) {
	sum := sha256.Sum256([]byte(key))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.newer == nil || len(r.newer) >= r.limit {
		r.older, r.newer = r.newer, make(map[[sha256.Size]byte]V)
	}
	r.newer[sum] = value
}
