package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

const (
	// undoPatience is how long it is tried to undo what an engine keeps elsewhere: no namespace waits to go for longer
	// because an engine is down.
	undoPatience = 5 * time.Minute
	// undoTimeout bounds one attempt, for which other Scanners wait.
	undoTimeout = 5 * time.Second
	// undoRetry is when to try again what failed.
	undoRetry = 30 * time.Second
)

// holding is an engine that may keep something elsewhere on a Scanner's behalf.
type holding struct {
	backend.Holder
	engine string
	// leftAt is when the Scanner stopped using it; zero while it does.
	leftAt time.Time
}

// holdings remembers which engines may keep something on behalf of which Scanner, by the engine's name: a Scanner itself
// says only which one it has now. After a restart, those that it had before are not known any more: what they keep is
// undone when another Scanner that has the same engine goes. The zero value is ready for use.
type holdings struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[string]holding
}

// look returns what a Scanner has, and had, in the order of the engines' names. current is the engine that it has now; nil
// if there is none. What it has no more is marked so.
func (h *holdings) look(scanner *v1alpha1.Scanner, current backend.Backend, now time.Time) []holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := client.ObjectKeyFromObject(scanner)
	if h.of == nil {
		h.of = map[types.NamespacedName]map[string]holding{}
	}
	if h.of[name] == nil {
		h.of[name] = map[string]holding{}
	}
	own, engine := h.of[name], ""
	if holder, ok := current.(backend.Holder); ok {
		engine = current.Engine()
		own[engine] = holding{Holder: holder, engine: engine}
	}
	for known, one := range own {
		switch {
		case !scanner.DeletionTimestamp.IsZero():
			one.leftAt = scanner.DeletionTimestamp.Time
		case known != engine && one.leftAt.IsZero():
			one.leftAt = now
		}
		own[known] = one
	}
	return slices.SortedFunc(maps.Values(own), func(a, b holding) int { return cmp.Compare(a.engine, b.engine) })
}

// drop forgets one engine of a Scanner, or all with an empty name.
func (h *holdings) drop(scanner types.NamespacedName, engine string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of[scanner], engine)
	if engine == "" || len(h.of[scanner]) == 0 {
		delete(h.of, scanner)
	}
}

// holdsManifests says whether an engine keeps something elsewhere on the Scanner's behalf, and has it undone if the
// Scanner goes or has another engine now. A positive duration is when to look again.
func (r *ScannerReconciler) holdsManifests(ctx context.Context, scanner *v1alpha1.Scanner) (held bool, wait time.Duration, err error) {
	if !scanner.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(scanner, manifestsFinalizer) {
		return false, 0, nil
	}
	for _, one := range r.holdings.look(scanner, r.Backends.For(scanner), r.Clock.Now()) {
		if one.leftAt.IsZero() {
			current, err := one.Holds(ctx, string(scanner.UID))
			if err != nil {
				return false, 0, err
			}
			held = held || current
			continue
		}
		if again := r.undo(ctx, scanner, one); again > 0 {
			held, wait = true, min(cmp.Or(wait, again), again)
			continue
		}
		r.holdings.drop(client.ObjectKeyFromObject(scanner), one.engine)
	}
	return held, wait, nil
}

// undo tries once to have undone what an engine keeps on the Scanner's behalf. It returns when to try again; 0 if there is
// nothing left to try.
func (r *ScannerReconciler) undo(ctx context.Context, scanner *v1alpha1.Scanner, one holding) time.Duration {
	left := undoPatience - r.Clock.Since(one.leftAt)
	bounded, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	wait, message, err := one.Release(bounded, string(scanner.UID))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Undoing what an engine keeps elsewhere", "engine", one.engine)
		wait, message = undoRetry, cmp.Or(message, err.Error())
	}
	if wait <= 0 {
		return 0
	}
	if left > 0 {
		return min(wait, left)
	}
	r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, v1alpha1.ReasonLeftBehind, "Release", "%s", truncate(fmt.Sprintf(
		"given up after %s: what the operator had made in %s for images that only this Scanner has stays there for now: %s", undoPatience, one.engine, message),
		v1alpha1.MaxMessageBytes))
	return 0
}
