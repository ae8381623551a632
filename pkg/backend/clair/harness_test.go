package clair

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/uuid"
	. "github.com/onsi/gomega"
	"github.com/quay/claircore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/backendtest"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	amd64 = image.Platform{OS: "linux", Architecture: "amd64"}
)

// scriptedClair implements Clair's API as far as the tests need it, and behaves as the test scripts it.
type scriptedClair struct {
	t      *testing.T
	server *httptest.Server

	mu sync.Mutex
	// key that tokens must be signed with; nil for no authentication.
	key   []byte
	state string
	// indexed holds the digests with a finished index report. posts holds the manifests that were sent to Clair, in order.
	indexed map[string]bool
	posts   []claircore.Manifest
	deleted []string
	// reports holds the digests whose report was read, in order.
	reports []string
	// updaters holds the last operation of each updater.
	updaters map[string]api.UpdateOperation
	// advisories are the IDs that it reports for every image.
	advisories []string
	// requests counts all requests. before, if it returns true, has answered a request in place of Clair.
	requests int
	before   func(http.ResponseWriter, *http.Request) bool
	// underway is the number of index requests in progress, and most its maximum so far.
	underway, most int
}

func newScriptedClair(t *testing.T) *scriptedClair {
	c := &scriptedClair{t: t, state: "state-1", indexed: map[string]bool{}, updaters: map[string]api.UpdateOperation{}, advisories: []string{"CVE-2099-0001"}}
	c.server = httptest.NewServer(c)
	t.Cleanup(c.server.Close)
	c.update("debian/updater", noon.Add(-time.Hour))
	return c
}

// update adds a new operation of an updater.
func (c *scriptedClair) update(updater string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updaters[updater] = api.UpdateOperation{Ref: uuid.New(), Updater: updater, Date: at}
}

func (c *scriptedClair) change(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// requestCount returns the number of requests.
func (c *scriptedClair) requestCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

func (c *scriptedClair) posted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.posts)
}

// ServeHTTP answers as Clair 4.9 does; see the recorded answers in pkg/backend/clair/api/testdata.
func (c *scriptedClair) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests++
	before, key := c.before, c.key
	c.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	if token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); key != nil && api.VerifyToken(token, key, []string{"scanner-operator"}, noon) != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	digest := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/index_state"):
		c.answer(w, http.StatusOK, map[string]string{"state": c.indexState()})
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/index_report"):
		c.index(w, r)
	case r.Method == http.MethodDelete:
		c.change(func() {
			if c.indexed[digest] {
				delete(c.indexed, digest)
				c.deleted = append(c.deleted, digest)
			}
		})
		w.WriteHeader(http.StatusNoContent)
	case strings.Contains(path, "/index_report/"):
		if !c.has(digest) {
			c.unknown(w)
			return
		}
		c.answer(w, http.StatusOK, c.indexReport(digest))
	case strings.Contains(path, "/vulnerability_report/"):
		c.report(w, digest)
	case strings.HasSuffix(path, "/update_operation"):
		c.operations(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (c *scriptedClair) answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (c *scriptedClair) unknown(w http.ResponseWriter) {
	c.answer(w, http.StatusNotFound, map[string]string{"code": "not-found", "message": "index report not found"})
}

func (c *scriptedClair) indexState() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *scriptedClair) has(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.indexed[digest]
}

func (c *scriptedClair) indexReport(digest string) claircore.IndexReport {
	hash, _ := claircore.ParseDigest(digest)
	return claircore.IndexReport{
		Hash: hash, State: api.StateFinished, Success: true,
		Packages:      map[string]*claircore.Package{"1": {Name: "openssl"}, "2": {Name: "zlib"}},
		Distributions: map[string]*claircore.Distribution{"1": {PrettyName: "Debian GNU/Linux 12"}},
	}
}

