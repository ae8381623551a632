package controllers

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// scriptedEngine is an engine whose results a test sets.
type scriptedEngine struct {
	index, match func(backend.Image) (backend.Progress, error)
	version      store.DataVersion
	versionErr   error
	problem      string
	// name is "scripted" if empty.
	name string
	// gaps is the result of NotCovered.
	gaps []string
	// indexCalls has the image of each call of StartCatalog.
	indexCalls []backend.Image
	// matchCalls has the image of each call of RequestMatch.
	matchCalls []backend.Image
}

// calls has the image of each call of StartCatalog, and then of each call of RequestMatch.
func (s *scriptedEngine) calls() []backend.Image { return slices.Concat(s.indexCalls, s.matchCalls) }

func (s *scriptedEngine) Engine() string { return cmp.Or(s.name, "scripted") }

func (s *scriptedEngine) NotCovered() []string { return s.gaps }

func (s *scriptedEngine) StartCatalog(_ context.Context, img backend.Image) (backend.Progress, error) {
	s.indexCalls = append(s.indexCalls, img)
	return s.index(img)
}

func (s *scriptedEngine) RequestMatch(_ context.Context, img backend.Image) (backend.Progress, error) {
	s.matchCalls = append(s.matchCalls, img)
	return s.match(img)
}

func (s *scriptedEngine) DataVersion(context.Context) (store.DataVersion, error) {
	return s.version, s.versionErr
}

func (s *scriptedEngine) DataProblem(store.DataVersion) string { return s.problem }

func (s *scriptedEngine) MaxDataAge() time.Duration { return 120 * time.Hour }

// fixedResult returns a function for scripted.index or scripted.match with a fixed result.
func fixedResult(progress backend.Progress, err error) func(backend.Image) (backend.Progress, error) {
	return func(backend.Image) (backend.Progress, error) { return progress, err }
}

// unit has the reconcilers with a fake client, a real store, and a clock that the test moves.
type unit struct {
	t      *testing.T
	client client.WithWatch
	store  *store.Store
	clock  *clocktesting.FakePassiveClock
	engine *scriptedEngine
	events *events.FakeRecorder
	// writes counts the status patches.
	writes int

	exceptions active.Source
	inventory  *inventory.Inventory

	pods     *PodReconciler
	scans    *ImageScanReconciler
	scanners *ScannerReconciler
}

func newUnit(t *testing.T, objects ...client.Object) *unit {
	t.Helper()
	u := &unit{t: t, clock: clocktesting.NewFakePassiveClock(noon), events: events.NewFakeRecorder(1000)}
	builder := fakeclient.NewClientBuilder().WithScheme(newTestScheme()).
		WithStatusSubresource(&v1alpha1.Scanner{}, &v1alpha1.ClusterScanner{}, &v1alpha1.ImageScan{}, &v1alpha1.VulnerabilityException{}, &v1alpha1.ClusterVulnerabilityException{}).
		WithObjects(node(nodeAMD, "amd64"), node(nodeARM, "arm64")).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			u.writes++
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		}})
	u.must(inventory.SetupIndexes(t.Context(), inventorytest.Indexer{ClientBuilder: builder}))
	u.client = builder.Build()
	var err error
	u.store, err = storetest.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), u.clock.Now, store.OpenSQLite)
	u.must(err)
	t.Cleanup(func() { _ = u.store.Close() })
	u.engine = &scriptedEngine{
		index:   fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil),
		match:   fixedResult(backend.Waiting(v1alpha1.ReasonMatching, "", time.Minute), nil),
		version: store.DataVersion{Version: "v1", Built: noon.Add(-time.Hour), Tool: "scripted 1"},
	}
	engines := backend.Choosers{v1alpha1.BackendGrype: backend.Always(u.engine)}
	u.exceptions = active.Source{Reader: u.client, Clock: u.clock}
	u.inventory = &inventory.Inventory{Client: u.client, Store: u.store, Clock: u.clock}
	u.scans = &ImageScanReconciler{Client: u.client, Reader: u.client, Store: u.store, Backends: engines, Clock: u.clock, Events: u.events, Wakeups: &Wakeups{}, Exceptions: u.exceptions, Inventory: u.inventory}
	u.pods = &PodReconciler{Client: u.client, Inventory: u.inventory, Backends: engines, Clock: u.clock, Events: u.events}
	u.scanners = &ScannerReconciler{Client: u.client, Reader: u.client, Store: u.store, Backends: engines, Clock: u.clock, Events: u.events, Wakeups: &Wakeups{}, Exceptions: u.exceptions, Suppressed: &SuppressionCounts{}, Inventory: u.inventory, StoreDurable: true}
	return u
}

