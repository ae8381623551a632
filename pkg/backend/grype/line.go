package grype

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// callPatience is how long an image that was woken may take to claim its slot: much longer than a reconcile takes.
const callPatience = 20 * time.Second

// places holds the slots for catalog Jobs.
type places struct {
	free int
	// running counts Jobs by the namespace of their Scanner, wherever the Jobs run. limit is the maximum for one namespace. The limit is
	// per namespace because tenants can create any number of Scanners, but not namespaces.
	running map[string]int
	limit   int
}

// places counts live Jobs only: ended Jobs occupy no slot.
func (b *Backend) places(live []store.Job) places {
	catalog := b.Config.Grype.Catalog
	p := places{free: catalog.MaxJobs, running: map[string]int{}, limit: catalog.MaxJobsPerNamespace}
	for _, job := range live {
		if job.Purpose == store.JobCatalog {
			p.free--
			p.running[job.ScannerNamespace]++
		}
	}
	return p
}

// waitingLine is the fair queue of images that wait for a slot. It serves namespaces round-robin, the Scanners of a namespace round-robin,
// and the images of a Scanner first in, first out. A tenant with hundreds of images or Scanners therefore delays other namespaces by one
// turn at most.
type waitingLine struct {
	mu sync.Mutex
	// turns holds the Scanners with waiting images; the first is the next.
	turns []*turn
}

type turn struct {
	namespace, scanner string
	images             []waitingImage
}

type waitingImage struct {
	key   image.Key
	scope store.Scope
	// called is when the image was woken for a free slot; zero if it was not.
	called time.Time
}

// admit reports whether an image gets a slot now, which it must then use. Otherwise the image stays in the queue.
func (w *waitingLine) admit(img backend.Image, p places) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.enter(img)
	own.called = time.Time{} // it reacted to the wake-up
	if !slices.Contains(w.next(p), own) {
		return false
	}
	w.remove(img.Key, img.Scope)
	w.toEnd(img.Namespace, img.Scanner)
	return true
}

// enter adds an image to the queue unless it is queued, and returns its entry.
func (w *waitingLine) enter(img backend.Image) *waitingImage {
	at := slices.IndexFunc(w.turns, func(t *turn) bool { return t.scanner == img.Scanner })
	if at < 0 {
		at = len(w.turns)
		w.turns = append(w.turns, &turn{namespace: img.Namespace, scanner: img.Scanner})
	}
	t := w.turns[at]
	own := slices.IndexFunc(t.images, func(i waitingImage) bool { return i.key == img.Key && i.scope == img.Scope })
	if own < 0 {
		own = len(t.images)
		t.images = append(t.images, waitingImage{key: img.Key, scope: img.Scope})
	}
	return &t.images[own]
}

// next returns the images that are to get the free slots: one image of each Scanner, then a second one of each, and so on, within the
// limit of each namespace.
func (w *waitingLine) next(p places) (next []*waitingImage) {
	taken := maps.Clone(p.running)
	for round, more := 0, true; more; round++ {
		more = false
		for _, t := range w.turns {
			if round >= len(t.images) || taken[t.namespace] >= p.limit {
				continue
			}
			if len(next) >= p.free {
				return next
			}
			next, more = append(next, &t.images[round]), true
			taken[t.namespace]++
		}
	}
	return next
}

// length returns the number of queued images.
func (w *waitingLine) length() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, turn := range w.turns {
		n += len(turn.images)
	}
	return n
}

// leave removes an image from the queue for all Scanners: it is cataloged, or has a Job.
func (w *waitingLine) leave(key image.Key, scope store.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(key, scope)
}

// withdraw removes an image from the queue for its own Scanner only. It is for problems with that Scanner's references, credentials or
// namespace: other Scanners that wait for the image keep their position.
func (w *waitingLine) withdraw(img backend.Image) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeAll(func(t *turn, i waitingImage) bool {
		return t.scanner == img.Scanner && i.key == img.Key && i.scope == img.Scope
	})
}

// remove drops an image for all Scanners, since one Job serves all of them. The caller holds mu.
func (w *waitingLine) remove(key image.Key, scope store.Scope) {
	w.removeAll(func(_ *turn, i waitingImage) bool { return i.key == key && i.scope == scope })
}

func (w *waitingLine) removeAll(which func(*turn, waitingImage) bool) {
	for _, t := range w.turns {
		t.images = slices.DeleteFunc(t.images, func(i waitingImage) bool { return which(t, i) })
	}
	w.turns = slices.DeleteFunc(w.turns, func(t *turn) bool { return len(t.images) == 0 })
}

// toEnd moves a namespace behind all others, and the given Scanner to the end within its namespace.
func (w *waitingLine) toEnd(namespace, scanner string) {
	rank := func(t *turn) int {
		switch {
		case t.namespace != namespace:
			return 0
		case t.scanner != scanner:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(w.turns, func(a, b *turn) int { return cmp.Compare(rank(a), rank(b)) })
}

// dropAbsent removes images that did not claim their slot within callPatience. Images that still wait are enqueued again, at the end, when
// their ImageScan is next reconciled.
func (w *waitingLine) dropAbsent(now time.Time) {
	w.removeAll(func(_ *turn, i waitingImage) bool { return !i.called.IsZero() && now.Sub(i.called) >= callPatience })
}

// call returns the digests of images that are next in the queue and were not woken yet. It removes images for which wanted returns false.
func (w *waitingLine) call(p places, now time.Time, wanted func(image.Key, store.Scope) (bool, error)) (digests []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropAbsent(now)
	for {
		next := w.next(p)
		fresh := slices.IndexFunc(next, func(i *waitingImage) bool { return i.called.IsZero() })
		if fresh < 0 {
			return digests, nil
		}
		img := next[fresh]
		switch wanted, err := wanted(img.key, img.scope); {
		case err != nil:
			return digests, err
		case !wanted:
			w.remove(img.key, img.scope)
		default:
			img.called = now
			digests = append(digests, img.key.Digest)
		}
	}
}

// callWaiting wakes as many queued images as there are free slots.
func (b *Backend) callWaiting(ctx context.Context) error {
	live, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	digests, err := b.line.call(b.places(live), b.Clock.Now(), func(key image.Key, scope store.Scope) (bool, error) {
		return b.Store.Wanted(ctx, Engine, key, scope)
	})
	for _, digest := range digests { // outside the lock: a woken image calls Index
		b.Wake(ctx, digest)
	}
	return err
}
