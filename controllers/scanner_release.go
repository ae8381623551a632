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
	// engineReleaseTimeout is how long the release of what an engine holds elsewhere is retried. An unavailable engine must not block the deletion
	// of a namespace for longer.
	engineReleaseTimeout = 5 * time.Minute
	// engineReleaseAttemptTimeout bounds one attempt, since it blocks the reconciliation of other Scanners.
	engineReleaseAttemptTimeout = 5 * time.Second
	// engineReleaseRetryDelay is the delay after a failed attempt.
	engineReleaseRetryDelay = 30 * time.Second
)

// heldEngine is an engine that may hold something elsewhere on a Scanner's behalf, for example manifests in Clair.
type heldEngine struct {
	backend.ExternalStateHolder
	engine string
	// leftAt is when the Scanner stopped using the engine; zero while it uses it.
	leftAt time.Time
}

// heldEngines has the engines that may hold something on behalf of each Scanner, by the engine's name. A Scanner itself names only its current
// engine. Former engines are unknown after a restart: what they hold is released when another Scanner stops using the same engine. The zero
// value is ready for use. It is safe for concurrent use.
type heldEngines struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[string]heldEngine
}

// update returns a Scanner's current and former engines, ordered by name. current is nil if the Scanner has no engine. It sets leftAt of each
// former engine, and of all engines if the Scanner is being deleted.
func (h *heldEngines) update(scanner v1alpha1.GenericScanner, current backend.Backend, now time.Time) []heldEngine {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := client.ObjectKeyFromObject(scanner)
	if h.of == nil {
		h.of = map[types.NamespacedName]map[string]heldEngine{}
	}
	if h.of[name] == nil {
		h.of[name] = map[string]heldEngine{}
	}
	own, engine := h.of[name], ""
	if holder, ok := current.(backend.ExternalStateHolder); ok {
		engine = current.Engine()
		own[engine] = heldEngine{ExternalStateHolder: holder, engine: engine}
	}
	for known, one := range own {
		switch {
		case !scanner.GetDeletionTimestamp().IsZero():
			one.leftAt = scanner.GetDeletionTimestamp().Time
		case known != engine && one.leftAt.IsZero():
			one.leftAt = now
		}
		own[known] = one
	}
	return slices.SortedFunc(maps.Values(own), func(a, b heldEngine) int { return cmp.Compare(a.engine, b.engine) })
}

// drop removes one engine of a Scanner; an empty name removes all.
func (h *heldEngines) drop(scanner types.NamespacedName, engine string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of[scanner], engine)
	if engine == "" || len(h.of[scanner]) == 0 {
		delete(h.of, scanner)
	}
}

// holdsManifests reports whether an engine holds something on the Scanner's behalf. It releases what an engine holds if the Scanner is
// being deleted or has another engine. A positive wait is the requeue delay.
func (r *ScannerReconciler) holdsManifests(ctx context.Context, scanner v1alpha1.GenericScanner) (held bool, wait time.Duration, err error) {
	if !scanner.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(scanner, v1alpha1.FinalizerManifests) {
		return false, 0, nil
	}
	for _, one := range r.holdings.update(scanner, r.Backends.For(scanner), r.Clock.Now()) {
		if one.leftAt.IsZero() {
			current, err := one.Holds(ctx, string(scanner.GetUID()))
			if err != nil {
				return false, 0, err
			}
			held = held || current
			continue
		}
		if again := r.releaseEngine(ctx, scanner, one); again > 0 {
			held, wait = true, min(cmp.Or(wait, again), again)
			continue
		}
		r.holdings.drop(client.ObjectKeyFromObject(scanner), one.engine)
	}
	return held, wait, nil
}

// releaseEngine tries once to release what an engine holds on the Scanner's behalf. It returns the delay until the next attempt; 0 if it succeeded
// or engineReleaseTimeout is over.
func (r *ScannerReconciler) releaseEngine(ctx context.Context, scanner v1alpha1.GenericScanner, one heldEngine) time.Duration {
	left := engineReleaseTimeout - r.Clock.Since(one.leftAt)
	bounded, cancel := context.WithTimeout(ctx, engineReleaseAttemptTimeout)
	defer cancel()
	wait, message, err := one.Release(bounded, string(scanner.GetUID()))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Undoing what an engine keeps elsewhere", "engine", one.engine)
		wait, message = engineReleaseRetryDelay, cmp.Or(message, err.Error())
	}
	if wait <= 0 {
		return 0
	}
	if left > 0 {
		return min(wait, left)
	}
	r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, v1alpha1.ReasonLeftBehind, "Release", "%s", truncate(fmt.Sprintf(
		"given up after %s: what the operator had made in %s for images that only this Scanner has stays there for now: %s", engineReleaseTimeout, one.engine, message),
		v1alpha1.MaxMessageBytes))
	return 0
}