func (u *unit) must(err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
}

func (u *unit) advanceClock(d time.Duration) { u.clock.SetTime(u.clock.Now().Add(d)) }

// subjectOf identifies an image's report in the store.
func subjectOf(reference string, scope store.Scope) store.Subject {
	return store.Subject{PlatformDigest: digest("platform of " + keyOfImage(reference).Digest), Scope: scope, Engine: "scripted"}
}

// saveCatalog stores a catalog of an image.
func (u *unit) saveCatalog(reference string, scope store.Scope) {
	u.t.Helper()
	u.must(u.store.SaveCatalog(u.t.Context(), store.Catalog{
		Engine: u.engine.Engine(), Key: keyOfImage(reference), Scope: scope, PlatformDigest: subjectOf(reference, scope).PlatformDigest,
		Packages: 7, Tool: "syft", CatalogedAt: u.clock.Now(),
	}, map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(nil), store.ArtifactMatchInput: bytes.NewReader(nil)}))
}

// saveReport stores a catalog and a report of an image with these findings.
func (u *unit) saveReport(reference string, findings ...finding.Finding) {
	u.t.Helper()
	u.saveCatalog(reference, store.Cluster)
	_, err := u.store.SaveReport(u.t.Context(), store.Report{
		Subject: subjectOf(reference, store.Cluster), DataVersion: u.engine.version.Version, MatchedAt: u.clock.Now(), Findings: findings,
	}, "")
	u.must(err)
}

// saveUsedImage stores a report of an image, and records that the Scanner has the image.
func (u *unit) saveUsedImage(reference string, findings ...finding.Finding) {
	u.t.Helper()
	u.saveReport(reference, findings...)
	u.must(u.store.SetUsage(u.t.Context(), store.ImageUsage{
		Scanner: string(theScanner().UID), Namespace: fixtureNamespace, Key: keyOfImage(reference), Scope: store.Cluster, Engine: u.engine.Engine(),
	}))
}

// reconcile reconciles an ImageScan once. It returns the ImageScan, nil if it is gone, and the requeue delay.
func (u *unit) reconcile(scan *v1alpha1.ImageScan) (*v1alpha1.ImageScan, time.Duration) {
	u.t.Helper()
	result, err := u.scans.Reconcile(u.t.Context(), requestFor(scan))
	u.must(err)
	return u.read(scan), result.RequeueAfter
}

func (u *unit) read(scan *v1alpha1.ImageScan) *v1alpha1.ImageScan {
	u.t.Helper()
	var after v1alpha1.ImageScan
	err := u.client.Get(u.t.Context(), client.ObjectKeyFromObject(scan), &after)
	if client.IgnoreNotFound(err) != nil {
		u.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &after
}

func requestFor(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
}

// reconcileScanner reconciles the Scanner once and returns it.
func (u *unit) reconcileScanner() *v1alpha1.Scanner {
	u.t.Helper()
	_, err := u.scanners.Reconcile(u.t.Context(), requestFor(theScanner()))
	u.must(err)
	var scanner v1alpha1.Scanner
	u.must(u.client.Get(u.t.Context(), client.ObjectKeyFromObject(theScanner()), &scanner))
	return &scanner
}

// takeEvents returns the events since the last call.
func (u *unit) takeEvents() (said []string) {
	for {
		select {
		case event := <-u.events.Events:
			said = append(said, event)
		default:
			return said
		}
	}
}

// conditionsOf formats each condition as type, status and reason.
func conditionsOf(conditions []metav1.Condition) (all []string) {
	for _, c := range conditions {
		all = append(all, c.Type+"="+string(c.Status)+" "+c.Reason)
	}
	return all
}

// update updates an object in the cluster.
func (u *unit) update(o client.Object) {
	u.t.Helper()
	u.must(u.client.Update(u.t.Context(), o))
}

func vulnerability(id string, severity finding.Severity) finding.Finding {
	return finding.Finding{
		ID: id, Severity: severity, FixState: finding.FixStateFixed, FixVersions: []string{"3.0.2"},
		Package: finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb", PURL: "pkg:deb/debian/openssl@3.0.1"},
	}
}
