package grype

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/budget"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestIndexUntilCataloged: a Job is created once, and Index waits until its result is stored.
func TestIndexUntilCataloged(t *testing.T) {
	e := newEngine(t)
	web := public("web")
	for range 3 {
		if got := e.index(web); got != v1alpha1.ReasonCataloging {
			t.Fatalf("index says %q, want %q", got, v1alpha1.ReasonCataloging)
		}
	}
	job := e.job("catalog")
	if diff := cmp.Diff([]string{job.Name}, e.records()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	record, err := e.Store.JobByUID(t.Context(), string(job.UID))
	e.must(err)
	want := store.Job{
		Namespace: operatorNamespace, Name: job.Name, UID: string(job.UID), Purpose: store.JobCatalog,
		Key: web.Key, Scope: store.Cluster, CreatedAt: noon, Scanner: scannerUID, Memory: 2 << 30, MaxMemory: 8 << 30, Worker: workerImage,
	}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("what the Job may speak of (-want +got):\n%s", diff)
	}
	e.saveCatalog(web)
	if got := e.index(web); got != "done" {
		t.Errorf("index says %q of a cataloged image, want done", got)
	}
}

// TestIndexSharesJobs: one Job serves all Scanners that want the same image in the same credential scope.
func TestIndexSharesJobs(t *testing.T) {
	web, elsewhere := public("web"), public("web")
	elsewhere.Namespace = "blog"
	secret, foreign := private("web", "pull"), private("web", "pull")
	foreign.Namespace, foreign.Scope = "blog", "blog"
	e := newEngine(t, func(o *Options) { o.Config.Grype.Catalog.MaxJobsPerNamespace = 4 })
	for _, img := range []struct {
		name string
		jobs int
	}{{"the first", 1}, {"another namespace, anybody may pull", 1}, {"with pull secrets", 2}, {"with another namespace's pull secrets", 3}} {
		switch img.name {
		case "the first":
			e.index(web)
		case "another namespace, anybody may pull":
			e.index(elsewhere)
		case "with pull secrets":
			e.index(secret)
		default:
			e.index(foreign)
		}
		if got := len(e.jobs("catalog")); got != img.jobs {
			t.Errorf("%s: %d Jobs, want %d", img.name, got, img.jobs)
		}
	}
	arm := public("web")
	arm.Key.Platform.Architecture = "arm64"
	e.index(arm)
	if got := len(e.jobs("catalog")); got != 4 {
		t.Errorf("another platform: %d Jobs, want 4", got)
	}
}

// TestConcurrentIndexMakesOneJob: concurrent requests for an image create one Job.
func TestConcurrentIndexMakesOneJob(t *testing.T) {
	e := newEngine(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := e.Index(t.Context(), public("web")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	e.job("catalog")
}

// TestIndexWaitsForSlot: there are no more Jobs than configured, and the end of a Job frees its slot.
func TestIndexWaitsForSlot(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Config.Grype.Catalog.MaxJobs = 2 })
	e.setUsed(public("a"), public("b"), public("c"))
	e.index(public("a"))
	e.index(public("b"))
	if got := e.index(public("c")); got != v1alpha1.ReasonPending {
		t.Errorf("with two Jobs of two, index says %q, want %q", got, v1alpha1.ReasonPending)
	}
	if got := e.index(public("a")); got != v1alpha1.ReasonCataloging {
		t.Errorf("an image whose Job runs says %q, want %q", got, v1alpha1.ReasonCataloging)
	}
	e.saveCatalog(public("a"))
	jobs := e.jobs("catalog")
	e.setEndCondition(&jobs[0], "Complete", "", "")
	e.runJobsOnce()
	if got := e.index(public("c")); got != v1alpha1.ReasonCataloging {
		t.Errorf("with a free place, index says %q, want %q", got, v1alpha1.ReasonCataloging)
	}
}

