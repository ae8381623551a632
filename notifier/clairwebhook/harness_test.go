package clairwebhook_test

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/notifier/clairwebhook"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// recorded holds what a real Clair sent: one notification in three pages, and its webhook.
//
//go:embed testdata
var recorded embed.FS

// recordedID is the ID of the recorded notification.
const recordedID = "368084e0-418d-41b1-8f3a-906bf4dc51e2"

// Manifests in the recorded pages, and one that is not in them.
const (
	first     = "sha256:974ad21e38968ff139e0bef203c74eb3080bb1c22a2a950801beea3430d47f57"
	second    = "sha256:1dfe741ae32396f358543b6427cd4ab2635d8a0340f907f9cc14daa477331156"
	untouched = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// Secrets that must not appear in any output.
const (
	token = "very-secret-token-of-the-shop"
	psk   = "very-secret-key-that-is-shared-with-clair"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// standIn is a fake of Clair's notifier that serves the recorded notification under any ID.
type standIn struct {
	*httptest.Server
	mu sync.Mutex
	// psk, if not empty, must have signed each request.
	psk string
	// fails are methods that are answered with 500. hold delays pages until it is closed.
	fails map[string]bool
	hold  chan struct{}
	// read counts reads of the first page, deleted counts deletions, both by notification ID.
	read, deleted map[string]int
}

func newStandIn(t *testing.T) *standIn {
	s := &standIn{fails: map[string]bool{}, read: map[string]int{}, deleted: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	id, next, hold := path.Base(r.URL.Path), r.URL.Query().Get("next"), s.hold
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case s.psk != "" && api.VerifyToken(bearer, []byte(s.psk), []string{"scanner-operator"}, noon) != nil:
		w.WriteHeader(http.StatusUnauthorized)
		hold = nil
	case s.fails[r.Method]:
		w.WriteHeader(http.StatusInternalServerError)
	case r.Method == http.MethodDelete:
		s.deleted[id]++
	case next == "":
		s.read[id]++
	}
	failed := s.fails[r.Method]
	s.mu.Unlock()
	if r.Method != http.MethodGet || failed {
		return
	}
	if hold != nil {
		<-hold
	}
	page := map[string]string{"": "page1", "5e509d3c-03cb-4914-a7a8-a17c79b2a1f0": "page2", "aa1cb988-05b8-4771-9423-87e989557a8c": "page3_last"}[next]
	text, _ := recorded.ReadFile("testdata/notification_" + page + ".json")
	w.Write(text)
}

func (s *standIn) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

// counts returns how often a notification was read and deleted.
func (s *standIn) counts(id string) (read, deleted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read[id], s.deleted[id]
}

// world is the notifier's webhook listener with a cluster and a Clair.
type world struct {
	t       *testing.T
	clair   *standIn
	cluster client.Client
	secrets *kubefake.Clientset
	clock   *clocktesting.FakePassiveClock
	metrics *prometheus.Registry
	logs    *lockedBuffer
	handler http.Handler

	mu sync.Mutex
	// fails are requests that the API server answers with 500, by their name in asked. forbidden are Secrets that must not be read.
	fails     map[string]bool
	forbidden map[string]bool
	// asked counts requests to the API server, by a name such as "get Secret".
	asked map[string]int
}

// newWorld returns a world with the Scanners shop/token, shop/psk and other/token, all for the same Clair, and three ImageScans of each.
func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clair: newStandIn(t), clock: clocktesting.NewFakePassiveClock(noon), metrics: prometheus.NewRegistry(), logs: &lockedBuffer{},
		fails: map[string]bool{}, forbidden: map[string]bool{}, asked: map[string]int{},
	}
	w.secrets = kubefake.NewClientset(
		secret("shop", "webhook", map[string]string{"token": token + "\n"}), secret("other", "webhook", map[string]string{"token": token}),
		secret("shop", "clair", map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(psk))}), secret("shop", "empty", nil))
	w.secrets.PrependReactor("get", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		if w.countRequest("get Secret"); w.isForbidden(name) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name, errors.New("no grant"))
		}
		return false, nil, nil
	})
	objects = append(objects, w.scanner("shop", "token", withToken("webhook")), w.scanner("shop", "psk", withPSK("clair")), w.scanner("other", "token", withToken("webhook")))
	for _, scanner := range []types.NamespacedName{{Namespace: "shop", Name: "token"}, {Namespace: "shop", Name: "psk"}, {Namespace: "other", Name: "token"}} {
		objects = append(objects, imageScan(scanner, "first", first), imageScan(scanner, "untouched", untouched),
			imageScan(scanner, "second", untouched, func(s *v1alpha1.ImageScan) { s.Status.PlatformDigest = second }))
	}
	w.cluster = w.newCluster(objects...)
	instances := config.Clair{Instances: []config.ClairInstance{{URL: w.clair.URL + "/"}}}.ByURL()
	w.handler = clairwebhook.New(clairwebhook.Config{
		Cluster: w.cluster, Secrets: w.secrets.CoreV1(), Instances: instances, Clock: w.clock, Metrics: clairwebhook.NewMetrics(w.metrics),
		GrantCommands: func(namespace, secret string) string { return "kubectl for " + namespace + "/" + secret },
		Log:           slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}).Handler()
	t.Cleanup(func() {
		for _, hidden := range []string{token, psk, base64.StdEncoding.EncodeToString([]byte(psk))} {
			if strings.Contains(w.logs.String(), hidden) {
				t.Errorf("a secret is in the log:\n%s", w.logs.String())
			}
		}
	})
	return w
}

