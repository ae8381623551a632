package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/klauspost/compress/zstd"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/certificate"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	tool              = "grype 0.110.0"
	leaseTime         = 10 * time.Minute
	operatorNamespace = "scanner-operator-system"
	workerImage       = "registry.example.com/scanner-grype:v1"
	hostName          = "scanner-operator-ingest.scanner-operator-system.svc"
)

var (
	noon  = time.Now().Truncate(time.Second) // certificates are verified at the real time
	amd64 = image.Platform{OS: "linux", Architecture: "amd64"}
	// webManifest is the manifest of the image "web" for amd64. webIndex is its index.
	webManifest = manifest("web")
	webIndex    = index(child(webManifest, "amd64"), child(manifest("web for arm64"), "arm64"))
	web         = image.Key{Digest: digest(string(webIndex)), Platform: amd64}
	webPlatform = digest(string(webManifest))
)

// Sizes of the spool in these tests.
const (
	spoolBytes = 1 << 30
	spoolShare = 256 << 20
)

func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// tokens holds the review of each token. It is safe for concurrent use, because requests of one worker continue while the test makes
// another one.
type tokens struct{ known sync.Map }

func (t *tokens) set(token string, status authenticationv1.TokenReviewStatus) {
	t.known.Store(token, status)
}

// status returns the review of a token. That of an unknown token is empty: it is not authenticated.
func (t *tokens) status(token string) authenticationv1.TokenReviewStatus {
	status, _ := t.known.Load(token)
	known, _ := status.(authenticationv1.TokenReviewStatus)
	return known
}

// ingestAPI serves the API over TLS with a fake cluster that has tokens and pods.
type ingestAPI struct {
	t       testing.TB
	url     string
	http    *http.Client
	store   *store.Store
	backend *grype.Backend
	ingest  *Ingest
	clock   *clocktesting.FakeClock
	cluster client.Client
	spool   string
	// tokens holds the API server's reviews.
	tokens    tokens
	reviewErr error
	// reviews counts the token reviews.
	reviews atomic.Int32
	// woken holds the digests of images whose ImageScans the backend woke.
	wokenMu sync.Mutex
	woken   []string
}

func newIngestAPI(t testing.TB, limits Limits) *ingestAPI {
	t.Helper()
	a := &ingestAPI{t: t, clock: clocktesting.NewFakeClock(noon), spool: filepath.Join(t.TempDir(), "spool")}
	a.cluster = fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Create: a.create}).Build()
	db, err := storetest.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), a.clock.Now, store.OpenSQLite)
	a.must(err)
	t.Cleanup(func() { _ = db.Close() })
	a.store = db
	a.backend = grype.New(grype.Options{
		Client: a.cluster, Reader: a.cluster, Store: db, Config: config.Default(), Clock: a.clock, Log: logr.Discard(),
		Namespace: operatorNamespace, WorkerImage: workerImage, ServerCA: func() []byte { return nil },
		Wake: a.wake, DataChanged: func(context.Context) {}, Random: rand.String,
	})
	a.install(noon, tool)
	ingest := &Ingest{
		Store: db, Backend: a.backend, Clock: a.clock, Log: logr.Discard(), Client: a.cluster, Reader: a.cluster,
		SpoolDir: a.spool, SpoolBytes: spoolBytes, SpoolShare: spoolShare, LeaseTime: leaseTime, WorkerImage: workerImage, Limits: limits,
	}
	handler, err := ingest.Handler()
	a.must(err)
	a.ingest = ingest
	a.serve(handler)
	return a
}

// serve starts the server. Clients verify it as workers do: with the operator's own CA and the Service's name.
func (a *ingestAPI) serve(handler http.Handler) {
	a.t.Helper()
	authority := &certificate.Authority{Client: a.cluster, Reader: a.cluster, Clock: a.clock, Namespace: operatorNamespace, Secret: "authority"}
	a.must(authority.Refresh(a.t.Context()))
	serving := &certificate.Server{Authority: authority, Names: []string{hostName}}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: serving.GetCertificate}
	server.StartTLS()
	a.t.Cleanup(server.Close)
	// StartTLS adds its own certificate, which would take precedence.
	server.TLS.Certificates = nil
	a.url = server.URL
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), ServerName: hostName, MinVersion: tls.VersionTLS13}}
	a.t.Cleanup(transport.CloseIdleConnections)
	a.http = &http.Client{Transport: transport}
}

