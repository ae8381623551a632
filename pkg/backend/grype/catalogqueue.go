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

// claimTimeout is how long an image that was woken may take to claim its slot: much longer than a reconcile takes.
const claimTimeout = 20 * time.Second

// slots holds the slots for catalog Jobs.
type slots struct {
	free int
	// running counts Jobs by the namespace of their Scanner, wherever the Jobs run. limit is the maximum for one namespace. The limit is
	// per namespace because tenants can create any number of Scanners, but not namespaces.
	running map[string]int
	limit   int
}

// slots counts live Jobs only: ended Jobs occupy no slot.
func (b *Backend) slots(live []store.Job) slots {
	catalog := b.Config.Grype.Catalog
	p := slots{free: catalog.MaxJobs, running: map[string]int{}, limit: catalog.MaxJobsPerNamespace}
	for _, job := range live {
		if job.Purpose == store.JobCatalog {
			p.free--
			p.running[job.ScannerNamespace]++
		}
	}
	return p
}

// catalogQueue is the fair queue of images that wait for a slot. It serves namespaces round-robin, the Scanners of a namespace round-robin,
// and the images of a Scanner first in, first out. A tenant with hundreds of images or Scanners therefore delays other namespaces by one
// turn at most.
type catalogQueue struct {
	mu sync.Mutex
	// scanners holds the Scanners with waiting images; the first is the next.
	scanners []*scannerQueue
}

type scannerQueue struct {
	namespace, scanner string
	images             []queuedImage
}

type queuedImage struct {
	key   image.Key
	scope store.Scope
	// wokenAt is when the image was woken for a free slot; zero if it was not.
	wokenAt time.Time
}

// admit reports whether an image gets a slot now, which it must then use. Otherwise the image stays in the queue.
func (w *catalogQueue) admit(img backend.Image, p slots) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.enqueue(img)
	own.wokenAt = time.Time{} // it reacted to the wake-up
	if !slices.Contains(w.next(p), own) {
		return false
	}
	w.removeImage(img.Key, img.Scope)
	w.moveToEnd(img.Namespace, img.Scanner)
	return true
}

// enqueue adds an image to the queue unless it is queued, and returns its entry.
func (w *catalogQueue) enqueue(img backend.Image) *queuedImage {
	at := slices.IndexFunc(w.scanners, func(t *scannerQueue) bool { return t.scanner == img.Scanner })
	if at < 0 {
		at = len(w.scanners)
		w.scanners = append(w.scanners, &scannerQueue{namespace: img.Namespace, scanner: img.Scanner})
	}
	t := w.scanners[at]
	own := slices.IndexFunc(t.images, func(i queuedImage) bool { return i.key == img.Key && i.scope == img.Scope })
	if own < 0 {
		own = len(t.images)
		t.images = append(t.images, queuedImage{key: img.Key, scope: img.Scope})
	}
	return &t.images[own]
}

// next returns the images that are to get the free slots: one image of each Scanner, then a second one of each, and so on, within the
// limit of each namespace.
func (w *catalogQueue) next(p slots) (next []*queuedImage) {
	taken := maps.Clone(p.running)
	for round, more := 0, true; more; round++ {
		more = false
		for _, t := range w.scanners {
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
func (w *catalogQueue) length() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, turn := range w.scanners {
		n += len(turn.images)
	}
	return n
}

// removeForAll removes an image from the queue for all Scanners: it is cataloged, or has a Job.
func (w *catalogQueue) removeForAll(key image.Key, scope store.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeImage(key, scope)
}

// removeForScanner removes an image from the queue for its own Scanner only. It is for problems with that Scanner's references, credentials or
// namespace: other Scanners that wait for the image keep their position.
func (w *catalogQueue) removeForScanner(img backend.Image) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeWhere(func(t *scannerQueue, i queuedImage) bool {
		return t.scanner == img.Scanner && i.key == img.Key && i.scope == img.Scope
	})
}

// removeImage drops an image for all Scanners, since one Job serves all of them. The caller holds mu.
func (w *catalogQueue) removeImage(key image.Key, scope store.Scope) {
	w.removeWhere(func(_ *scannerQueue, i queuedImage) bool { return i.key == key && i.scope == scope })
}

func (w *catalogQueue) removeWhere(which func(*scannerQueue, queuedImage) bool) {
	for _, t := range w.scanners {
		t.images = slices.DeleteFunc(t.images, func(i queuedImage) bool { return which(t, i) })
	}
	w.scanners = slices.DeleteFunc(w.scanners, func(t *scannerQueue) bool { return len(t.images) == 0 })
}

// moveToEnd moves a namespace behind all others, and the given Scanner to the end within its namespace.
func (w *catalogQueue) moveToEnd(namespace, scanner string) {
	rank := func(t *scannerQueue) int {
		switch {
		case t.namespace != namespace:
			return 0
		case t.scanner != scanner:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(w.scanners, func(a, b *scannerQueue) int { return cmp.Compare(rank(a), rank(b)) })
}

// dropUnclaimed removes images that did not claim their slot within claimTimeout. Images that still wait are enqueued again, at the end, when
// their ImageScan is next reconciled.
func (w *catalogQueue) dropUnclaimed(now time.Time) {
	w.removeWhere(func(_ *scannerQueue, i queuedImage) bool {
		return !i.wokenAt.IsZero() && now.Sub(i.wokenAt) >= claimTimeout
	})
}

// wakeNext returns the digests of images that are next in the queue and were not woken yet. It removes images for which wanted returns false.
func (w *catalogQueue) wakeNext(p slots, now time.Time, wanted func(image.Key, store.Scope) (bool, error)) (digests []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropUnclaimed(now)
	for {
		next := w.next(p)
		fresh := slices.IndexFunc(next, func(i *queuedImage) bool { return i.wokenAt.IsZero() })
		if fresh < 0 {
			return digests, nil
		}
		img := next[fresh]
		switch wanted, err := wanted(img.key, img.scope); {
		case err != nil:
			return digests, err
		case !wanted:
			w.removeImage(img.key, img.scope)
		default:
			img.wokenAt = now
			digests = append(digests, img.key.Digest)
		}
	}
}

// wakeQueued wakes as many queued images as there are free slots.
func (b *Backend) wakeQueued(ctx context.Context) error {
	live, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	digests, err := b.queue.wakeNext(b.slots(live), b.Clock.Now(), func(key image.Key, scope store.Scope) (bool, error) {
		return b.Store.IsNeeded(ctx, Engine, key, scope)
	})
	for _, digest := range digests { // outside the lock: a woken image calls Index
		b.Wake(ctx, digest)
	}
	return err
}
