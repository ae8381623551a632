package controllers

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubernetes "k8s.io/client-go/kubernetes/fake"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/notifier"
	receivers "github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	notifierclient "github.com/scanner-operator/scanner-operator/pkg/announce/client"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// exportWorld is a Scanner with one export, whose requests go through the real notifier to a stand-in of DefectDojo and Dependency-Track.
type exportWorld struct {
	*notifyWorld
	exports *ExportReconciler
	// answer is the status of the stand-in. got are the requests to it.
	answer int
	got    []string
	log    bytes.Buffer
}

func newExportWorld(t *testing.T) *exportWorld {
	t.Helper()
	w := &exportWorld{answer: http.StatusCreated}
	w.notifyWorld = newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = nil
		s.Spec.Exports = []v1alpha1.Export{{
			Name: "dojo", DefectDojo: &v1alpha1.DefectDojoExport{SecretRef: v1alpha1.SecretReference{Name: "dojo"}, Engagement: "prod"},
		}}
	})
	dojo := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.must(r.ParseMultipartForm(1 << 20))
		if r.URL.Path == "/api/v1/bom" {
			w.got = append(w.got, r.Form.Get("projectName")+" "+r.Form.Get("projectVersion"))
			_, _ = io.WriteString(rw, `{"token":"1"}`)
			return
		}
		w.got = append(w.got, r.Form.Get("product_name")+" "+r.Form.Get("engagement_name")+" "+r.Form.Get("product_type_name")+" "+r.Form.Get("test_title"))
		rw.WriteHeader(w.answer)
		_, _ = io.WriteString(rw, `{"test_id":1}`)
	}))
	t.Cleanup(dojo.Close)
	secrets := kubernetes.NewClientset(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dojo"}, Data: map[string][]byte{"address": []byte(dojo.URL), "token": []byte("verysecretkey8")},
	})
	roots := x509.NewCertPool()
	roots.AddCert(dojo.Certificate())
	sleep := func(_ context.Context, d time.Duration) error { w.clock.SetTime(w.clock.Now().Add(d)); return nil }
	server := httptest.NewTLSServer(notifier.New(notifier.Config{
		Callers: allowAll{}, Exporters: notifier.NewExporters(notifier.Network{Network: receivers.Network{Roots: receivers.Trusting(roots)}}),
		Addresses: notifier.NewSecretAddresses(secrets.CoreV1(), "scanner-operator-system", "scanner-operator-notifier", allowedHosts(t, strings.TrimPrefix(dojo.URL, "https://"))),
		Budget:    notifier.NewBudget(w.clock, sleep, func() float64 { return 0 }), Metrics: notifier.NewMetrics(prometheus.NewRegistry()),
		Log: slog.New(slog.NewJSONHandler(&w.log, nil)), Clock: w.clock,
	}).Handler())
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	w.must(os.WriteFile(token, []byte("token"), 0o600))
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	w.exports = &ExportReconciler{
		Client: w.client, Store: w.store, Clock: w.clock, Events: w.events, Wakeups: &Wakeups{}, Namespace: operatorNamespace,
		Exceptions: active.Source{Reader: w.client, Clock: w.clock}, Inventory: &inventory.Inventory{Client: w.client, Store: w.store, Clock: w.clock},
		Metrics: NewMetrics(nil),
		Sender: notifierclient.New(notifierclient.Config{
			URL: server.URL, TokenFile: token, CA: func() (*x509.CertPool, error) { return trusted, nil },
		}),
	}
	return w
}

// export reconciles after some time, and returns the requests since the last one, the time until the next one, and the Scanner's status.
func (w *exportWorld) export(after time.Duration) (got []string, next time.Duration, status *v1alpha1.ScannerStatus) {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(after))
	w.got = nil
	result, err := w.exports.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.scanner)})
	w.must(err)
	scanner := &v1alpha1.Scanner{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(w.scanner), scanner))
	states, err := exportStates(w.t.Context(), w.store, scanner)
	w.must(err)
	s := &scannerScope{scanner: scanner, scannerFacts: scannerFacts{exports: states}}
	s.setExports()
	return w.got, result.RequeueAfter, &scanner.Status
}