// TestRejectedJobs: if a namespace rejects a Job, the image fails with a reason that names what rejected it. A namespace that is
// being deleted and a failing API server are no failure of the image.
func TestRejectedJobs(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	terminating := apierrors.NewForbidden(jobs, "scan", errors.New("unable to create new content in namespace shop because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tt := range map[string]struct {
		err     error
		says    string // empty if Index returns another error
		records int    // a Job that may exist stays recorded
	}{
		"a quota":                   {apierrors.NewForbidden(jobs, "scan", errors.New("exceeded quota: compute, requested: count/jobs.batch=1")), "failure ResourceQuota", 0},
		"fields that are not valid": {apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "scan", nil), "failure JobRejected", 0},
		"a policy engine's webhook": {apierrors.NewBadRequest(`admission webhook "validate.kyverno.svc" denied the request: no`), "failure PolicyDenied", 0},
		"a namespace that has gone": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), v1alpha1.ReasonPending, 0},
		"a namespace being deleted": {terminating, v1alpha1.ReasonPending, 0},
		"a webhook that is down":    {apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.com": failed to call webhook: connection refused`)), "failure PolicyUnavailable", 0},
		"a webhook that hangs":      {fmt.Errorf("Post: %w", context.DeadlineExceeded), "failure PolicyUnavailable", 1},
		"too slow for itself":       {apierrors.NewTimeoutError("request did not complete within requested timeout", 0), "failure PolicyUnavailable", 1},
		"more than it takes":        {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), "failure JobRejected", 0},
		"too many requests":         {apierrors.NewTooManyRequests("later", 1), "", 0},
		"a quota being updated":     {apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "compute", errors.New("modified")), "", 0},
		"no answer":                 {errors.New("connection reset by peer"), "", 1},
		"an internal error":         {apierrors.NewInternalError(errors.New("etcd")), "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.onCreate = func(client.Object) error { return tt.err }
			for _, img := range []backend.Image{public("web"), public("other")} {
				switch got := e.index(img); {
				case tt.says == "" && !strings.HasPrefix(got, "error creating a catalog job"):
					t.Errorf("index says %q, want an error that says what was tried", got)
				case tt.says != "" && got != tt.says:
					t.Errorf("index says %q, want %q", got, tt.says)
				}
				if tt.records > 0 {
					break
				}
			}
			if records := e.records(); len(records) != tt.records {
				t.Errorf("records %q, want %d", records, tt.records)
			}
		})
	}
}

// TestLostAnswer: the API server created the Job but its answer was lost. The Job loop finds the Job by its record and removes it, and
// another one is created.
func TestLostAnswer(t *testing.T) {
	e := newEngine(t)
	e.setUsed(public("web"))
	made := errors.New("connection reset by peer")
	e.onCreate = func(o client.Object) error {
		e.onCreate = nil
		if err := e.cluster.Create(t.Context(), o.DeepCopyObject().(client.Object)); err != nil {
			return err
		}
		return made
	}
	if got := e.index(public("web")); !strings.Contains(got, made.Error()) {
		t.Fatalf("index says %q, want the error", got)
	}
	lost := e.job("catalog").Name
	e.advance(creationTimeout)
	e.runJobsOnce()
	if jobs := e.jobs("catalog"); len(jobs) != 0 {
		t.Errorf("the Job %s that nobody knows still runs", lost)
	}
	if got := e.index(public("web")); got != v1alpha1.ReasonCataloging {
		t.Errorf("index says %q, want %q", got, v1alpha1.ReasonCataloging)
	}
	if got := e.job("catalog").Name; got == lost {
		t.Error("the new Job has the old one's name")
	}
}

// TestFailuresAreShared: for a short time a failure is returned to everyone who wants the same image. Ten Scanners therefore do not create
// ten Jobs for a missing image.
func TestFailuresAreShared(t *testing.T) {
	e := newEngine(t)
	e.setUsed(public("web"))
	e.index(public("web"))
	job := e.job("catalog")
	e.pod(job, terminated(1, "Error", `{"reason":"ImageNotFound","message":"it is not there"}`))
	e.setEndCondition(job, "Failed", "BackoffLimitExceeded", "")
	e.runJobsOnce()
	for range 3 {
		if got := e.index(public("web")); got != "failure ImageNotFound" {
			t.Fatalf("index says %q, want the failure", got)
		}
	}
	if got := e.index(private("web", "pull")); got != v1alpha1.ReasonCataloging {
		t.Errorf("with pull secrets index says %q, want another try", got)
	}
	e.advance(failureTTL)
	if got := e.index(public("web")); got != v1alpha1.ReasonCataloging {
		t.Errorf("after %s index says %q, want another try", failureTTL, got)
	}
	if failureTTL >= time.Minute {
		t.Error("failures are remembered for longer than an ImageScan waits, and would suppress its attempts")
	}
}

// TestFailedRescan: a requested rescan gets its Job although there is a catalog, keeps its position while it waits, and fails as any other.
func TestFailedRescan(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Config.Grype.Catalog.MaxJobs = 1 })
	web, other := public("web"), public("other")
	e.setUsed(web, other)
	e.saveCatalog(web)
	e.must(e.Store.RequestRescan(t.Context(), web.OfScanner()))
	e.index(other)
	if got := e.index(web); got != v1alpha1.ReasonPending {
		t.Errorf("index says %q, want that the image waits", got)
	}
	e.saveCatalog(other)
	e.finishJob(other)
	if got := e.queue.length(); got != 1 {
		t.Fatalf("%d images wait for a Job, want the one whose rescan is requested", got)
	}
	e.index(web)
	job := e.jobFor(web)
	e.pod(job, terminated(1, "Error", `{"reason":"ImageNotFound","message":"it is not there"}`))
	e.setEndCondition(job, "Failed", "BackoffLimitExceeded", "")
	e.runJobsOnce()
	if got := e.index(web); got != "failure ImageNotFound" {
		t.Errorf("index says %q, want the failure", got)
	}
	if _, err := e.Store.Catalog(t.Context(), Engine, web.Key, web.Scope); err != nil {
		t.Errorf("the catalog of everybody else: %v", err)
	}
}

