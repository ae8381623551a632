package clair

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

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

// listed identifies the result of indexing an image, which is the same for all Scanners.
type listed struct {
	key   image.Key
	scope store.Scope
}

// line is the fair queue of images to index with one Clair. It serves namespaces round-robin, and the images of a namespace first in,
// first out. A namespace with hundreds of images therefore delays the others by one turn at most.
type line struct {
	mu      sync.Mutex
	tasks   map[taskID]*task
	turns   []*turn
	running map[string]int // by namespace
	busy    map[listed]bool
}

type turn struct {
	namespace string
	waiting   []*task
}

// enter adds an image to the queue unless it is queued, and reports whether it is being indexed. A queued image takes over the new details.
func (l *line) enter(img backend.Image, over *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.tasks[idOf(img)]; known != nil {
		if !known.running {
			known.img, known.link = img, over
		}
		return known.running
	}
	if l.tasks == nil {
		l.tasks, l.running, l.busy = map[taskID]*task{}, map[string]int{}, map[listed]bool{}
	}
	t := &task{img: img, link: over}
	l.tasks[idOf(img)] = t
	l.wait(t)
	return false
}

// waiting returns the number of images without a slot.
func (l *line) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, turn := range l.turns {
		n += len(turn.waiting)
	}
	return n
}

func (l *line) wait(t *task) {
	at := slices.IndexFunc(l.turns, func(t2 *turn) bool { return t2.namespace == t.img.Namespace })
	if at < 0 {
		at = len(l.turns)
		l.turns = append(l.turns, &turn{namespace: t.img.Namespace})
	}
	l.turns[at].waiting = append(l.turns[at].waiting, t)
}

// take gives a slot to the next ready image, or returns nil. It skips namespaces with limit running images, and images that are being
// indexed already for the same credential scope.
func (l *line) take(limit int, ready func(*task) bool) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, turn := range l.turns {
		if l.running[turn.namespace] >= limit {
			continue
		}
		next := slices.IndexFunc(turn.waiting, func(t *task) bool { return !l.busy[listed{t.img.Key, t.img.Scope}] && ready(t) })
		if next < 0 {
			continue
		}
		t := turn.waiting[next]
		turn.waiting = slices.Delete(turn.waiting, next, next+1)
		l.turns = slices.Delete(l.turns, at, at+1)
		if len(turn.waiting) > 0 {
			l.turns = append(l.turns, turn)
		}
		t.running = true
		l.running[turn.namespace]++
		l.busy[listed{t.img.Key, t.img.Scope}] = true
		return t
	}
	return nil
}

// leave frees the slot of an image. If again is set, the image is queued again.
func (l *line) leave(t *task, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.running = false
	if l.running[t.img.Namespace]--; l.running[t.img.Namespace] == 0 {
		delete(l.running, t.img.Namespace)
	}
	delete(l.busy, listed{t.img.Key, t.img.Scope})
	if again {
		l.wait(t)
		return
	}
	delete(l.tasks, idOf(t.img))
}

// keep removes the queued images of all Scanners except these.
func (l *line) keep(scanners []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := func(t *task) bool { return !slices.Contains(scanners, t.img.Scanner) }
	for _, turn := range l.turns {
		for _, t := range turn.waiting {
			if gone(t) {
				delete(l.tasks, idOf(t.img))
			}
		}
		turn.waiting = slices.DeleteFunc(turn.waiting, gone)
	}
	l.turns = slices.DeleteFunc(l.turns, func(t *turn) bool { return len(t.waiting) == 0 })
}

// How long failures are remembered.
const (
	// failureMemory is how long a failure is returned after its Scanner first got it. It is shorter than the first retry of an ImageScan,
	// so that it never suppresses a retry.
	failureMemory = 50 * time.Second
	// unheardMemory is how long a failure is kept for a Scanner that has not got it yet. It is also the delay before an outdated image is
	// indexed again after a failure.
	unheardMemory = time.Hour
)

// failures remembers why images could not be indexed, until shortly after their Scanners got the failure.
type failures struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	known map[taskID]rememberedFailure
}

type rememberedFailure struct {
	failure *backend.Failure
	until   time.Time
}

func (f *failures) note(id taskID, failure *backend.Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	if f.known == nil {
		f.known = map[taskID]rememberedFailure{}
	}
	f.known[id] = rememberedFailure{failure: failure, until: f.clock.Now().Add(unheardMemory)}
}

// take returns the failure to its Scanner and starts failureMemory; nil if there is none.
func (f *failures) take(id taskID) *backend.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	known, found := f.known[id]
	if !found {
		return nil
	}
	if heard := f.clock.Now().Add(failureMemory); heard.Before(known.until) {
		known.until = heard
		f.known[id] = known
	}
	return known.failure
}

// peek returns the failure without starting failureMemory; nil if there is none.
func (f *failures) peek(id taskID) *backend.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	return f.known[id].failure
}

func (f *failures) drop() {
	now := f.clock.Now()
	for id, known := range f.known {
		if !now.Before(known.until) {
			delete(f.known, id)
		}
	}
}