// TestStatusOfASlowImport: while a tool imports, the condition names the export and the workload, and is no failure.
func TestStatusOfASlowImport(t *testing.T) {
	scanner := &v1alpha1.Scanner{}
	scanner.Spec.Exports = []v1alpha1.Export{{Name: "dojo"}}
	s := &scannerScope{scanner: scanner, scannerFacts: scannerFacts{exports: map[string]export.State{"dojo": {Pending: 3, Importing: "Deployment web in the namespace shop"}}}}
	s.setExports()
	condition := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionExported)
	const want = "dojo: the tool is importing what it got of Deployment web in the namespace shop"
	if condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonExportPending || !strings.Contains(condition.Message, want) {
		t.Errorf("condition %+v, want %q", condition, want)
	}
}

// TestExport: the findings of a Scanner's workloads reach DefectDojo through manager and notifier. The status says what the tool has, and what to
// do about a refusal.
func TestExport(t *testing.T) {
	w := newExportWorld(t)
	w.saveReport(finding.High)
	w.answer = http.StatusUnauthorized
	got, next, status := w.export(0)
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionExported)
	const advice = "check the key token of the Secret"
	if condition.Status != metav1.ConditionFalse || condition.Reason != announce.ReasonReceiverRefused || !strings.Contains(condition.Message, advice) ||
		!strings.Contains(status.Exports[0].LastError, advice) || status.Exports[0].Pending != 1 || next != time.Minute {
		t.Errorf("condition %+v, status %+v, next after %s; want the advice, one pending workload and another attempt", condition, status.Exports, next)
	}
	const web = "shop prod Kubernetes Deployment/web (Grype)"
	if diff := cmp.Diff([]string{web}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	w.answer = http.StatusCreated
	got, _, status = w.export(time.Minute)
	condition = meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionExported)
	want := []v1alpha1.ExportStatus{{Name: "dojo", Workloads: 1, LastSuccessTime: &metav1.Time{Time: w.clock.Now()}}}
	if diff := cmp.Diff(want, status.Exports); diff != "" || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonExported || len(got) != 1 {
		t.Errorf("%d requests, condition %+v, status (-want +got):\n%s", len(got), condition, diff)
	}
	if got, next, _ = w.export(time.Hour); len(got) != 0 || next != exportInterval {
		t.Errorf("%d requests without a change, next after %s; want none and %s", len(got), next, exportInterval)
	}
	w.saveReport(finding.High, finding.Critical)
	if got, _, _ = w.export(time.Hour); len(got) != 1 {
		t.Errorf("%d requests for a new finding, want 1", len(got))
	}
	for _, want := range []string{"Warning ReceiverRefused export dojo: DefectDojo answers 401 Unauthorized; " + advice, "Normal Exported export dojo works"} {
		if event := <-w.events.Events; !strings.HasPrefix(event, want) {
			t.Errorf("event %q, want %q", event, want)
		}
	}
	if log := w.log.String(); strings.Contains(log, "verysecretkey8") || !strings.Contains(log, "Deployment/web") {
		t.Errorf("the notifier's log has the token, or no workload:\n%s", log)
	}
}

// TestSBOMExport: the SBOM of a container reaches Dependency-Track through manager and notifier, under the name of the cluster in the operator's
// configuration. The status names what is missing, and what to do.
func TestSBOMExport(t *testing.T) {
	w := newExportWorld(t)
	w.scanner.Spec.Exports = []v1alpha1.Export{{
		Name: "track", DependencyTrack: &v1alpha1.DependencyTrackExport{SecretRef: v1alpha1.SecretReference{Name: "dojo"}},
	}}
	w.must(w.client.Update(t.Context(), w.scanner))
	w.saveReport(finding.High)
	wantProblem := func(reason, message string) {
		t.Helper()
		got, _, status := w.export(time.Minute)
		condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionExported)
		if len(got) != 0 || condition.Status != metav1.ConditionFalse || condition.Reason != reason || !strings.Contains(condition.Message, message) {
			t.Errorf("%d requests, condition %+v; want none, and %s with %q", len(got), condition, reason, message)
		}
	}
	wantProblem(export.ReasonClusterNameMissing, "clusterName in the operator's configuration")
	w.exports.ClusterName = "prod"
	wantProblem(export.ReasonFormatNotStored, "cyclonedx-json in grype.catalog.additionalFormats")

	encoder, err := zstd.NewWriter(nil)
	w.must(err)
	w.must(w.store.SaveCatalog(t.Context(), store.Catalog{
		Engine: w.engine, Key: image.Key{Digest: webDigest, Platform: image.Platform{OS: "linux", Architecture: "amd64"}}, PlatformDigest: webPlatform,
	}, map[store.Artifact]io.Reader{store.ArtifactCycloneDX: bytes.NewReader(encoder.EncodeAll([]byte("{}"), nil))}))
	got, _, status := w.export(time.Minute)
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionExported)
	want := []v1alpha1.ExportStatus{{Name: "track", Workloads: 1, LastSuccessTime: &metav1.Time{Time: w.clock.Now()}}}
	if diff := cmp.Diff(want, status.Exports); diff != "" || condition.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v, status (-want +got):\n%s", condition, diff)
	}
	if diff := cmp.Diff([]string{"shop/Deployment/web/web prod"}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got, _, _ = w.export(time.Hour); len(got) != 0 {
		t.Errorf("%d requests without a change, want none", len(got))
	}
	if log := w.log.String(); strings.Contains(log, "verysecretkey8") || !strings.Contains(log, "shop/Deployment/web/web") {
		t.Errorf("the notifier's log has the token, or no project:\n%s", log)
	}
}