// TestFailedRescanAfterRestart: the failed Job of a rescan that a ClusterScanner requested in one of its namespaces counts as a failure, although another
// one has the image too, and the manager has restarted in the meantime.
func TestFailedRescanAfterRestart(t *testing.T) {
	for _, namespace := range []string{"blog", "shop", "zoo"} {
		t.Run(namespace, func(t *testing.T) {
			e := newEngine(t)
			var images []backend.Image
			var requested backend.Image
			for _, other := range []string{"blog", "shop", "zoo"} {
				img := public("web")
				img.Namespace = other
				images = append(images, img)
				if other == namespace {
					requested = img
				}
			}
			e.setUsed(images...)
			e.saveCatalog(requested)
			e.must(e.Store.RequestRescan(t.Context(), requested.OfScanner()))
			e.index(requested)
			job := e.jobFor(requested)
			e.Backend = New(e.Options)
			e.pod(job, terminated(1, "Error", `{"reason":"ImageNotFound","message":"it is not there"}`))
			e.setEndCondition(job, "Failed", "BackoffLimitExceeded", "")
			e.runJobsOnce()
			ended, err := e.Store.EndedJobs(t.Context())
			if err != nil || len(ended) != 1 || !ended[0].Failed {
				t.Errorf("the ended Jobs are %+v, want one that failed (%v)", ended, err)
			}
		})
	}
}

// TestBudgetOfAnotherNamespace: a result over a namespace's storage budget is a failure of that namespace only. A worker's own claim to be
// over budget has no effect.
func TestBudgetOfAnotherNamespace(t *testing.T) {
	for name, refused := range map[string]bool{"over budget": true, "another refusal": false} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			mine, theirs := public("web"), public("web")
			theirs.Namespace, theirs.Scanner = "blog", "uid-of-another-scanner"
			e.setUsed(mine, theirs)
			e.index(mine)
			job := e.job("catalog")
			own, others := "failure UploadRefused", "failure UploadRefused"
			if refused {
				e.RecordOverBudget(t.Context(), store.Job{Namespace: job.Namespace, Name: job.Name})
				own, others = "failure "+v1alpha1.ReasonStoreBudgetExceeded, v1alpha1.ReasonCataloging
			}
			e.pod(job, terminated(1, "Error", `{"reason":"UploadRefused","message":"no room"}`))
			e.setEndCondition(job, "Failed", "BackoffLimitExceeded", "")
			e.runJobsOnce()
			if got := e.index(mine); got != own {
				t.Errorf("the namespace itself: %q, want %q", got, own)
			}
			if got := e.index(theirs); got != others {
				t.Errorf("another namespace: %q, want %q", got, others)
			}
		})
	}
}

// TestFailuresOfOtherReferences: an image that fails with one Scanner's references or pull secrets does not fail for others. Failures from
// before a restart are not returned.
func TestFailuresOfOtherReferences(t *testing.T) {
	theirs, mine := public("web"), public("web")
	theirs.Namespace, theirs.PullReferences = "blog", []string{"hostile.example.com/web@" + theirs.Key.Digest}
	own, other := private("web", "pull"), private("web", "another")
	for name, tt := range map[string]struct {
		fails, asks backend.Image
		restart     bool
		want        string
	}{
		"another host":      {theirs, mine, false, v1alpha1.ReasonCataloging},
		"the same host":     {theirs, theirs, false, "failure ImageNotFound"},
		"other Secrets":     {own, other, false, v1alpha1.ReasonCataloging},
		"the same Secrets":  {own, own, false, "failure ImageNotFound"},
		"after a restart":   {mine, mine, true, v1alpha1.ReasonCataloging},
		"without a restart": {mine, mine, false, "failure ImageNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			e.setUsed(tt.fails)
			e.index(tt.fails)
			job := e.job("catalog")
			e.pod(job, terminated(1, "Error", `{"reason":"ImageNotFound","message":"it is not there"}`))
			e.setEndCondition(job, "Failed", "BackoffLimitExceeded", "")
			if tt.restart {
				e.Backend = New(e.Options)
			}
			e.runJobsOnce()
			if got := e.index(tt.asks); got != tt.want {
				t.Errorf("the image's state is %q, want %q", got, tt.want)
			}
			if got := len(e.requests.jobs); got > 1 {
				t.Errorf("what is known of %d Jobs is kept, want only those that live", got)
			}
		})
	}
}

