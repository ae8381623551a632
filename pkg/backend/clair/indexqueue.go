package clair

import (
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/queue"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// taskID identifies an image of one Scanner. The Scanner is included because problems with its references and credentials concern no other
// Scanner.
type taskID struct {
	scanner string
	key     image.Key
	scope   store.Scope
}

func idOf(img backend.Image) taskID {
	return taskID{scanner: img.Scanner, key: img.Key, scope: img.Scope}
}

// task is an image to index on behalf of one Scanner.
type task struct {
	img     backend.Image
	link    *link
	running bool
}

// Flow implements queue.Item. The Scanners of a namespace share one flow.
func (t *task) Flow() queue.Flow { return queue.Flow{Tenant: t.img.Namespace} }

// result identifies the result of indexing the image, which is the same for all Scanners.
func (t *task) result() indexKey { return indexKey{t.img.Key, t.img.Scope} }

type indexKey struct {
	key   image.Key
	scope store.Scope
}

// indexQueue is the queue of images to index with one Clair, and holds its slots.
type indexQueue struct {
	mu      sync.Mutex
	tasks   map[taskID]*task // waiting and running
	waiting queue.Fair[*task]
	running map[string]int // by namespace
	busy    map[indexKey]bool
}

// enqueue adds an image to the queue unless it is queued, and reports whether it is being indexed. A queued image takes over the new details.
func (l *indexQueue) enqueue(img backend.Image, over *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.tasks[idOf(img)]; known != nil {
		if !known.running {
			known.img, known.link = img, over
		}
		return known.running
	}
	if l.tasks == nil {
		l.tasks, l.running, l.busy = map[taskID]*task{}, map[string]int{}, map[indexKey]bool{}
	}
	t := &task{img: img, link: over}
	l.tasks[idOf(img)] = t
	l.waiting.Push(t)
	return false
}

// length returns the number of images without a slot.
func (l *indexQueue) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len()
}

// dequeue gives a slot to the next ready image, or returns nil. It skips namespaces with limit running images, and images that are being
// indexed already for the same credential scope.
func (l *indexQueue) dequeue(limit int, ready func(*task) bool) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.waiting.Next(queue.Slots{Free: 1, Running: l.running, Limit: limit}, func(t *task) bool { return !l.busy[t.result()] && ready(t) })
	if len(next) == 0 {
		return nil
	}
	t := next[0]
	l.waiting.Take(t)
	t.running = true
	l.running[t.img.Namespace]++
	l.busy[t.result()] = true
	return t
}

// release frees the slot of an image. If again is set, the image is queued again.
func (l *indexQueue) release(t *task, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.running = false
	if l.running[t.img.Namespace]--; l.running[t.img.Namespace] == 0 {
		delete(l.running, t.img.Namespace)
	}
	delete(l.busy, t.result())
	if again {
		l.waiting.Push(t)
		return
	}
	delete(l.tasks, idOf(t.img))
}

// keepScanners removes the queued images of all Scanners except these.
func (l *indexQueue) keepScanners(scanners []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Remove(func(t *task) bool {
		gone := !slices.Contains(scanners, t.img.Scanner)
		if gone {
			delete(l.tasks, idOf(t.img))
		}
		return gone
	})
}

// How long failures are remembered.
const (
	// failureTTL is how long a failure is returned after its Scanner first got it. It is shorter than the first retry of an ImageScan,
	// so that it never suppresses a retry.
	failureTTL = 50 * time.Second
	// undeliveredTTL is how long a failure is kept for a Scanner that has not got it yet. It is also the delay before an outdated image is
	// indexed again after a failure.
	undeliveredTTL = time.Hour
)
