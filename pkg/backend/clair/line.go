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

// taskID is an image as one Scanner has it: what goes wrong with its references and credentials is nobody else's trouble.
type taskID struct {
	scanner string
	key     image.Key
	scope   store.Scope
}

func idOf(img backend.Image) taskID {
	return taskID{scanner: img.Scanner, key: img.Key, scope: img.Scope}
}

// task is an image to index.
type task struct {
	img     backend.Image
	link    *link
	running bool
}

// listed is what an index gives: it is the same for all Scanners.
type listed struct {
	key   image.Key
	scope store.Scope
}

// line holds the images that wait to be indexed by one Clair. Namespaces take turns, and in each the images come in the
// order in which they asked: who has hundreds of them keeps no other namespace waiting for longer than its turn.
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

// enter gives an image a place in the line, unless it has one, and says whether it is being indexed. What was said of it
// last counts.
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

// waiting is the number of images that have no place yet.
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

// take gives a place to the next image that may have one: of those that are ready, and neither there in the same way
// already nor beyond what one namespace may have. Nil if there is none.
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

// leave frees a place. The image waits for another one if it is to be tried again.
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

// keep takes out what waits for other Scanners than these.
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

// Times for which failures are remembered.
const (
	// failureMemory is how long a failure answers for an image once somebody has heard of it: less than the first retry of
	// an ImageScan, so that it never suppresses one.
	failureMemory = 50 * time.Second
	// unheardMemory is how long it waits for somebody to hear of it, and how soon an image that is listed is tried again.
	unheardMemory = time.Hour
)

// failures remembers why images could not be indexed until their Scanners have heard of it.
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

// take returns a failure, which is to be heard of now; nil if there is none.
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

// peek returns a failure of which nobody is to hear.
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