// wake records that the backend woke the ImageScans of an image.
func (a *ingestAPI) wake(_ context.Context, digest string) {
	a.wokenMu.Lock()
	defer a.wokenMu.Unlock()
	a.woken = append(a.woken, digest)
}

// install has another worker open a vulnerability database, which becomes the current data.
func (a *ingestAPI) install(built time.Time, tool string) {
	a.t.Helper()
	_, err := a.backend.RecordDatabase(a.t.Context(), workerapi.DatabaseStatus{Tool: tool, Installed: &workerapi.Database{Built: built}})
	a.must(err)
}

// runJobs runs the backend's Job loop until the condition holds.
func (a *ingestAPI) runJobs(until func() bool) {
	a.t.Helper()
	ctx, stop := context.WithCancel(a.t.Context())
	var loop sync.WaitGroup
	defer loop.Wait()
	defer stop()
	loop.Go(func() { a.must(a.backend.RunJobs(ctx)) })
	for deadline := time.Now().Add(10 * time.Second); !until(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatal("the Job loop does not do what it should")
		}
	}
}

// liveJobs returns the names of the Jobs that have not ended.
func (a *ingestAPI) liveJobs() (names []string) {
	a.t.Helper()
	jobs, err := a.store.LiveJobs(a.t.Context())
	a.must(err)
	for _, job := range jobs {
		names = append(names, job.Name)
	}
	return names
}

// webSubject is the subject of reports about the image "web".
var webSubject = store.Subject{PlatformDigest: webPlatform, Scope: store.Cluster, Engine: grype.Engine}

// reported returns the IDs of the findings in the report about the image "web"; nil if there is no report.
func (a *ingestAPI) reported() (ids []string) {
	a.t.Helper()
	summary, err := a.store.Summary(a.t.Context(), webSubject, store.ImageExceptions{})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	a.must(err)
	for _, f := range summary.Top {
		ids = append(ids, f.ID)
	}
	return ids
}

// matchFailure returns why the image "web" could not be matched; the zero value if no failure is recorded.
func (a *ingestAPI) matchFailure() store.MatchFailure {
	a.t.Helper()
	failure, err := a.store.MatchFailure(a.t.Context(), webSubject)
	if !errors.Is(err, store.ErrNotFound) {
		a.must(err)
	}
	return failure
}

// create answers TokenReviews and sets UIDs, as the API server does.
func (a *ingestAPI) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	review, isReview := o.(*authenticationv1.TokenReview)
	if !isReview {
		if o.GetUID() == "" {
			o.SetUID(types.UID("uid-of-" + o.GetName()))
		}
		return c.Create(ctx, o, opts...)
	}
	a.reviews.Add(1)
	if a.reviewErr != nil {
		return a.reviewErr
	}
	if len(review.Spec.Audiences) != 1 || review.Spec.Audiences[0] != workerapi.Audience {
		return fmt.Errorf("the review asks for the audiences %q", review.Spec.Audiences)
	}
	review.Status = a.tokens.status(review.Spec.Token)
	return nil
}

func (a *ingestAPI) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// worker is a pod of a Job, with its token.
type worker struct {
	api   *ingestAPI
	pod   *corev1.Pod
	token string
}

// job records a Job and creates its pod.
func (a *ingestAPI) job(purpose store.JobPurpose, name string) *worker {
	a.t.Helper()
	a.must(a.store.SaveJob(a.t.Context(), store.Job{
		Namespace: operatorNamespace, Name: name, UID: "uid-of-" + name, Purpose: purpose, Key: web, CreatedAt: noon, Worker: workerImage,
	}))
	return a.worker(operatorNamespace, name+"-pod", "uid-of-"+name)
}

// tenant records a catalog Job in a tenant's namespace and creates its pod. The tenant controls that pod and its token.
func (a *ingestAPI) tenant(namespace, name string, key image.Key) *worker {
	a.t.Helper()
	uid := "uid-of-" + namespace + "-" + name
	a.must(a.store.SaveJob(a.t.Context(), store.Job{
		Namespace: namespace, Name: name, UID: uid, Purpose: store.JobCatalog, Key: key, Scope: store.Scope(namespace), CreatedAt: noon, Worker: workerImage,
	}))
	return a.worker(namespace, name+"-pod", uid)
}

