package restapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/events"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

const engine = "grype"

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	amd64 = image.Platform{OS: "linux", Architecture: "amd64"}
)

func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// key returns what nodes report for the image with this name. Its platform digest is a different one.
func key(name string) image.Key { return image.Key{Digest: digest("index " + name), Platform: amd64} }

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	return scheme
}

// harness is the API with a cluster and a real store. Its clients check each response against the OpenAPI document.
type harness struct {
	t       testing.TB
	cluster client.Client
	store   *store.Store
	path    string // of the store
	clock   *clocktesting.FakeClock
	api     *API
	handler http.Handler
	url     string
	http    *http.Client
	metrics *prometheus.Registry

	mu    sync.Mutex
	logs  bytes.Buffer
	woken []string // digests
}

func newHarness(t testing.TB, cluster, reviews client.Client) *harness {
	t.Helper()
	w := &harness{t: t, cluster: cluster, clock: clocktesting.NewFakeClock(noon), metrics: prometheus.NewRegistry()}
	w.path = filepath.Join(t.TempDir(), "store.db")
	db, err := storetest.Open(t.Context(), w.path, w.clock.Now, store.OpenSQLite)
	w.must(err)
	t.Cleanup(func() { _ = db.Close() })
	w.store = db
	w.api = &API{
		Reader: cluster, ImageScans: cluster, TokenReviews: reviews, AccessReviews: reviews, Store: db, Clock: w.clock, Metrics: w.metrics,
		EngineGaps: func(context.Context) (map[string][]string, error) {
			return map[string][]string{engine: {"nothing"}}, nil
		},
		SessionKeys: func() ([][]byte, error) { return [][]byte{bytes.Repeat([]byte{7}, 32)}, nil },
		Events:      &events.Server{Log: events.NewLog(), Version: "1.0.0", Build: "b1"},
		Inventory:   &inventory.Inventory{Client: cluster, Store: db, Clock: w.clock},
		RenderSlack: func(message []byte) (restv1.SlackMessage, error) {
			if !json.Valid(message) {
				return restv1.SlackMessage{}, errors.New("not a message")
			}
			return restv1.SlackMessage{Text: string(message), Blocks: json.RawMessage(`[{"type":"divider"}]`)}, nil
		},
		Replicas: func(context.Context) ([]restv1.Replica, error) { return nil, nil },
		Wake: func(_ context.Context, digest string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.woken = append(w.woken, digest)
		},
		Log: funcr.NewJSON(func(line string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			fmt.Fprintln(&w.logs, line)
		}, funcr.Options{}),
	}
	w.handler, err = w.api.Handler()
	w.must(err)
	server := httptest.NewUnstartedServer(w.handler)
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	w.url, w.http = server.URL, server.Client()
	w.http.Transport = &conformanceTransport{t: t, next: w.http.Transport}
	return w
}

func (w *harness) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// logText returns the log so far.
func (w *harness) logText() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs.String()
}

// clearLogs forgets the log so far.
func (w *harness) clearLogs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logs.Reset()
}

// fakeReviewer is an API server that accepts these tokens. allowed decides about permissions. Every review fails with err unless err is nil.
type fakeReviewer struct {
	mu      sync.Mutex
	tokens  map[string]authenticationv1.UserInfo
	allowed func(authorizationv1.SubjectAccessReviewSpec) bool
	err     error
	reviews int
}

func (i *fakeReviewer) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch review := o.(type) {
	case *authenticationv1.TokenReview:
		i.reviews++
		review.Status.User, review.Status.Authenticated = i.tokens[review.Spec.Token], i.tokens[review.Spec.Token].Username != ""
		return i.err
	case *authorizationv1.SubjectAccessReview:
		i.reviews++
		review.Status.Allowed = i.allowed(review.Spec)
		return i.err
	}
	return c.Create(ctx, o, opts...)
}

// decisionTTL is how long the earlier permissions are remembered.
const decisionTTL = kubeauth.DecisionTTL

// anyone is a token whose user may do everything.
const anyone = "token-of-anyone"

