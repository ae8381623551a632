package clair

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// digestLocks let one at a time change what Clair and the store have of a platform manifest. The zero value is ready.
type digestLocks struct {
	mu   sync.Mutex
	held map[string]*digestLock
}

type digestLock struct {
	free  chan struct{} // holds one token while nobody has the lock
	users int
}

// lock waits until nobody has the digest, or the context ends. The returned function gives it back.
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

// try is the same without waiting; nil if somebody has the digest.
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

const (
	// throttlePause is how long a registry is left alone that wants it and does not say for how long.
	throttlePause = 5 * time.Minute
	// maxThrottled bounds the registries that are remembered.
	maxThrottled = 256
)

// throttles remembers which registries have asked to wait until when, for each who was told so: registries count per
// account, and a namespace's own registry must slow down nobody else.
type throttles struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	until map[throttled]time.Time
}

type throttled struct{ scope, host string }

func (t *throttles) note(scope, host string, wait time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait <= 0 {
		wait = throttlePause
	}
	if t.until == nil || len(t.until) >= maxThrottled {
		t.until = map[throttled]time.Time{}
	}
	now, id := t.clock.Now(), throttled{scope, workerapi.CanonicalHost(host)}
	if until := now.Add(wait); until.After(t.until[id]) {
		t.until[id] = until
	}
	return t.until[id].Sub(now)
}

// spared are the hosts that are not to be asked now.
func (t *throttles) spared(scope string) (hosts []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for id, until := range t.until {
		switch {
		case !now.Before(until):
			delete(t.until, id)
		case id.scope == scope:
			hosts = append(hosts, id.host)
		}
	}
	return hosts
}

// left is how long a host is to be left alone.
func (t *throttles) left(scope, host string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.until[throttled{scope, workerapi.CanonicalHost(host)}].Sub(t.clock.Now()), 0)
}
