package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// failingStore is a real store whose file or volume has a problem.
type failingStore struct {
	*store.Store
	problem error
	// unreadable makes reads fail too, not only writes.
	unreadable bool
}

func (a *failingStore) Health() error {
	if a.problem == nil {
		return nil
	}
	return fmt.Errorf("store /data/store.db: %w", a.problem)
}

func (a *failingStore) ReportAges(ctx context.Context, scanner, engine string) (map[store.NamespacedImage]store.ReportAge, error) {
	if a.problem != nil && a.unreadable {
		return nil, a.Health()
	}
	return a.Store.ReportAges(ctx, scanner, engine)
}

func (a *failingStore) SetUsage(ctx context.Context, u store.ImageUsage) error {
	return errors.Join(a.Health(), a.Store.SetUsage(ctx, u))
}

// storeProblems are the problems that a store can have: the error, whether reads fail, the reason that users see, and a part of the remedy.
var storeProblems = map[string]struct {
	problem    error
	unreadable bool
	reason     string
	wayOut     string
}{
	"VolumeFull":          {store.ErrVolumeFull, false, v1alpha1.ReasonVolumeFull, "enlarge it"},
	"VolumeReadOnly":      {store.ErrVolumeReadOnly, false, v1alpha1.ReasonVolumeReadOnly, "fsGroup"},
	"VolumeFailed":        {store.ErrVolumeFailed, true, v1alpha1.ReasonVolumeFailed, "check it"},
	"StoreCorrupt":        {store.ErrCorrupt, true, v1alpha1.ReasonStoreCorrupt, "move it away"},
	"StoreMovedAway":      {store.ErrMovedAway, false, v1alpha1.ReasonStoreMovedAway, "must start again"},
	"StoreUnavailable":    {store.ErrUnavailable, true, v1alpha1.ReasonStoreUnavailable, "network policies"},
	"StoreFull":           {store.ErrServerFull, false, v1alpha1.ReasonStoreFull, "enlarge it"},
	"TooManyConnections":  {store.ErrTooManyConnections, true, v1alpha1.ReasonTooManyConnections, "max_connections"},
	"StoreReadOnly":       {store.ErrServerReadOnly, false, v1alpha1.ReasonStoreReadOnly, "the primary"},
	"StorePermission":     {store.ErrServerPermission, true, v1alpha1.ReasonStorePermission, "store.dsnFile"},
	"StoreTooOld":         {store.ErrServerTooOld, true, v1alpha1.ReasonStoreTooOld, "upgrade"},
	"StoreWrongCollation": {store.ErrWrongCollation, true, v1alpha1.ReasonStoreWrongCollation, "UTF8"},
	"StorePacketTooSmall": {store.ErrPacketTooSmall, true, v1alpha1.ReasonStorePacketTooSmall, "max_allowed_packet"},
}

// TestStoreProblemConditions: for each problem of the store, the Scanner's conditions have the reason and the remedy, even if nothing can
// be written to the store. The last counts stay, and Ready is False. The conditions recover by themselves.
func TestStoreProblemConditions(t *testing.T) {
	for name, tt := range storeProblems {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, theScanner(), aPod(fixtureNamespace, "a", running("main", web)), scanOf(theScanner(), web, scanned))
			u.saveUsedImage(web, vulnerability("CVE-2026-0001", finding.High))
			before := u.reconcileScanner()
			if ready := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonScanned {
				t.Fatalf("before: Ready is %+v, want Scanned", ready)
			}
			u.takeEvents()
			ill := &failingStore{Store: u.store, problem: tt.problem, unreadable: tt.unreadable}
			u.scanners.Store, u.inventory.Store = ill, ill
			during := u.reconcileScanner()
			for _, kind := range []string{v1alpha1.ConditionStoreDurable, v1alpha1.ConditionReady} {
				c := meta.FindStatusCondition(during.Status.Conditions, kind)
				if c.Status != metav1.ConditionFalse || c.Reason != tt.reason || !strings.Contains(c.Message, tt.wayOut) {
					t.Errorf("%s is %s %s %q, want False %s and %q", kind, c.Status, c.Reason, c.Message, tt.reason, tt.wayOut)
				}
			}
			if !meta.IsStatusConditionTrue(during.Status.Conditions, v1alpha1.ConditionStalled) {
				t.Error("Stalled is not true, though somebody must do something")
			}
			if during.Status.Findings != before.Status.Findings || during.Status.Images != before.Status.Images {
				t.Errorf("findings %+v and images %+v, want those of before", during.Status.Findings, during.Status.Images)
			}
			if events := u.takeEvents(); !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "Warning "+tt.reason) }) {
				t.Errorf("events %q, want one with the reason %s", events, tt.reason)
			}
			ill.problem = nil
			if after := u.reconcileScanner(); !meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionStoreDurable) ||
				!meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionReady) {
				t.Errorf("afterwards: %v, want all well", conditionsOf(after.Status.Conditions))
			}
		})
	}
}

// TestStoreProblemWithoutEngine: a new Scanner whose engine is disabled has its conditions while nothing can be read from the store.
func TestStoreProblemWithoutEngine(t *testing.T) {
	u := newUnit(t, theScanner())
	ill := &failingStore{Store: u.store, problem: store.ErrVolumeFailed, unreadable: true}
	u.scanners.Store, u.inventory.Store, u.scanners.Backends = ill, ill, nil
	want := []string{"StoreDurable=False VolumeFailed", "Ready=False BackendDisabled", "Stalled=True BackendDisabled"}
	if got := conditionsOf(u.reconcileScanner().Status.Conditions); !slices.Equal(got, want) {
		t.Errorf("conditions %v, want %v", got, want)
	}
}