// TestNoJobForAnotherNamespace: when a shared catalog of another namespace is gone, no Job is created on behalf of that namespace.
func TestNoJobForAnotherNamespace(t *testing.T) {
	e := newEngine(t)
	img := private("web", "pull")
	img.Scope = "blog"
	if got := e.index(img); got != v1alpha1.ReasonPending || len(e.records()) != 0 {
		t.Errorf("index says %q and there are the Jobs %q, want %q and none", got, e.records(), v1alpha1.ReasonPending)
	}
	e.saveCatalog(img)
	if got := e.index(img); got != "done" {
		t.Errorf("index says %q of what another namespace knows, want done", got)
	}
}

// TestStoreBudget: a namespace over its storage budget starts no Jobs, whose results would be refused. Other namespaces do, and this one
// does again when there is space.
func TestStoreBudget(t *testing.T) {
	e := newEngine(t, func(o *Options) { o.Config.Ingest.StoreSizePerNamespace = resource.MustParse("1Ki") })
	stored := private("stored", "pull")
	e.must(e.Store.SaveCatalog(t.Context(), store.Catalog{
		Engine: Engine, Key: stored.Key, Scope: stored.Scope, PlatformDigest: platformDigest(stored),
	}, map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(make([]byte, 1<<10))}))
	web, elsewhere := public("web"), public("other")
	elsewhere.Namespace, elsewhere.Scanner = "blog", "uid-of-another-scanner"
	_, err := e.Index(t.Context(), web)
	var failure *backend.Failure
	if !errors.As(err, &failure) || failure.Reason != v1alpha1.ReasonStoreBudgetExceeded || !strings.Contains(failure.Message, "1Ki of the 1Ki") {
		t.Errorf("index says %v, want %s with what is used", err, v1alpha1.ReasonStoreBudgetExceeded)
	}
	if jobs := e.records(); len(jobs) > 0 {
		t.Errorf("Jobs %v are made, want none", jobs)
	}
	if got := e.index(elsewhere); got != v1alpha1.ReasonCataloging {
		t.Errorf("another namespace's image: %q, want %q", got, v1alpha1.ReasonCataloging)
	}
	e.advance(time.Hour)
	_, err = e.Store.Sweep(t.Context(), e.clock.Now())
	e.must(err)
	if got := e.index(web); got != v1alpha1.ReasonCataloging {
		t.Errorf("when there is room: %q, want %q", got, v1alpha1.ReasonCataloging)
	}
}

// countingStore counts the calls of StoredBytes for each namespace.
type countingStore struct {
	*store.Store
	counted map[string]int
}

func (s *countingStore) StoredBytes(ctx context.Context, namespace string) (int64, error) {
	s.counted[namespace]++
	return s.Store.StoredBytes(ctx, namespace)
}

// TestNamespaceOverBudgetTakesNoSlot: a namespace over its storage budget does not block the queue for others. Its usage is not counted again
// for each of its images.
func TestNamespaceOverBudgetTakesNoSlot(t *testing.T) {
	e := newEngine(t, limits(2, 1))
	counting := &countingStore{e.Store, map[string]int{}}
	e.budget = budget.New(counting, e.clock, resource.MustParse("1Ki"))
	e.must(e.Store.SaveCatalog(t.Context(), store.Catalog{
		Engine: Engine, Key: private("stored", "pull").Key, Scope: "shop", PlatformDigest: platformDigest(private("stored", "pull")),
	}, map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(make([]byte, 1<<10))}))
	first, theirs, later := public("first"), public("web"), public("later")
	for i, img := range []*backend.Image{&first, &theirs, &later} {
		img.Namespace, img.Scanner = "blog", fmt.Sprint("scanner-of-blog-", i)
		e.setUsed(*img)
		e.index(*img)
	}
	for _, name := range []string{"web", "other"} {
		if got := e.index(public(name)); got != "failure "+v1alpha1.ReasonStoreBudgetExceeded {
			t.Errorf("%s of the namespace without room: %q, want %s", name, got, v1alpha1.ReasonStoreBudgetExceeded)
		}
	}
	if got := counting.counted["shop"]; got != 1 {
		t.Errorf("what the namespace has stored was counted %d times, want once", got)
	}
	e.finishJob(first)
	e.runJobsOnce()
	if got := e.index(later); got != v1alpha1.ReasonPending {
		t.Errorf("the image that asked last: %q, want that it waits for its turn", got)
	}
	if got := e.index(theirs); got != v1alpha1.ReasonCataloging {
		t.Errorf("the same image of a namespace with room: %q, want %q", got, v1alpha1.ReasonCataloging)
	}
}
