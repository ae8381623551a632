package clair

import (
	"context"
	"sync"
)

// digestLocks serialize changes of what Clair and the store hold about a platform manifest. The zero value is ready to use.
type digestLocks struct {
	mu   sync.Mutex
	held map[string]*digestLock
}

type digestLock struct {
	free  chan struct{} // holds one token while the lock is free
	users int
}

// lock waits until the digest is unlocked or the context ends. The caller unlocks with the returned function.
func (d *digestLocks) lock(ctx context.Context, digest string) (func(), error) {
	l := d.enter(digest)
	select {
	case <-l.free:
		return func() { l.free <- struct{}{}; d.exit(digest) }, nil
	case <-ctx.Done():
		d.exit(digest)
		return nil, ctx.Err()
	}
}

// try locks the digest without waiting. It returns nil if the digest is locked.
func (d *digestLocks) try(digest string) func() {
	l := d.enter(digest)
	select {
	case <-l.free:
		return func() { l.free <- struct{}{}; d.exit(digest) }
	default:
		d.exit(digest)
		return nil
	}
}

func (d *digestLocks) enter(digest string) *digestLock {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == nil {
		d.held = map[string]*digestLock{}
	}
	l := d.held[digest]
	if l == nil {
		l = &digestLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		d.held[digest] = l
	}
	l.users++
	return l
}

func (d *digestLocks) exit(digest string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.held[digest]; l != nil {
		if l.users--; l.users == 0 {
			delete(d.held, digest)
		}
	}
}