// index fetches the layers, as Clair does.
func (c *scriptedClair) index(w http.ResponseWriter, r *http.Request) {
	var manifest claircore.Manifest
	if err := json.NewDecoder(r.Body).Decode(&manifest); err != nil {
		c.answer(w, http.StatusBadRequest, map[string]string{"code": "bad-request", "message": err.Error()})
		return
	}
	c.change(func() { c.posts = append(c.posts, manifest); c.underway++; c.most = max(c.most, c.underway) })
	defer c.change(func() { c.underway-- })
	for _, layer := range manifest.Layers {
		if err := fetch(r.Context(), layer); err != nil {
			c.answer(w, http.StatusInternalServerError, map[string]string{"code": "internal error", "message": "failed to start scan: failed to fetch layers: " + err.Error()})
			return
		}
	}
	digest := manifest.Hash.String()
	c.change(func() { c.indexed[digest] = true })
	c.answer(w, http.StatusCreated, c.indexReport(digest))
}

func fetch(ctx context.Context, layer *claircore.Layer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, layer.URI, nil)
	if err != nil {
		return err
	}
	request.Header = maps.Clone(http.Header(layer.Headers))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("fetcher: unexpected status code: %s", response.Status)
	}
	return nil
}

func (c *scriptedClair) report(w http.ResponseWriter, digest string) {
	if !c.has(digest) {
		c.unknown(w)
		return
	}
	c.mu.Lock()
	c.reports = append(c.reports, digest)
	var vulnerabilities []*claircore.Vulnerability
	for _, id := range c.advisories {
		vulnerabilities = append(vulnerabilities, &claircore.Vulnerability{Updater: "debian/updater", Name: id, NormalizedSeverity: claircore.High, FixedInVersion: "9"})
	}
	c.mu.Unlock()
	report := small(vulnerabilities...)
	report.Hash, _ = claircore.ParseDigest(digest)
	for _, environment := range report.Environments["1"] {
		environment.IntroducedIn = report.Hash
	}
	c.answer(w, http.StatusOK, report)
}

func (c *scriptedClair) operations(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	latest := map[string][]api.UpdateOperation{}
	etag := "none"
	if r.URL.Query().Get("kind") == string(api.Vulnerabilities) {
		for _, updater := range slices.Sorted(maps.Keys(c.updaters)) {
			latest[updater] = []api.UpdateOperation{c.updaters[updater]}
			etag += c.updaters[updater].Ref.String()
		}
	}
	c.mu.Unlock()
	etag = `"` + etag + `"`
	if len(latest) > 0 {
		w.Header().Set("ETag", etag)
	}
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	c.answer(w, http.StatusOK, latest)
}

// world is the manager with its Clair instances, a registry, a store and a fake cluster. The test controls its clock.
type world struct {
	*Engines
	*WithT
	t        *testing.T
	clair    *scriptedClair
	registry *registrytest.Registry
	// guard, if it returns true, has answered a request in place of the registry.
	guard func(http.ResponseWriter, *http.Request) bool
	clock *clocktesting.FakeClock
	store *store.Store
	// storePath is the store's file.
	storePath string
	cluster   client.Client
	// forbidden holds the names of the Secrets that the operator may not read, and broken those that the API server fails on.
	forbidden, broken map[string]bool
	options           Options
	stop              func()
	// ended is closed when the running Engines have ended.
	ended chan struct{}

	mu    sync.Mutex
	woken []string
}

// newWorld returns a world with one working Clair and one expected updater.
func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, clair: newScriptedClair(t), clock: clocktesting.NewFakeClock(noon), forbidden: map[string]bool{}, broken: map[string]bool{}}
	w.SetDefaultEventuallyTimeout(30 * time.Second) // machines may be slow
	w.SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	w.registry = registrytest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if w.guard == nil || !w.guard(rw, r) {
				next.ServeHTTP(rw, r)
			}
		})
	})
	var err error
	w.storePath = filepath.Join(t.TempDir(), "store.db")
	if w.store, err = storetest.Open(t.Context(), w.storePath, w.clock.Now, store.OpenSQLite); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	w.cluster = fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Get: w.get}).Build()
	settings := config.Default()
	settings.Registries = []config.Registry{{Host: w.registry.Host, PlainHTTP: true}}
	settings.Clair.Instances = []config.ClairInstance{{URL: w.clair.server.URL, Updaters: []string{"debian/*"}}}
	settings.Clair.ReportsPerSecond = 1000
	transport, err := registry.NewTransport(settings.RegistrySettings())
	if err != nil {
		t.Fatal(err)
	}
	w.options = Options{
		Reader: w.cluster, Store: w.store, Config: settings, Clock: w.clock, Log: testr.New(t), Namespace: "scanner-operator-system",
		ServiceAccount: "scanner-operator-manager", Registries: transport, Wake: w.wake,
		DataChanged: func(context.Context) {}, Random: func() float64 { return 0.5 },
	}
	for _, change := range change {
		change(&w.options)
	}
	w.start()
	return w
}

