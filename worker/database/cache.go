package database

// cache is a bounded map in two generations. When recent is full, it replaces older, whose content is dropped. A hit in older moves the
// entry to recent. It is not safe for concurrent use.
type cache[K comparable, V any] struct {
	recent, older map[K]V
	// size is the size of the entries in recent.
	size int
	// sizeOf returns the size of an entry, and limit is the maximum size of a generation. A larger entry is a generation of its own.
	sizeOf func(V) int
	limit  int
}

func (c *cache[K, V]) get(key K) (value V, known bool) {
	if value, known = c.recent[key]; known {
		return value, true
	}
	if value, known = c.older[key]; known {
		c.add(key, value)
	}
	return value, known
}

// add adds an entry whose key is not in recent.
func (c *cache[K, V]) add(key K, value V) {
	size := c.sizeOf(value)
	if c.recent == nil || c.size+size > c.limit {
		c.older, c.recent, c.size = c.recent, map[K]V{}, 0
	}
	c.recent[key] = value
	c.size += size
}
