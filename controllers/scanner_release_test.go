package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// holdingEngine is an engine that implements backend.ExternalStateHolder.
type holdingEngine struct {
	*scriptedEngine
	kept       bool
	holdsErr   error
	releaseErr error
	// unreachable makes Release fail to remove anything; asked counts the calls of Release.
	unreachable bool
	asked       int
}

func (k *holdingEngine) Holds(context.Context, string) (bool, error) { return k.kept, k.holdsErr }

func (k *holdingEngine) Release(ctx context.Context, scanner string) (time.Duration, string, error) {
	if _, bounded := ctx.Deadline(); !bounded || scanner != "scanner-uid" {
		return 0, "", errors.New("asked without a deadline, or for another Scanner")
	}
	k.asked++
	if k.releaseErr != nil || k.unreachable {
		return time.Minute, "it cannot be reached", k.releaseErr
	}
	k.kept = false
	return 0, "", nil
}

const clairA, clairB = "https://a.example.com", "https://b.example.com"

// newHoldingEngines returns a unit with two Clairs that can hold something, and a Scanner that uses the first one.
func newHoldingEngines(t *testing.T, changes ...func(*v1alpha1.Scanner)) (u *unit, scanner *v1alpha1.Scanner, first, second *holdingEngine) {
	t.Helper()
	scanner = theScanner(append(changes, withClair(clairA))...)
	u = newUnit(t, scanner)
	first, second = &holdingEngine{scriptedEngine: u.engine}, &holdingEngine{scriptedEngine: &scriptedEngine{version: u.engine.version}}
	first.name, second.name = "clair "+clairA, "clair "+clairB
	u.scanners.Backends = backend.Choosers{v1alpha1.BackendClair: func(s v1alpha1.GenericScanner) backend.Backend {
		if s.Settings().Backend.Clair.URL == clairB {
			return second
		}
		return first
	}, v1alpha1.BackendGrype: backend.Always(&scriptedEngine{version: u.engine.version})}
	return u, scanner, first, second
}

// reconcileAndRead reconciles the Scanner. It returns the Scanner, nil if it is gone, and the requeue delay.
func (u *unit) reconcileAndRead(scanner *v1alpha1.Scanner) (*v1alpha1.Scanner, time.Duration) {
	u.t.Helper()
	result, err := u.scanners.Reconcile(u.t.Context(), requestFor(scanner))
	u.must(err)
	var after v1alpha1.Scanner
	if err := u.client.Get(u.t.Context(), client.ObjectKeyFromObject(scanner), &after); err != nil {
		u.must(client.IgnoreNotFound(err))
		return nil, result.RequeueAfter
	}
	return &after, result.RequeueAfter
}

// deletes deletes a Scanner and sets the clock to the deletion timestamp, which comes from the fake API server.
func (u *unit) deletes(scanner *v1alpha1.Scanner) {
	u.t.Helper()
	u.must(u.client.Delete(u.t.Context(), scanner))
	var going v1alpha1.Scanner
	u.must(u.client.Get(u.t.Context(), client.ObjectKeyFromObject(scanner), &going))
	u.clock.SetTime(going.DeletionTimestamp.Time)
}

// TestManifestsFinalizer: a Scanner has the finalizer exactly while an engine holds something on its behalf. Other finalizers stay.
func TestManifestsFinalizer(t *testing.T) {
	u, scanner, engine, _ := newHoldingEngines(t, func(s *v1alpha1.Scanner) { s.Finalizers = []string{foreign} })
	for _, kept := range []bool{false, true, true, false} {
		engine.kept = kept
		want := []string{foreign}
		if kept {
			want = append(want, v1alpha1.FinalizerManifests)
		}
		if after, _ := u.reconcileAndRead(scanner); !slices.Equal(after.Finalizers, want) {
			t.Errorf("the engine keeps something: %v, and the finalizers are %q", kept, after.Finalizers)
		}
	}
	if engine.asked != 0 {
		t.Error("something is undone for a Scanner that stays")
	}
}

// TestManifestsAreReleased: a deleted Scanner is gone as soon as its engine holds nothing for it.
func TestManifestsAreReleased(t *testing.T) {
	u, scanner, engine, _ := newHoldingEngines(t)
	engine.kept, engine.unreachable = true, true
	u.reconcileAndRead(scanner)
	u.deletes(scanner)
	if after, again := u.reconcileAndRead(scanner); after == nil || again != time.Minute {
		t.Fatalf("it is %v and looked at after %s, want it to wait for a minute, as the engine says", after, again)
	}
	engine.releaseErr = errors.New("the store is busy")
	if after, again := u.reconcileAndRead(scanner); after == nil || again != engineReleaseRetryDelay {
		t.Fatalf("with an error it is %v and looked at after %s, want %s", after, again, engineReleaseRetryDelay)
	}
	u.takeEvents()
	engine.releaseErr, engine.unreachable = nil, false
	if after, _ := u.reconcileAndRead(scanner); after != nil || engine.kept {
		t.Errorf("it is still there: %v, and something is kept: %v", after, engine.kept)
	}
	if events := u.takeEvents(); len(events) != 0 {
		t.Errorf("events %q about what went well", events)
	}
}