// start replaces the running Engines by new ones with the same store.
func (w *world) start() {
	if w.stop != nil {
		w.stop()
	}
	w.Engines = NewEngines(w.options)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w.ended = ended
	engines := w.Engines
	go func() { defer close(ended); _ = engines.Run(ctx) }()
	stop := sync.OnceFunc(func() { cancel(); <-ended })
	w.stop = stop
	w.t.Cleanup(stop)
}

func (w *world) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	w.mu.Lock()
	forbidden, broken := w.forbidden[key.Name], w.broken[key.Name]
	w.mu.Unlock()
	switch {
	case strings.Contains(key.Name, "/"): // the real client sends no request for such a name
		return fmt.Errorf("invalid resource name %q: [may not contain '/']", key.Name)
	case forbidden:
		return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, nil)
	case broken:
		return apierrors.NewInternalError(errors.New("etcd is away"))
	}
	return c.Get(ctx, key, obj, opts...)
}

func (w *world) wake(_ context.Context, digest string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, digest)
}

// secret creates a Secret.
func (w *world) secret(namespace, name string, data map[string]string) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	w.must(w.cluster.Create(w.t.Context(), secret))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// scanner returns a Scanner that uses the world's Clair.
func (w *world) scanner(namespace string, change ...func(*v1alpha1.ClairBackend)) *v1alpha1.Scanner {
	settings := &v1alpha1.ClairBackend{URL: w.clair.server.URL}
	for _, change := range change {
		change(settings)
	}
	return &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scanner", UID: types.UID(namespace + "-uid")},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: settings}}},
	}
}

func withSecret(name string) func(*v1alpha1.ClairBackend) {
	return func(c *v1alpha1.ClairBackend) { c.AuthSecretRef = &v1alpha1.SecretReference{Name: name} }
}

// push pushes an image and returns its digest.
func (w *world) push(repository string, content v1.Image) string {
	w.t.Helper()
	w.registry.Push(w.t, repository, content)
	return registrytest.Digest(w.t, content)
}

// run has a namespace of a Scanner run an image, as the controllers record it.
func (w *world) run(scanner *v1alpha1.Scanner, repository, digest string, change ...func(*backend.Image)) backend.Image {
	w.t.Helper()
	img := backend.Image{
		Key: image.Key{Digest: digest, Platform: amd64}, Namespace: scanner.Namespace, Scanner: string(scanner.UID),
		PullReferences: []string{w.registry.Host + "/" + repository + "@" + digest},
	}
	for _, change := range change {
		change(&img)
	}
	w.use(scanner, img)
	return img
}

func (w *world) use(scanner *v1alpha1.Scanner, img backend.Image) {
	w.t.Helper()
	w.must(w.store.SetUsage(w.t.Context(), store.ImageUsage{
		Scanner: string(scanner.UID), Namespace: scanner.Namespace, Key: img.Key, Scope: img.Scope, Engine: w.For(scanner).Engine(),
		Workloads: []store.Workload{{Namespace: scanner.Namespace, Kind: "Deployment", Name: "web", Container: "web", Repository: "web", Reference: "web:1"}},
	}))
}

func withPullSecrets(names ...string) func(*backend.Image) {
	return func(img *backend.Image) { img.Scope, img.PullSecrets = store.Scope(img.Namespace), names }
}

// scan calls the backend as the controllers do until the image has a report made with the current data.
func (w *world) scan(scanner *v1alpha1.Scanner, img backend.Image) {
	w.t.Helper()
	w.Eventually(func() string { return w.step(scanner, img) }).Should(Equal("scanned"))
}

// catalog has the Scanner's engine catalog the image, and match has it match the image, as the ImageScan controller does.
func (w *world) catalog(scanner *v1alpha1.Scanner, img backend.Image) (backend.Progress, error) {
	return backendtest.Caller{Store: w.store, Now: w.clock.Now}.Catalog(w.t.Context(), w.For(scanner), img)
}