// TestExportStops: a Scanner that is suspended or not there exports nothing. What is recorded of exports that are not listed is deleted.
func TestExportStops(t *testing.T) {
	w := newExportWorld(t)
	w.saveReport(finding.High)
	suspended := true
	w.scanner.Spec.Suspend = &suspended
	w.must(w.client.Update(t.Context(), w.scanner))
	if got, _, _ := w.export(0); len(got) != 0 {
		t.Errorf("%d requests of a suspended Scanner, want none", len(got))
	}
	w.scanner.Spec.Suspend = nil
	w.must(w.client.Update(t.Context(), w.scanner))
	if got, _, _ := w.export(0); len(got) != 1 {
		t.Errorf("%d requests, want 1", len(got))
	}
	w.must(w.exports.SweepExports(t.Context()))
	count := func() int {
		states, err := w.store.ExportStates(t.Context(), "scanner-uid", "dojo")
		w.must(err)
		return len(states)
	}
	if n := count(); n != 2 {
		t.Errorf("%d records of the export, want its own and the workload's", n)
	}
	w.scanner.Spec.Exports = nil
	w.must(w.client.Update(t.Context(), w.scanner))
	got, _, status := w.export(time.Hour)
	w.must(w.exports.SweepExports(t.Context()))
	if n := count(); n != 0 || len(got) != 0 || len(status.Exports) != 0 || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionExported) != nil {
		t.Errorf("%d records, %d requests and status %+v without an export, want none", n, len(got), status.Exports)
	}
}

// TestClusterExport: the Secrets of a ClusterScanner's exports are in the operator's namespace.
func TestClusterExport(t *testing.T) {
	engine := &scriptedEngine{gaps: []string{"npm"}}
	r := &ExportReconciler{Namespace: operatorNamespace, Backends: backend.Choosers{v1alpha1.BackendGrype: backend.Always(engine)}}
	scanner := &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "uid", Generation: 3}}
	scanner.Spec.Backend.Type = v1alpha1.BackendGrype
	one := v1alpha1.Export{Name: "dojo", DefectDojo: &v1alpha1.DefectDojoExport{SecretRef: v1alpha1.SecretReference{Name: "s"}, Engagement: "prod", ProductType: "Shops"}}
	want := export.Settings{
		UID: "uid", Scanner: "/all", Name: "dojo", Generation: 3, Engine: "Grype", ProductType: "Shops", Cluster: "prod",
		Receiver: announce.ReceiverRef{Type: export.TypeDefectDojo, Namespace: operatorNamespace, SecretName: "s", SecretKey: "address"},
	}
	r.ClusterName = "another"
	got := r.settings(scanner, one)
	if got.IsCovered != nil || got.Receiver != want.Receiver || got.Cluster != want.Cluster || got.ProductType != want.ProductType || got.UID != want.UID || got.Engine != want.Engine || !slices.Equal(got.EngineGaps, engine.gaps) {
		t.Errorf("settings %+v, want %+v", got, want)
	}
	one.DefectDojo.Engagement = ""
	if got := r.settings(scanner, one).Cluster; got != "another" {
		t.Errorf("the cluster is %q without an engagement, want the configuration's clusterName", got)
	}
}