// worker creates a pod with an owner reference to a Job.
func (a *ingestAPI) worker(namespace, name, job string) *worker {
	a.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-of-" + namespace + "-" + name),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "x", UID: types.UID(job), Controller: ptr.To(true)}},
	}}
	a.must(a.cluster.Create(a.t.Context(), pod))
	w := &worker{api: a, pod: pod, token: "token-of-" + namespace + "-" + name}
	a.tokens.set(w.token, w.review())
	return w
}

// review returns the API server's review of the pod's token.
func (w *worker) review() authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{workerapi.Audience},
		User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:" + w.pod.Namespace + ":default",
			Extra:    map[string]authenticationv1.ExtraValue{extraPodName: {w.pod.Name}, extraPodUID: {string(w.pod.UID)}},
		},
	}
}

// answer is an answer of the API.
type answer struct {
	status     int
	body       string
	retryAfter string
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, strings.TrimSpace(a.body)) }

// send sends a request with the worker's token.
func (w *worker) send(method, path string, body io.Reader, header ...string) answer {
	w.api.t.Helper()
	request, err := http.NewRequestWithContext(w.api.t.Context(), method, w.api.url+path, body)
	w.api.must(err)
	if w.token != "" {
		request.Header.Set("Authorization", "Bearer "+w.token)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := w.api.http.Do(request)
	w.api.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.api.must(err)
	return answer{response.StatusCode, string(text), response.Header.Get("Retry-After")}
}

// post sends a value as JSON and decodes the answer into another one, unless that is nil.
func (w *worker) post(path string, value, into any) answer {
	w.api.t.Helper()
	body, err := json.Marshal(value)
	w.api.must(err)
	got := w.send(http.MethodPost, path, bytes.NewReader(body))
	if got.status == http.StatusOK && into != nil {
		w.api.must(json.Unmarshal([]byte(got.body), into))
	}
	return got
}

// put uploads a body with its digest.
func (w *worker) put(path string, body []byte) answer {
	w.api.t.Helper()
	return w.send(http.MethodPut, path, bytes.NewReader(body), workerapi.DigestHeader, digest(string(body)))
}

// compressed returns the content as zstd.
func compressed(t testing.TB, content []byte, options ...zstd.EOption) []byte {
	t.Helper()
	body, err := compress(content, options...)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func compress(content []byte, options ...zstd.EOption) ([]byte, error) {
	var body bytes.Buffer
	encoder, err := zstd.NewWriter(&body, options...)
	if err != nil {
		return nil, err
	}
	if _, err := encoder.Write(content); err != nil {
		return nil, err
	}
	err = encoder.Close() // closed first, because Close writes the rest
	return body.Bytes(), err
}

// uploadValidResult has a worker upload a valid result for the image "web".
func (w *worker) uploadValidResult() {
	w.api.t.Helper()
	w.want(w.uploadResult(newCatalogUpload(w.api.t)), http.StatusNoContent, "")
}

// uploadResult uploads a catalog Job's result.
func (w *worker) uploadResult(p catalogUpload) answer {
	w.api.t.Helper()
	return w.put(workerapi.PathCatalogResult, p.body(w.api.t))
}

// catalogUpload is the result of a catalog Job.
type catalogUpload struct {
	result           workerapi.CatalogResult
	manifests        [][]byte
	sbom, matchInput []byte
	// additional are the SBOM's additional formats.
	additional []additionalSBOM
	// vex are OpenVEX documents, which jane has signed.
	vex [][]byte
	// corruptHeader changes the header of the upload; nil for none.
	corruptHeader func(*workerapi.CatalogResult)
}

// additionalSBOM is an SBOM in an additional format.
type additionalSBOM struct {
	format string
	sbom   []byte
}

// newCatalogUpload returns a result for the image "web".
func newCatalogUpload(t testing.TB, changes ...func(*catalogUpload)) catalogUpload {
	t.Helper()
	p := catalogUpload{
		result:    workerapi.CatalogResult{Image: "docker.io/library/web", Platform: "linux/amd64", Distro: "debian 12", Packages: 7, Tool: "syft 1.42.3"},
		manifests: [][]byte{webIndex, webManifest}, sbom: compressed(t, []byte("SBOM")), matchInput: newMatchInput(t),
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

// newMatchInput returns a match input with one package.
func newMatchInput(t testing.TB) []byte { return compressed(t, []byte(`{"artifacts":[{}]}`)) }

// body returns the parcel as it is sent.
func (p catalogUpload) body(t testing.TB) []byte {
	t.Helper()
	header := p.result
	for _, manifest := range p.manifests {
		header.ManifestSizes = append(header.ManifestSizes, int64(len(manifest)))
	}
	header.SBOMSize, header.MatchInputSize = int64(len(p.sbom)), int64(len(p.matchInput))
	documents := [][]byte{bytes.Join(p.manifests, nil), p.sbom, p.matchInput}
	for _, a := range p.additional {
		header.Additional = append(header.Additional, workerapi.FormattedSBOM{Format: a.format, Size: int64(len(a.sbom))})
		documents = append(documents, a.sbom)
	}
	for _, document := range p.vex {
		header.VEX = append(header.VEX, workerapi.VEXDocument{Signer: "jane", Size: int64(len(document))})
		documents = append(documents, document)
	}
	if p.corruptHeader != nil {
		p.corruptHeader(&header)
	}
	line, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join(append([][]byte{append(line, '\n')}, documents...), nil)
}

// manifest returns an image manifest that is unique to the name.
func manifest(name string) []byte {
	return fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":2,"digest":%q},"layers":[],"annotations":{"name":%q}}`,
		digest("{}"), name)
}

// index returns an image index of manifests and other indexes.
func index(children ...string) []byte {
	return fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}`, strings.Join(children, ","))
}

// child returns the entry of a manifest in an index.
func child(manifest []byte, architecture string) string {
	return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":%d,"digest":%q,"platform":{"os":"linux","architecture":%q}}`,
		len(manifest), digest(string(manifest)), architecture)
}

// grandchildren returns the entry of an index in another one.
func grandchildren(index []byte) string {
	return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.index.v1+json","size":%d,"digest":%q}`, len(index), digest(string(index)))
}

// want compares an answer's status, and what its text must hold.
func (w *worker) want(got answer, status int, text string) {
	w.api.t.Helper()
	if got.status != status || !strings.Contains(got.body, text) {
		w.api.t.Errorf("the answer is %s, want %d %s", got, status, text)
	}
}

// setUsed has a Scanner run the image "web".
func (a *ingestAPI) setUsed() {
	a.t.Helper()
	a.must(a.store.SetUsage(a.t.Context(), store.ImageUsage{
		Scanner: "scanner", Namespace: "shop", Key: web, Engine: "grype",
		Workloads: []store.Workload{{Namespace: "shop", Kind: "Deployment", Name: "web", Container: "main", Repository: "docker.io/library/web", Reference: "docker.io/library/web:1"}},
	}))
}

// requestLeases requests leases for a match worker with the database of noon, which holds the given leases.
func (w *worker) requestLeases(held ...string) workerapi.LeaseResponse {
	return w.requestLeasesWith(noon, held...)
}

// requestLeasesWith requests leases for a match worker with the given build of the database.
func (w *worker) requestLeasesWith(built time.Time, held ...string) workerapi.LeaseResponse {
	w.api.t.Helper()
	var response workerapi.LeaseResponse
	w.want(w.post(workerapi.PathLeases, workerapi.LeaseRequest{Built: built, Max: 10, Held: held}, &response), http.StatusOK, "")
	return response
}

// leased returns a match worker that holds a lease of the image "web", and the paths of the lease.
func (a *ingestAPI) leased() (w *worker, input, report, failure string) {
	a.t.Helper()
	a.setUsed()
	a.job(store.JobCatalog, "catalog").uploadValidResult()
	w = a.job(store.JobMatch, "match")
	response := w.requestLeases()
	if len(response.Leases) != 1 {
		a.t.Fatalf("%d images are lent, want 1", len(response.Leases))
	}
	at := func(path string) string { return strings.ReplaceAll(path, "{lease}", response.Leases[0].ID) }
	return w, at(workerapi.PathLeaseInput), at(workerapi.PathLeaseReport), at(workerapi.PathLeaseFailure)
}

// reportBody returns a report as a worker sends it.
func reportBody(t testing.TB, report workerapi.Report) []byte {
	t.Helper()
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return compressed(t, text)
}

var (
	aReport        = workerapi.Report{Database: workerapi.Database{Built: noon}, Tool: tool, Findings: []workerapi.Finding{{ID: "CVE-2024-0001"}}}
	errUnavailable = errors.New("the database is locked: secret details")
)