// newCluster returns a fake API server for the operator's kinds.
func (w *world) newCluster(objects ...client.Object) client.Client {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	return fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := w.countRequest("get Scanner"); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := w.countRequest("list"); err != nil {
				return err
			}
			return errors.Join(c.List(ctx, list, opts...), cut(list, opts))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := w.countRequest("patch"); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}).Build()
}

// cut splits a list into pages that are smaller than the requested limit.
func cut(list client.ObjectList, opts []client.ListOption) error {
	const size = 4
	var options client.ListOptions
	for _, option := range opts {
		option.ApplyToList(&options)
	}
	if options.Limit == 0 {
		return nil
	}
	scans, start := list.(*v1alpha1.ImageScanList), 0
	if options.Continue != "" {
		var err error
		if start, err = strconv.Atoi(options.Continue); err != nil {
			return err
		}
	}
	if start+size < len(scans.Items) {
		scans.Continue = strconv.Itoa(start + size)
	}
	scans.Items = scans.Items[start:min(start+size, len(scans.Items))]
	return nil
}

// countRequest counts a request to the API server, and returns an error if it is to fail.
func (w *world) countRequest(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[what]++
	if w.fails[what] {
		return apierrors.NewInternalError(errors.New("etcd is away"))
	}
	return nil
}

func (w *world) isForbidden(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.forbidden[name]
}

// count returns the number of requests of one name to the API server.
func (w *world) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[what]
}

func (w *world) change(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// post sends a webhook and returns the status and body of the answer.
func (w *world) post(scanner, body string, header http.Header) (int, string) {
	request := httptest.NewRequest(http.MethodPost, "/clair/"+scanner, strings.NewReader(body))
	request.Header = header
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, request)
	if mayRetry := answer.Code == http.StatusTooManyRequests || answer.Code == http.StatusServiceUnavailable; mayRetry == (answer.Header().Get("Retry-After") == "") {
		w.t.Errorf("an answer with status %d has the header Retry-After %q", answer.Code, answer.Header().Get("Retry-After"))
	}
	return answer.Code, answer.Body.String()
}

// hook sends a webhook about a notification, with the right token.
func (w *world) hook(scanner, id string) int {
	status, _ := w.post(scanner, hookOf(id), tokenHeader(token))
	return status
}

func hookOf(id string) string {
	return fmt.Sprintf(`{"callback":"http://127.0.0.1:1/notifier/api/v1/notification/%[1]s","notification_id":"%[1]s"}`, id)
}

func tokenHeader(value string) http.Header { return http.Header{clairwebhook.TokenHeader: {value}} }

// signed returns the header that Clair sends with auth.psk.
func signed(t *testing.T, key, issuer string, expiry time.Time) http.Header {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(key)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: issuer, Expiry: jwt.NewNumericDate(expiry)}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{"Authorization": {"Bearer " + text}}
}

// requests returns the annotations of a Scanner's ImageScans as name=value.
func (w *world) requests(namespace, scanner string) (marks []string) {
	w.t.Helper()
	var scans v1alpha1.ImageScanList
	if err := w.cluster.List(context.Background(), &scans, client.InNamespace(namespace)); err != nil {
		w.t.Fatal(err)
	}
	for _, scan := range scans.Items {
		if value, marked := scan.Annotations[v1alpha1.AnnotationMatchRequested]; marked && scan.Spec.ScannerRef.Name == scanner {
			marks = append(marks, strings.TrimPrefix(scan.Name, scanner+"-")+"="+value)
		}
	}
	return marks
}

// metric returns the value of one series.
func (w *world) metric(name, outcome string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == name && (outcome == "" || m.Label[0].GetValue() == outcome) {
				return m.Counter.GetValue()
			}
		}
	}
	return 0
}

func (w *world) scanner(namespace, name string, changes ...func(*v1alpha1.Scanner)) *v1alpha1.Scanner {
	scanner := &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: &v1alpha1.ClairBackend{}}}},
	}
	if address, err := url.Parse(w.clair.URL); err == nil {
		scanner.Spec.Backend.Clair.URL = "HTTP://" + address.Host
	}
	for _, change := range changes {
		change(scanner)
	}
	return scanner
}

func withToken(secret string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) {
		s.Spec.Backend.Clair.WebhookTokenSecretRef = &v1alpha1.TokenSecretReference{Name: secret, Key: "token"}
	}
}

func withPSK(secret string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) {
		s.Spec.Backend.Clair.AuthSecretRef = &v1alpha1.SecretReference{Name: secret}
	}
}

func imageScan(scanner types.NamespacedName, name, digest string, changes ...func(*v1alpha1.ImageScan)) *v1alpha1.ImageScan {
	scan := &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{Namespace: scanner.Namespace, Name: scanner.Name + "-" + name},
		Spec:       v1alpha1.ImageScanSpec{ScannerRef: v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: scanner.Name}, Digest: digest},
	}
	for _, change := range changes {
		change(scan)
	}
	return scan
}

func secret(namespace, name string, data map[string]string) *corev1.Secret {
	made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		made.Data[key] = []byte(value)
	}
	return made
}

// unreadableBody is a request body that must not be read.
type unreadableBody struct{ t *testing.T }

func (u unreadableBody) Read([]byte) (int, error) {
	u.t.Error("the body is read before the sender is verified")
	return 0, io.EOF
}

// lockedBuffer is a buffer that several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

// unmark removes the annotation, as the manager does.
func (w *world) unmark(namespace, name string) {
	w.t.Helper()
	var scan v1alpha1.ImageScan
	must(w.t, w.cluster.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &scan))
	scan.Annotations = nil
	must(w.t, w.cluster.Update(w.t.Context(), &scan))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
