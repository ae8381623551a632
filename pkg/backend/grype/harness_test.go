package grype

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/backendtest"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	operatorNamespace = "scanner-operator-system"
	scannerUID        = "scanner-uid"
	workerImage       = "registry.example.com/scanner-grype:v1"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	amd64 = image.Platform{OS: "linux", Architecture: "amd64"}
	// leaseTime is the LeaseTime of the default configuration.
	leaseTime = LeaseTime(config.Default().Grype.Match)
)

// engine is a Backend with a fake cluster, a store and a clock that the test controls.
type engine struct {
	*Backend
	t       *testing.T
	cluster client.Client
	clock   *clocktesting.FakePassiveClock
	// storePath is the store's file.
	storePath string
	// woken holds the digests passed to Wake. wokenMu guards it, because namespaces are handled concurrently.
	woken   []string
	wokenMu sync.Mutex
	// onCreate and onDelete intercept requests to the API server.
	onCreate, onDelete func(client.Object) error
	dataChanges        int
}

func newEngine(t *testing.T, change ...func(*Options)) *engine {
	t.Helper()
	e := &engine{t: t, clock: clocktesting.NewFakePassiveClock(noon), storePath: filepath.Join(t.TempDir(), "store.db")}
	e.cluster = fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Create: e.create, Delete: e.delete}).
		WithIndex(&corev1.Event{}, involvedID, func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithObjects(namespace("shop"), namespace("blog")).Build()
	db, err := storetest.Open(t.Context(), e.storePath, e.clock.Now, store.OpenSQLite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	names := 0
	options := Options{
		Client: e.cluster, Reader: e.cluster, Store: db, Config: config.Default(), Clock: e.clock, Log: testr.New(t),
		HTTP: http.DefaultClient, Namespace: operatorNamespace, WorkerImage: workerImage,
		ServerURL: "https://ingest.example.com:9443", ServerCA: func() []byte { return []byte("-----BEGIN CERTIFICATE-----\n") },
		Wake: func(_ context.Context, digest string) {
			e.wokenMu.Lock()
			defer e.wokenMu.Unlock()
			e.woken = append(e.woken, digest)
		},
		DataChanged: func(context.Context) { e.dataChanges++ },
		Random:      func(n int) string { names++; return fmt.Sprintf("%0*d", n, names) },
	}
	for _, c := range change {
		c(&options)
	}
	e.Backend = New(options)
	return e
}

// namespace returns a namespace that outlives its deletion for a while, as in a cluster.
func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"test.example.com/contents"}}}
}

// create sets a UID, as the API server does.
func (e *engine) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	if e.onCreate != nil {
		if err := e.onCreate(o); err != nil {
			return err
		}
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-of-" + o.GetName()))
	}
	return c.Create(ctx, o, opts...)
}

// delete checks the UID precondition, as the API server does.
func (e *engine) delete(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	if e.onDelete != nil {
		if err := e.onDelete(o); err != nil {
			return err
		}
	}
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	if options.Preconditions != nil && options.Preconditions.UID != nil {
		existing := o.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), existing); err != nil {
			return err
		}
		if existing.GetUID() != *options.Preconditions.UID {
			return apierrors.NewConflict(schema.GroupResource{Resource: "jobs"}, o.GetName(), errors.New("the UID is another one"))
		}
	}
	return c.Delete(ctx, o)
}

// catalogJob returns the Job for an image. exceeded is the number of bytes of memory that were not enough before; 0 for none.
func (e *engine) catalogJob(name string, img backend.Image, exceeded int64) *batchv1.Job {
	return e.Backend.catalogJob(name, e.newCatalogRequest(img), e.ladderOf(jobSettings(img)).resourcesAfter(exceeded))
}

func (e *engine) advance(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

func (e *engine) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

func key(name string) image.Key {
	return image.Key{Digest: digest("index of " + name), Platform: amd64}
}

// public returns an image that anybody may pull.
func public(name string) backend.Image {
	return backend.Image{Key: key(name), Scope: store.Cluster, Namespace: "shop", Scanner: scannerUID, PullReferences: []string{"docker.io/library/" + name + "@" + key(name).Digest}}
}

// private returns an image that needs pull secrets of the namespace "shop".
func private(name string, secrets ...string) backend.Image {
	img := public(name)
	img.Scope, img.PullSecrets = "shop", secrets
	return img
}

// setUsed has the Scanners of the images use them.
func (e *engine) setUsed(images ...backend.Image) {
	e.t.Helper()
	for _, img := range images {
		e.must(e.Store.SetUsage(e.t.Context(), store.ImageUsage{
			Scanner: img.Scanner, Namespace: img.Namespace, Key: img.Key, Scope: img.Scope, Engine: Engine,
			Workloads: []store.Workload{{Namespace: img.Namespace, Kind: "Deployment", Name: "web", Container: "main", Repository: "docker.io/library/x", Reference: "docker.io/library/x:1"}},
		}))
	}
}

// saveCatalog stores the result of an image's catalog Job.
func (e *engine) saveCatalog(img backend.Image) {
	e.t.Helper()
	e.must(e.Store.SaveCatalog(e.t.Context(), store.Catalog{
		Engine: Engine, Key: img.Key, Scope: img.Scope, PlatformDigest: platformDigest(img), Packages: 1, Tool: "syft", CatalogedAt: e.clock.Now(),
	}, map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(nil), store.ArtifactMatchInput: bytes.NewReader(nil)}))
}

func platformDigest(img backend.Image) string { return digest("manifest of " + img.Key.String()) }

