package history

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// fakeStore has the totals of each scanner by its UID. The totals of a ClusterScanner are those of the namespaces infra and new.
type fakeStore struct {
	totals   map[string]store.Totals
	failing  string // UID
	recorded int
	all      store.DailyCounts
	counts   map[string]store.DailyCounts
}

func (s *fakeStore) ScannerTotals(_ context.Context, scanner string, _ exception.Set) (store.Totals, error) {
	if scanner == s.failing {
		return store.Totals{}, errors.New("disk I/O error")
	}
	return s.totals[scanner], nil
}

func (s *fakeStore) NamespaceTotals(_ context.Context, scanner string, _ exception.Set) (store.Totals, map[string]store.Totals, error) {
	return s.totals[scanner], map[string]store.Totals{"infra": s.totals[scanner], "new": s.totals[scanner]}, nil
}

func (s *fakeStore) RecordDay(_ context.Context, all store.DailyCounts, namespaces map[string]store.DailyCounts) error {
	s.recorded, s.all, s.counts = s.recorded+1, all, namespaces
	return nil
}

type fakeInventory struct{}

func (fakeInventory) Namespaces(context.Context, v1alpha1.GenericScanner) (inventory.Namespaces, error) {
	return inventory.Namespaces{Covered: []string{"infra", "new"}}, nil
}

// TestRecord: the scanners of a namespace add up, and an image counts once. A namespace without any result, also of an earlier attempt, is not
// recorded, and neither is a day on which a scanner's findings cannot be read.
func TestRecord(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}
	}
	scan := func(namespace, name, digest string, phase v1alpha1.ImageScanPhase, change func(*v1alpha1.ImageScan)) client.Object {
		s := &v1alpha1.ImageScan{ObjectMeta: named(namespace, name), Spec: v1alpha1.ImageScanSpec{Digest: digest, Platform: "linux/amd64"}}
		s.Status.Phase = phase
		change(s)
		return s
	}
	asIs := func(*v1alpha1.ImageScan) {}
	withResult := func(s *v1alpha1.ImageScan) { s.Status.Findings = &v1alpha1.FindingCounts{} }
	reader := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.Scanner{ObjectMeta: named("shop", "main")}, &v1alpha1.Scanner{ObjectMeta: named("shop", "second")},
		&v1alpha1.ClusterScanner{ObjectMeta: named("", "platform")},
		scan("shop", "web", "a", v1alpha1.PhaseFailed, asIs), scan("shop", "web-again", "a", v1alpha1.PhaseScanned, withResult),
		scan("shop", "api", "b", v1alpha1.PhasePending, asIs),
		scan("shop", "gone", "c", v1alpha1.PhaseScanned, func(s *v1alpha1.ImageScan) { s.Status.UnusedSinceTime = ptr.To(metav1.NewTime(time.Unix(1, 0))) }),
		scan("infra", "dns", "d", v1alpha1.PhaseFailed, withResult), scan("new", "first", "d", v1alpha1.PhasePending, asIs),
	).Build()
	db := &fakeStore{totals: map[string]store.Totals{
		"main":     {ToActOn: 2, Counts: finding.Counts{Critical: 1, High: 3, KnownExploited: 1}},
		"second":   {ToActOn: 1, Counts: finding.Counts{High: 1}},
		"platform": {ToActOn: 4, Counts: finding.Counts{Critical: 5}},
	}}
	recorder := Recorder{Reader: reader, Exceptions: active.Source{Reader: reader, Clock: clock.RealClock{}}, Inventory: fakeInventory{}, Store: db}
	if err := recorder.Record(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]store.DailyCounts{
		"shop":  {ToActOn: 3, KnownExploited: 1, Critical: 1, High: 4, Images: 2, Scanned: 1},
		"infra": {ToActOn: 4, Critical: 5, Images: 1},
	}
	if !maps.Equal(db.counts, want) {
		t.Errorf("recorded %+v, want %+v", db.counts, want)
	}
	if want := (store.DailyCounts{ToActOn: 7, KnownExploited: 1, Critical: 6, High: 4, Images: 4, Scanned: 1}); db.all != want {
		t.Errorf("recorded of all together %+v, want %+v", db.all, want)
	}
	db.failing = "second"
	if err := recorder.Record(t.Context()); err == nil || db.recorded != 1 {
		t.Errorf("with a scanner that cannot be counted: error %v, %d records, want an error and no other record", err, db.recorded)
	}
}