func (w *world) match(scanner *v1alpha1.Scanner, img backend.Image) (backend.Progress, error) {
	return backendtest.Caller{Store: w.store, Now: w.clock.Now}.Match(w.t.Context(), w.For(scanner), img)
}

// step catalogs and then matches the image once, and returns the state in one line.
func (w *world) step(scanner *v1alpha1.Scanner, img backend.Image) string {
	for _, step := range []func(*v1alpha1.Scanner, backend.Image) (backend.Progress, error){w.catalog, w.match} {
		switch progress, err := step(scanner, img); {
		case err != nil:
			return err.Error()
		case !progress.Done:
			return progress.Reason + ": " + progress.Message
		}
	}
	return "scanned"
}

// advance advances the clock after all current work is done, so that on a slow machine no lease ends while a report is read.
func (w *world) advance(d time.Duration) {
	w.t.Helper()
	w.waitUntilIdle()
	w.clock.Step(d)
}

// waitUntilIdle waits until nothing is left to do at the current time: every loop has run without a request to Clair, and no image is being indexed.
func (w *world) waitUntilIdle() {
	w.t.Helper()
	for before := -1; before != w.clair.requestCount(); {
		before = w.clair.requestCount()
		for _, i := range w.instances {
			for _, loop := range []chan struct{}{i.polling, i.indexing, i.reading, i.sweeping} {
				w.runLoop(loop)
			}
			w.Eventually(i.indexed).Should(BeZero())
		}
	}
}

// requestPoll requests a poll of Clair's data as early as possible, and waits for its effects.
func (w *world) requestPoll(scanner *v1alpha1.Scanner) {
	w.t.Helper()
	w.For(scanner)
	w.advance(minPollInterval)
	w.must(w.For(scanner).(*Backend).RequestDataPoll(w.t.Context()))
	w.waitUntilIdle()
}

// runLoop wakes a loop and waits until it has run once from start to end, unless the Engines have ended. The loop can accept the third
// wake-up only after the run that the first one started has ended.
func (w *world) runLoop(loop chan struct{}) {
	w.t.Helper()
	for range 3 {
		select {
		case loop <- struct{}{}:
		case <-w.ended:
			return
		case <-time.After(time.Minute):
			w.t.Fatal("a loop hangs")
		}
	}
}

// indexed returns the number of images being indexed.
func (i *instance) indexed() int {
	i.queue.mu.Lock()
	defer i.queue.mu.Unlock()
	return len(i.queue.busy)
}

// findings returns the IDs of an image's findings.
func (w *world) findings(scanner *v1alpha1.Scanner, img backend.Image) []string {
	w.t.Helper()
	cataloged, err := w.store.Catalog(w.t.Context(), w.For(scanner).Engine(), img.Key, img.Scope)
	if errors.Is(err, store.ErrNotFound) {
		return []string{"not indexed (any more)"}
	}
	w.must(err)
	findings, err := w.store.Findings(w.t.Context(), store.Subject{PlatformDigest: cataloged.PlatformDigest, Scope: img.Scope, Engine: cataloged.Engine})
	w.must(err)
	var ids []string
	for _, f := range findings {
		ids = append(ids, f.ID)
	}
	slices.Sort(ids)
	return ids
}

func files(content string) v1ImageFiles { return v1ImageFiles{"etc/content": content} }

type v1ImageFiles = registrytest.Files

// clairsKey is auth.psk.key of a Clair with authentication. preSharedKey is that key as stored in a Secret.
var (
	clairsKey    = []byte("a key of 32 bytes or more that only tests know")
	preSharedKey = base64.StdEncoding.EncodeToString(clairsKey) + "\n"
)

func (w *world) wokenDigests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.woken)
}

func (c *scriptedClair) read() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.reports)
}

type v1Image = v1.Image

// readManifest returns the digest of the manifest in a request to Clair.
func readManifest(r *http.Request) string {
	var manifest claircore.Manifest
	_ = json.NewDecoder(r.Body).Decode(&manifest)
	return manifest.Hash.String()
}