// TestEngineReleaseTimeout: an unavailable engine blocks a deletion for at most engineReleaseTimeout. An event reports what is left behind.
func TestEngineReleaseTimeout(t *testing.T) {
	for name, restart := range map[string]bool{"one manager": false, "restarted meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			u, scanner, engine, _ := newHoldingEngines(t)
			engine.kept, engine.unreachable = true, true
			u.reconcileAndRead(scanner)
			u.deletes(scanner)
			u.advanceClock(engineReleaseTimeout - 20*time.Second)
			if restart {
				u.scanners.holdings = heldEngines{}
			}
			u.takeEvents()
			if after, again := u.reconcileAndRead(scanner); after == nil || again != 20*time.Second {
				t.Fatalf("before its time it is %v and looked at after %s, want it to wait until its time is over", after, again)
			}
			u.advanceClock(20 * time.Second)
			if after, _ := u.reconcileAndRead(scanner); after != nil {
				t.Fatal("after its time it is still there")
			}
			want := "Warning LeftBehind given up after 5m0s: what the operator had made in clair https://a.example.com"
			if events := u.takeEvents(); len(events) != 1 || !strings.HasPrefix(events[0], want) || !strings.HasSuffix(events[0], "it cannot be reached") {
				t.Errorf("events %q, want one that begins with %q and says why", events, want)
			}
		})
	}
}

// TestEngineReleaseAfterChange: what a Scanner's former engine holds is released, for at most engineReleaseTimeout, while the Scanner works with its new
// one.
func TestEngineReleaseAfterChange(t *testing.T) {
	for name, to := range map[string]func(*v1alpha1.Scanner){
		"another URL":    withClair(clairB),
		"another engine": func(s *v1alpha1.Scanner) { s.Spec.Backend = v1alpha1.Backend{Type: v1alpha1.BackendGrype} },
	} {
		for end, reached := range map[string]bool{"undone": true, "given up": false} {
			t.Run(name+", "+end, func(t *testing.T) {
				u, scanner, first, second := newHoldingEngines(t)
				first.kept, first.unreachable = true, true
				scanner, _ = u.reconcileAndRead(scanner)
				to(scanner)
				u.update(scanner)
				after, again := u.reconcileAndRead(scanner)
				if !slices.Contains(after.Finalizers, v1alpha1.FinalizerManifests) || first.asked != 1 || again > time.Minute {
					t.Fatalf("finalizers %q, asked %d times, looked at again after %s", after.Finalizers, first.asked, again)
				}
				u.takeEvents()
				first.unreachable = !reached
				u.advanceClock(engineReleaseTimeout)
				if after, again = u.reconcileAndRead(scanner); len(after.Finalizers) != 0 || again != statusInterval {
					t.Errorf("finalizers %q are left, it is looked at after %s", after.Finalizers, again)
				}
				if events := strings.Join(u.takeEvents(), "\n"); strings.Contains(events, v1alpha1.ReasonLeftBehind) == reached {
					t.Errorf("events: %s", events)
				}
				u.reconcileAndRead(scanner)
				if second.asked != 0 || first.asked != 2 {
					t.Errorf("the former engine was asked %d times and the present one %d times, want 2 and 0", first.asked, second.asked)
				}
			})
		}
	}
}

// TestHoldsError: if an engine cannot report whether it holds something, the finalizer stays as it is, and the finalizer for pods is
// still handled.
func TestHoldsError(t *testing.T) {
	u, scanner, engine, _ := newHoldingEngines(t, holdingPods, func(s *v1alpha1.Scanner) { s.Finalizers = []string{v1alpha1.FinalizerManifests} })
	engine.holdsErr = errors.New("the store is busy")
	if _, err := u.scanners.Reconcile(t.Context(), requestFor(scanner)); !errors.Is(err, engine.holdsErr) {
		t.Errorf("the error is %v, want %v", err, engine.holdsErr)
	}
	var after v1alpha1.Scanner
	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(scanner), &after))
	if want := []string{v1alpha1.FinalizerManifests, v1alpha1.FinalizerPods}; !slices.Equal(after.Finalizers, want) {
		t.Errorf("finalizers %q, want %q", after.Finalizers, want)
	}
}

// TestScannerWithoutItsEngine: a deleted Scanner is not held if the operator runs without its engine.
func TestScannerWithoutItsEngine(t *testing.T) {
	u, scanner, _, _ := newHoldingEngines(t, func(s *v1alpha1.Scanner) { s.Finalizers = []string{v1alpha1.FinalizerManifests} })
	u.scanners.Backends = nil
	u.deletes(scanner)
	if after, _ := u.reconcileAndRead(scanner); after != nil {
		t.Errorf("it is still there, with the finalizers %q", after.Finalizers)
	}
}
