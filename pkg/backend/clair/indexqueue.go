package clair

import (
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
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

// indexKey identifies the result of indexing an image, which is the same for all Scanners.
type indexKey struct {
	key   image.Key
	scope store.Scope
}

// indexQueue is the fair queue of images to index with one Clair. It serves namespaces round-robin, and the images of a namespace first in,
// first out. A namespace with hundreds of images therefore delays the others by one turn at most.
type indexQueue struct {
	mu         sync.Mutex
	tasks      map[taskID]*task
	namespaces []*namespaceQueue
	running    map[string]int // by namespace
	busy       map[indexKey]bool
}

type namespaceQueue struct {
	namespace string
	waiting   []*task
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
	l.addWaiting(t)
	return false
}

// waiting returns the number of images without a slot.
func (l *indexQueue) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, turn := range l.namespaces {
		n += len(turn.waiting)
	}
	return n
}

func (l *indexQueue) addWaiting(t *task) {
	at := slices.IndexFunc(l.namespaces, func(t2 *namespaceQueue) bool { return t2.namespace == t.img.Namespace })
	if at < 0 {
		at = len(l.namespaces)
		l.namespaces = append(l.namespaces, &namespaceQueue{namespace: t.img.Namespace})
	}
	l.namespaces[at].waiting = append(l.namespaces[at].waiting, t)
}

// dequeue gives a slot to the next ready image, or returns nil. It skips namespaces with limit running images, and images that are being
// indexed already for the same credential scope.
func (l *indexQueue) dequeue(limit int, ready func(*task) bool) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, turn := range l.namespaces {
		if l.running[turn.namespace] >= limit {
			continue
		}
		next := slices.IndexFunc(turn.waiting, func(t *task) bool { return !l.busy[indexKey{t.img.Key, t.img.Scope}] && ready(t) })
		if next < 0 {
			continue
		}
		t := turn.waiting[next]
		turn.waiting = slices.Delete(turn.waiting, next, next+1)
		l.namespaces = slices.Delete(l.namespaces, at, at+1)
		if len(turn.waiting) > 0 {
			l.namespaces = append(l.namespaces, turn)
		}
		t.running = true
		l.running[turn.namespace]++
		l.busy[indexKey{t.img.Key, t.img.Scope}] = true
		return t
	}
	return nil
}

// release frees the slot of an image. If again is set, the image is queued again.
func (l *indexQueue) release(t *task, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.running = false
	if l.running[t.img.Namespace]--; l.running[t.img.Namespace] == 0 {
		delete(l.running, t.img.Namespace)
	}
	delete(l.busy, indexKey{t.img.Key, t.img.Scope})
	if again {
		l.addWaiting(t)
		return
	}
	delete(l.tasks, idOf(t.img))
}

// keepScanners removes the queued images of all Scanners except these.
func (l *indexQueue) keepScanners(scanners []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := func(t *task) bool { return !slices.Contains(scanners, t.img.Scanner) }
	for _, turn := range l.namespaces {
		for _, t := range turn.waiting {
			if gone(t) {
				delete(l.tasks, idOf(t.img))
			}
		}
		turn.waiting = slices.DeleteFunc(turn.waiting, gone)
	}
	l.namespaces = slices.DeleteFunc(l.namespaces, func(t *namespaceQueue) bool { return len(t.waiting) == 0 })
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
