package grype

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/queue"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// claimTimeout is how long an image that was woken may take to claim its slot: much longer than a reconcile takes.
const claimTimeout = 20 * time.Second

// slots counts live Jobs only, by the namespace of their Scanner, wherever the Jobs run: ended Jobs occupy no slot. The limit is per
// namespace because tenants can create any number of Scanners, but not namespaces.
func (b *Backend) slots(live []store.Job) queue.Slots {
	catalog := b.Config.Grype.Catalog
	p := queue.Slots{Free: catalog.MaxJobs, Running: map[string]int{}, Limit: catalog.MaxJobsPerNamespace}
	for _, job := range live {
		if job.Purpose == store.JobCatalog {
			p.Free--
			p.Running[job.ScannerNamespace]++
		}
	}
	return p
}

// queuedProgress returns the Progress of a queued image.
func (b *Backend) queuedProgress(img backend.Image, p queue.Slots) backend.Progress {
	message := fmt.Sprintf("waiting for one of %d catalog Jobs to end (grype.catalog.maxJobs in the operator's configuration)", b.Config.Grype.Catalog.MaxJobs)
	if running := p.Running[img.Namespace]; running >= p.Limit {
		message = fmt.Sprintf("waiting for one of this namespace's %d catalog Jobs to end (grype.catalog.maxJobsPerNamespace in the operator's configuration)", running)
	}
	return backend.Waiting(v1alpha1.ReasonPending, message, checkQueue)
}

// catalogQueue is the queue of images that wait for a catalog Job. The Scanners of a namespace take turns.
type catalogQueue struct {
	mu     sync.Mutex
	images queue.Fair[*queuedImage]
}

// queuedImage is an image that a Scanner waits for.
type queuedImage struct {
	namespace, scanner string
	key                image.Key
	scope              store.Scope
	// sbomPolicy is the policy that a catalog must count with.
	sbomPolicy string
	// wokenAt is when the image was woken for a free slot; zero if it was not.
	wokenAt time.Time
}

// Flow implements queue.Item.
func (i *queuedImage) Flow() queue.Flow { return queue.Flow{Tenant: i.namespace, Name: i.scanner} }

func (i *queuedImage) is(key image.Key, scope store.Scope) bool {
	return i.key == key && i.scope == scope
}

// image returns the image with what decides whether a catalog counts for it.
func (i *queuedImage) image() backend.Image {
	return backend.Image{Key: i.key, Scope: i.scope, Namespace: i.namespace, Scanner: i.scanner, SBOMPolicy: i.sbomPolicy}
}

func anyImage(*queuedImage) bool { return true }

// admit reports whether an image gets a slot now, which it must then use. Otherwise the image stays in the queue.
func (w *catalogQueue) admit(img backend.Image, p queue.Slots) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.enqueue(img)
	own.wokenAt = time.Time{} // it reacted to the wake-up
	if !slices.Contains(w.images.Next(p, anyImage), own) {
		return false
	}
	w.images.Take(own)
	w.removeImage(img.Key, img.Scope)
	return true
}

// enqueue adds an image to the queue unless it is queued, and returns its entry.
func (w *catalogQueue) enqueue(img backend.Image) *queuedImage {
	own := &queuedImage{namespace: img.Namespace, scanner: img.Scanner, key: img.Key, scope: img.Scope, sbomPolicy: img.SBOMPolicy}
	if queued, found := w.images.Find(own.Flow(), func(i *queuedImage) bool { return i.is(img.Key, img.Scope) }); found {
		return queued
	}
	w.images.Push(own)
	return own
}

// length returns the number of queued images.
func (w *catalogQueue) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.images.Len()
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
	w.images.Remove(func(i *queuedImage) bool { return i.scanner == img.Scanner && i.is(img.Key, img.Scope) })
}

// removeImage drops an image for all Scanners, since one Job serves all of them. The caller holds mu.
func (w *catalogQueue) removeImage(key image.Key, scope store.Scope) {
	w.images.Remove(func(i *queuedImage) bool { return i.is(key, scope) })
}

// dropUnclaimed removes images that did not claim their slot within claimTimeout. Images that still wait are enqueued again, at the end, when
// their ImageScan is next reconciled.
func (w *catalogQueue) dropUnclaimed(now time.Time) {
	w.images.Remove(func(i *queuedImage) bool { return !i.wokenAt.IsZero() && now.Sub(i.wokenAt) >= claimTimeout })
}

// wakeNext returns the digests of images that are next in the queue and were not woken yet. It removes images for which wanted returns false.
func (w *catalogQueue) wakeNext(p queue.Slots, now time.Time, wanted func(queuedImage) (bool, error)) (digests []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropUnclaimed(now)
	for {
		next := w.images.Next(p, anyImage)
		fresh := slices.IndexFunc(next, func(i *queuedImage) bool { return i.wokenAt.IsZero() })
		if fresh < 0 {
			return digests, nil
		}
		img := next[fresh]
		switch wanted, err := wanted(*img); {
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
	digests, err := b.queue.wakeNext(b.slots(live), b.Clock.Now(), func(i queuedImage) (bool, error) {
		if cataloged, err := b.isCataloged(ctx, i.image()); cataloged || err != nil {
			return false, err
		}
		return b.Store.IsNeeded(ctx, Engine, i.key, i.scope)
	})
	for _, digest := range digests { // outside the lock: a woken image calls StartCatalog
		b.Wake(ctx, digest)
	}
	return err
}