// TestImageScanWaitsForStore: nothing starts whose result could not be stored. An image without a result has the reason in its condition,
// and earlier results stay. The ImageScan is requeued after scan.StoreRetry.
func TestImageScanWaitsForStore(t *testing.T) {
	for name, tt := range storeProblems {
		t.Run(name, func(t *testing.T) {
			fresh, old := scanOf(theScanner(), web), scanOf(theScanner(), vulnerable, func(s *v1alpha1.ImageScan) {
				s.Status.Phase, s.Status.Findings = v1alpha1.PhaseScanned, &v1alpha1.FindingCounts{High: 1}
			})
			u := newUnit(t, theScanner(), aPod(fixtureNamespace, "a", running("main", web), running("old", vulnerable)), fresh, old)
			ill := &failingStore{Store: u.store, problem: tt.problem}
			u.scans.Store, u.inventory.Store = ill, ill
			after, wait := u.reconcile(fresh)
			ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
			if after.Status.Phase != v1alpha1.PhasePending || ready.Reason != tt.reason || !strings.Contains(ready.Message, tt.wayOut) || wait != scan.StoreRetry {
				t.Errorf("phase %s, Ready %s %q, again in %s; want Pending, %s with %q, and %s", after.Status.Phase, ready.Reason, ready.Message, wait, tt.reason, tt.wayOut, scan.StoreRetry)
			}
			if len(u.engine.indexCalls) != 0 {
				t.Errorf("the engine was asked about %d images, want none", len(u.engine.indexCalls))
			}
			if after, _ := u.reconcile(old); after.Status.Phase != v1alpha1.PhaseScanned {
				t.Errorf("an image that was scanned before is %s, want Scanned", after.Status.Phase)
			}
			ill.problem = nil
			if u.reconcile(fresh); len(u.engine.indexCalls) != 1 {
				t.Errorf("afterwards the engine was asked about %d images, want 1", len(u.engine.indexCalls))
			}
		})
	}
}

// TestStoreBackoff: a reconciler whose store fails is requeued with a fixed delay. Any other error is returned to the
// controller.
func TestStoreBackoff(t *testing.T) {
	other := errors.New("another fault")
	for name, tt := range map[string]struct {
		err, want error
		pause     time.Duration
	}{
		"none":        {nil, nil, time.Minute},
		"another":     {other, other, time.Minute},
		"volume full": {errors.Join(nil, fmt.Errorf("save: %w", store.ErrVolumeFull)), nil, scan.StoreRetry},
		"corrupt":     {fmt.Errorf("read: %w", store.ErrCorrupt), nil, scan.StoreRetry},
	} {
		inner := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{RequeueAfter: time.Minute}, tt.err
		})
		result, err := withStoreBackoff{inner}.Reconcile(t.Context(), ctrl.Request{})
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || result.RequeueAfter != tt.pause {
			t.Errorf("%s: %v and %v, want %s and %v", name, result.RequeueAfter, err, tt.pause, tt.want)
		}
	}
}

// TestOtherErrorsBesideStoreProblem: errors beside the store's problem are logged as errors. The store's problem alone is not logged as an
// error at each attempt.
func TestOtherErrorsBesideStoreProblem(t *testing.T) {
	fault := fmt.Errorf("store: save: %w: %w", store.ErrVolumeFull, errors.New("SQLITE_FULL"))
	other := errors.New("the webhook does not answer")
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"fault":                {fault, false},
		"fault, wrapped":       {fmt.Errorf("forget: %w", fault), false},
		"fault twice":          {errors.Join(fault, fmt.Errorf("forget: %w", fault)), false},
		"another too":          {errors.Join(fault, other), true},
		"another too, wrapped": {fmt.Errorf("both: %w", errors.Join(nil, other, fmt.Errorf("save: %w", fault))), true},
	} {
		var logged []string
		log := funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{})
		inner := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, tt.err })
		result, err := withStoreBackoff{inner}.Reconcile(ctrl.LoggerInto(t.Context(), log), ctrl.Request{})
		if err != nil || result.RequeueAfter != scan.StoreRetry {
			t.Errorf("%s: again in %s, %v, want %s", name, result.RequeueAfter, err, scan.StoreRetry)
		}
		if got := strings.Contains(strings.Join(logged, ""), other.Error()); got != tt.want || len(logged) > 1 {
			t.Errorf("%s: logged %q, want the other error: %t", name, logged, tt.want)
		}
	}
}

// TestScannerPodSelectorInvalid: the API server accepts a selector with an invalid requirement. The Scanner reports it instead of being
// ready without images.
func TestScannerPodSelectorInvalid(t *testing.T) {
	for name, tt := range map[string]struct {
		requirement metav1.LabelSelectorRequirement
		want        string
	}{
		"no such operator":  {metav1.LabelSelectorRequirement{Key: "app", Operator: "Like", Values: []string{"web"}}, `"Like" is not a valid label selector operator`},
		"values for Exists": {metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpExists, Values: []string{"web"}}, "values set must be empty"},
		"no values for In":  {metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn}, "values"},
		"an impossible key": {metav1.LabelSelectorRequirement{Key: "a b", Operator: metav1.LabelSelectorOpExists}, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, aPod(fixtureNamespace, "a", running("main", web)), theScanner(func(s *v1alpha1.Scanner) {
				s.Spec.PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{tt.requirement}}
			}))
			after := u.reconcileScanner()
			ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
			if ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonInvalidPodSelector ||
				!strings.HasPrefix(ready.Message, "spec.podSelector: ") || !strings.Contains(ready.Message, tt.want) {
				t.Errorf("Ready is %s %s %q, want False InvalidPodSelector, the field and %q", ready.Status, ready.Reason, ready.Message, tt.want)
			}
		})
	}
}