// newFakeHarness returns a world with an imagined API server. The user of the token anyone may do everything.
func newFakeHarness(t testing.TB) (*harness, *fakeReviewer) {
	t.Helper()
	i := &fakeReviewer{
		tokens:  map[string]authenticationv1.UserInfo{anyone: {Username: "anyone"}},
		allowed: func(authorizationv1.SubjectAccessReviewSpec) bool { return true },
	}
	cluster := fakeclient.NewClientBuilder().WithScheme(newScheme()).WithStatusSubresource(&v1alpha1.Scanner{}, &v1alpha1.ClusterScanner{}, &v1alpha1.ImageScan{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: i.create}).Build()
	return newHarness(t, cluster, cluster), i
}

// clientFor returns a client that sends a token.
func (w *harness) clientFor(token string) *restclient.ClientWithResponses {
	w.t.Helper()
	c, err := restclient.NewClientWithResponses(w.url, restclient.WithHTTPClient(w.http), restclient.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	w.must(err)
	return c
}

// get requests a path exactly as it is written.
func (w *harness) get(path, token string, headers ...string) (*http.Response, []byte) {
	w.t.Helper()
	return w.send(http.MethodGet, path, token, nil, headers...)
}

// send sends a request with a body; nil for none.
func (w *harness) send(method, path, token string, content io.Reader, headers ...string) (*http.Response, []byte) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, content)
	w.must(err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.http.Do(r)
	w.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	w.must(err)
	return response, body
}

// create creates an object with its status.
func (w *harness) create(o client.Object) {
	w.t.Helper()
	before := o.DeepCopyObject()
	w.must(w.cluster.Create(w.t.Context(), o))
	switch made := o.(type) {
	case *v1alpha1.Scanner:
		made.Status = before.(*v1alpha1.Scanner).Status
	case *v1alpha1.ClusterScanner:
		made.Status = before.(*v1alpha1.ClusterScanner).Status
	case *v1alpha1.ImageScan:
		made.Status = before.(*v1alpha1.ImageScan).Status
	}
	w.must(w.cluster.Status().Update(w.t.Context(), o))
}

// createScanner creates a Scanner with a status in the cluster.
func (w *harness) createScanner(namespace, name string, changes ...func(*v1alpha1.Scanner)) *v1alpha1.Scanner {
	w.t.Helper()
	s := &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + namespace + "-" + name)},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
	}
	for _, change := range changes {
		change(s)
	}
	w.create(s)
	return s
}

// createClusterScanner creates a ClusterScanner with a status in the cluster. It covers all namespaces unless it is changed.
func (w *harness) createClusterScanner(name string, changes ...func(*v1alpha1.ClusterScanner)) *v1alpha1.ClusterScanner {
	w.t.Helper()
	s := &v1alpha1.ClusterScanner{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec: v1alpha1.ClusterScannerSpec{
			NamespaceSelector: &metav1.LabelSelector{}, ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}},
		},
	}
	for _, change := range changes {
		change(s)
	}
	w.create(s)
	return s
}

// createNamespaces creates namespaces.
func (w *harness) createNamespaces(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.must(w.cluster.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
}

// createScan creates a Scanner's ImageScan of an image with this name in the cluster. The store stays unchanged.
func (w *harness) createScan(scanner *v1alpha1.Scanner, name string, changes ...func(*v1alpha1.ImageScan)) *v1alpha1.ImageScan {
	w.t.Helper()
	return w.createScanIn(scanner.Namespace, scanner, name, changes...)
}

// createScanIn creates a scanner's ImageScan in a namespace.
func (w *harness) createScanIn(namespace string, scanner v1alpha1.GenericScanner, name string, changes ...func(*v1alpha1.ImageScan)) *v1alpha1.ImageScan {
	w.t.Helper()
	s := imageScan(namespace, scanner, name)
	for _, change := range changes {
		change(s)
	}
	w.create(s)
	return s
}

// imageScan returns a scanner's ImageScan of an image in a namespace, which is not in the cluster.
func imageScan(namespace string, scanner v1alpha1.GenericScanner, name string) *v1alpha1.ImageScan {
	return &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(scanner, v1alpha1.GroupVersion.WithKind(string(scanner.ScannerKind())))},
		},
		Spec: v1alpha1.ImageScanSpec{
			Digest: key(name).Digest, DigestType: v1alpha1.DigestManifest, Platform: amd64.String(), ScannerRef: inventory.ReferenceTo(scanner),
			References: []string{"ghcr.io/" + namespace + "/" + name + ":1"},
		},
		Status: v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseScanned},
	}
}

