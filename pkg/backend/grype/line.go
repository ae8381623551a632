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

// callPatience is how long an image that was called may take to come: much more than a reconciliation takes.
const callPatience = 20 * time.Second

// places are those for catalog Jobs.
type places struct {
	free int
	// running counts Jobs by the namespace of their Scanner, wherever they run, and limit is the most of one namespace:
	// Scanners are made by whoever likes, namespaces are given out.
	running map[string]int
	limit   int
}

// places counts the Jobs that live: those that have ended take none.
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

// waitingLine holds the images that wait for a place. Namespaces take turns, in each its Scanners do, and the images of
// one come in the order in which they asked: who has hundreds of them, of images or of Scanners, keeps no other
// namespace waiting for longer than its turn.
type waitingLine struct {
	mu sync.Mutex
	// turns are the Scanners with waiting images; the first is the next.
	turns []*turn
}

type turn struct {
	namespace, scanner string
	images             []waitingImage
}

type waitingImage struct {
	key   image.Key
	scope store.Scope
	// called is when it was told that there is a place; zero if it was not.
	called time.Time
}

// admit says whether an image may have a place now, which it must then take. Otherwise it waits in the line.
func (w *waitingLine) admit(img backend.Image, p places) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := w.enter(img)
	own.called = time.Time{} // it came
	if !slices.Contains(w.next(p), own) {
		return false
	}
	w.remove(img.Key, img.Scope)
	w.toEnd(img.Namespace, img.Scanner)
	return true
}

// enter gives an image its position in the line, unless it has one.
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

// next are those who are to have the free places: one image of each Scanner, then a second one of each, and so on, as far
// as the limit of their namespace goes.
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

// length is the number of images in the line.
func (w *waitingLine) length() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, turn := range w.turns {
		n += len(turn.images)
	}
	return n
}

// leave takes an image out of the line for all Scanners: it is cataloged, or a Job is on its way.
func (w *waitingLine) leave(key image.Key, scope store.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(key, scope)
}

// withdraw takes an image out of the line for its own Scanner alone, whose references, credentials or namespace keep it from being
// cataloged now: others that wait for it keep their place.
func (w *waitingLine) withdraw(img backend.Image) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeAll(func(t *turn, i waitingImage) bool {
		return t.scanner == img.Scanner && i.key == img.Key && i.scope == img.Scope
	})
}

// remove does so for whomever it waits: a Job for it serves all of them.
func (w *waitingLine) remove(key image.Key, scope store.Scope) {
	w.removeAll(func(_ *turn, i waitingImage) bool { return i.key == key && i.scope == scope })
}

func (w *waitingLine) removeAll(which func(*turn, waitingImage) bool) {
	for _, t := range w.turns {
		t.images = slices.DeleteFunc(t.images, func(i waitingImage) bool { return which(t, i) })
	}
	w.turns = slices.DeleteFunc(w.turns, func(t *turn) bool { return len(t.images) == 0 })
}

// toEnd has a namespace wait for its next turn, and in it the Scanner that had this one.
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

// dropAbsent removes the images that did not come when called. Those that still wait ask again by themselves, and wait
// behind the others.
func (w *waitingLine) dropAbsent(now time.Time) {
	w.removeAll(func(_ *turn, i waitingImage) bool { return !i.called.IsZero() && now.Sub(i.called) >= callPatience })
}

// call returns the digests of those whose turn it is and who were not called yet. Images that nobody
// wants any more, or not now, are passed over.
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

// callWaiting wakes those whose turn it is, as many as there are free places.
func (b *Backend) callWaiting(ctx context.Context) error {
	live, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	digests, err := b.line.call(b.places(live), b.Clock.Now(), func(key image.Key, scope store.Scope) (bool, error) {
		return b.Store.Wanted(ctx, Engine, key, scope)
	})
	for _, digest := range digests { // without the lock: whoever is woken asks for it
		b.Wake(ctx, digest)
	}
	return err
}