// Index catalogs an image, and Match matches it, as the ImageScan controller does.
func (e *engine) Index(ctx context.Context, img backend.Image) (backend.Progress, error) {
	return backendtest.Caller{Store: e.Store, Now: e.clock.Now}.Catalog(ctx, e.Backend, img)
}

func (e *engine) Match(ctx context.Context, img backend.Image) (backend.Progress, error) {
	return backendtest.Caller{Store: e.Store, Now: e.clock.Now}.Match(ctx, e.Backend, img)
}

// index calls Index and returns the reason, or "done". match does so with Match.
func (e *engine) index(img backend.Image) string { return e.progressText(e.Index(e.t.Context(), img)) }

func (e *engine) match(img backend.Image) string { return e.progressText(e.Match(e.t.Context(), img)) }

func (e *engine) progressText(progress backend.Progress, err error) string {
	e.t.Helper()
	var failure *backend.Failure
	switch {
	case errors.As(err, &failure):
		return "failure " + failure.Reason
	case err != nil:
		return "error " + err.Error()
	case progress.Done:
		return "done"
	case progress.RequeueAfter <= 0:
		e.t.Errorf("%q does not say when to ask again", progress.Reason)
	}
	return progress.Reason
}

// runJobsOnce runs the Job loop once.
func (e *engine) runJobsOnce() {
	e.t.Helper()
	e.must(e.reconcileJobs(e.t.Context()))
}

// jobs returns the Jobs of a component in the cluster, by name.
func (e *engine) jobs(component string) []batchv1.Job {
	e.t.Helper()
	var jobs batchv1.JobList
	e.must(e.cluster.List(e.t.Context(), &jobs, client.MatchingLabels{"app.kubernetes.io/component": component}))
	return jobs.Items
}

// job returns the only Job of a component.
func (e *engine) job(component string) *batchv1.Job {
	e.t.Helper()
	jobs := e.jobs(component)
	if len(jobs) != 1 {
		e.t.Fatalf("there are %d %s Jobs, want 1", len(jobs), component)
	}
	return &jobs[0]
}

// records returns the names of the Jobs in the store, with "?" after those without a UID and "!" after ended ones.
func (e *engine) records() (names []string) {
	e.t.Helper()
	jobs, err := e.Store.LiveJobs(e.t.Context())
	e.must(err)
	for _, job := range jobs {
		name := job.Name
		if job.UID == "" {
			name += "?"
		}
		names = append(names, name)
	}
	ended, err := e.Store.EndedJobs(e.t.Context())
	e.must(err)
	for _, job := range ended {
		names = append(names, job.Name+"!")
	}
	slices.Sort(names)
	return names
}

// setEndCondition adds a condition to a Job, as the Job controller does.
func (e *engine) setEndCondition(job *batchv1.Job, kind batchv1.JobConditionType, reason, message string) {
	e.t.Helper()
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message})
	e.must(e.cluster.Status().Update(e.t.Context(), job))
}

// pod creates a Job's pod with the given changes.
func (e *engine) pod(job *batchv1.Job, changes ...func(*corev1.Pod)) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: job.Namespace, Name: job.Name + "-pod", Labels: map[string]string{batchv1.JobNameLabel: job.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: ptr.To(true)}},
	}}
	for _, change := range changes {
		change(pod)
	}
	e.must(e.cluster.Create(e.t.Context(), pod))
	return pod
}

// terminated sets the termination state of the worker's container.
func terminated(code int32, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerContainer, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.Time{Time: noon}},
		}}}
	}
}

// build returns a vulnerability database made this many hours after noon.
func build(hours int) workerapi.Database {
	return workerapi.Database{Built: noon.Add(time.Duration(hours) * time.Hour), SchemaVersion: "v6.1.4", Checksum: digest(fmt.Sprint("build ", hours))}
}

const tool = "grype 0.110.0"

// reportInstalled has a match worker report that it opened a build. It returns the build that the worker should have.
func (e *engine) reportInstalled(database workerapi.Database) time.Time {
	e.t.Helper()
	wanted, err := e.RecordDatabase(e.t.Context(), workerapi.DatabaseStatus{Tool: tool, Installed: &database})
	e.must(err)
	return wanted
}

// setListed makes a build the newest one in the listing.
func (e *engine) setListed(database workerapi.Database) {
	e.data.mu.Lock()
	defer e.data.mu.Unlock()
	e.data.listed = database
}

// leaseOne returns the lease of one image for a match worker.
func (e *engine) leaseOne() store.Lease {
	e.t.Helper()
	leases, err := e.Store.LeaseMatches(e.t.Context(), Engine, "job-uid", 1, e.clock.Now(), e.clock.Now().Add(leaseTime))
	e.must(err)
	if len(leases) != 1 {
		e.t.Fatalf("%d images can be leased, want 1", len(leases))
	}
	return leases[0]
}

// summary returns the summary of an image's report.
func (e *engine) summary(img backend.Image) store.Summary {
	e.t.Helper()
	summary, err := e.Store.Summary(e.t.Context(), store.Subject{PlatformDigest: platformDigest(img), Scope: img.Scope, Engine: Engine}, store.ImageExceptions{})
	e.must(err)
	return summary
}

var openssl = workerapi.Finding{
	ID: "CVE-2024-0001", Namespace: "debian:distro:debian:12", Severity: finding.High.String(), FixState: "fixed", FixVersions: []string{"3.0.2"},
	Package: workerapi.Package{Name: "openssl", Version: "3.0.1", Type: "deb", PURL: "pkg:deb/debian/openssl@3.0.1"},
}