// setUsed records in the store that a Scanner has an image, and that these workloads run it.
func (w *harness) setUsed(scanner *v1alpha1.Scanner, name string, scope store.Scope, workloads ...string) {
	w.t.Helper()
	w.setUsedIn(scanner.Namespace, scanner, name, scope, workloads...)
}

// setUsedIn records in the store that a scanner has an image in a namespace, and that these workloads run it there.
func (w *harness) setUsedIn(namespace string, scanner v1alpha1.GenericScanner, name string, scope store.Scope, workloads ...string) {
	w.t.Helper()
	u := store.ImageUsage{Scanner: string(scanner.GetUID()), Namespace: namespace, Key: key(name), Scope: scope, Engine: engine}
	for _, workload := range workloads {
		u.Workloads = append(u.Workloads, store.Workload{
			Namespace: namespace, Kind: "Deployment", Name: workload, Container: "main",
			Repository: "ghcr.io/" + namespace + "/" + name, Reference: "ghcr.io/" + namespace + "/" + name + ":1",
		})
	}
	w.must(w.store.SetUsage(w.t.Context(), u))
}

// saveSBOM stores an image's SBOM.
func (w *harness) saveSBOM(name string, scope store.Scope, sbom string) {
	w.t.Helper()
	w.must(w.store.SaveCatalog(w.t.Context(), store.Catalog{
		Engine: engine, Key: key(name), Scope: scope, PlatformDigest: digest(name), Tool: "syft 1", CatalogedAt: w.clock.Now(),
	}, map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(compress(w.t, sbom)), store.ArtifactMatchInput: strings.NewReader("")}))
}

func compress(t testing.TB, text string) []byte {
	t.Helper()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	return encoder.EncodeAll([]byte(text), nil)
}

func decompress(t testing.TB, text []byte) string {
	t.Helper()
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	content, err := decoder.DecodeAll(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// saveReport stores a report of an image with these findings.
func (w *harness) saveReport(name string, scope store.Scope, findings ...finding.Finding) {
	w.t.Helper()
	_, err := w.store.SaveReport(w.t.Context(), store.Report{
		Subject:     store.Subject{PlatformDigest: digest(name), Scope: scope, Engine: engine},
		DataVersion: "v1", MatchedAt: w.clock.Now(), Distro: "debian 12", Findings: findings,
	}, "")
	w.must(err)
}

// createScanned creates an ImageScan with a complete result: a workload, an SBOM and a report.
func (w *harness) createScanned(scanner *v1alpha1.Scanner, name string, findings ...finding.Finding) *v1alpha1.ImageScan {
	w.t.Helper()
	return w.createScannedIn(scanner.Namespace, scanner, name, findings...)
}

// createScannedIn creates an ImageScan with a complete result in a namespace.
func (w *harness) createScannedIn(namespace string, scanner v1alpha1.GenericScanner, name string, findings ...finding.Finding) *v1alpha1.ImageScan {
	w.t.Helper()
	scan := w.createScanIn(namespace, scanner, name)
	w.setUsedIn(namespace, scanner, name, store.Cluster, "web")
	w.saveSBOM(name, store.Cluster, `{"artifacts":[]}`)
	w.saveReport(name, store.Cluster, findings...)
	return scan
}

func vulnerable(id, pkg string, changes ...func(*finding.Finding)) finding.Finding {
	f := finding.Finding{
		ID: id, Severity: finding.High, FixState: finding.FixStateNotFixed,
		Package: finding.Package{Name: pkg, Version: "1.0", Type: "deb", PURL: "pkg:deb/debian/" + pkg + "@1.0"},
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func severity(s finding.Severity) func(*finding.Finding) {
	return func(f *finding.Finding) { f.Severity = s }
}

func fixed(f *finding.Finding) { f.FixState, f.FixVersions = finding.FixStateFixed, []string{"1.1"} }

func exploited(f *finding.Finding) { f.KnownExploited = true }

func alias(ids ...string) func(*finding.Finding) {
	return func(f *finding.Finding) { f.Aliases = ids }
}

// nextPage returns the value of the parameter continue for the next page, given that of the last response; nil after the last page.
func nextPage(token string) *string {
	if token == "" {
		return nil
	}
	return &token
}

// countRequests returns how many requests of an operation were answered with a status.
func (w *harness) countRequests(operation, code string) (n float64) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	w.must(err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["operation"] == operation && labels["code"] == code {
				n += metric.GetCounter().GetValue()
			}
		}
	}
	return n
}
