package clair

import (
	"context"
	"sync"
)

// digestLocks serialize changes of what Clair and the store hold about a platform manifest. The zero value is ready to use.
type digestLocks struct {
	mu sync.Mutex
	// held has a channel for each locked digest, which is closed when the digest is unlocked.
	held map[string]chan struct{}
}

// lock waits until the digest is unlocked or the context ends. The caller unlocks with the returned function.
func (d *digestLocks) lock(ctx context.Context, digest string) (func(), error) {
	for {
		unlock, held := d.acquire(digest)
		if unlock != nil {
			return unlock, nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try locks the digest without waiting. It returns nil if the digest is locked.
func (d *digestLocks) try(digest string) func() {
	unlock, _ := d.acquire(digest)
	return unlock
}

// acquire locks the digest, or returns the channel of its present lock.
func (d *digestLocks) acquire(digest string) (unlock func(), held <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if held := d.held[digest]; held != nil {
		return nil, held
	}
	if d.held == nil {
		d.held = map[string]chan struct{}{}
	}
	released := make(chan struct{})
	d.held[digest] = released
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.held, digest)
		close(released)
	}, nil
}
