package ingest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// bytes returns the bytes of all uploads.
func (s *spool) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// spoolHolds checks the number of files on disk and the counted bytes.
func (a *ingestAPI) spoolHolds(files int, bytes int64) {
	a.t.Helper()
	if got := a.spooled(); got != files {
		a.t.Errorf("%d files are in the spool, want %d", got, files)
	}
	if got := a.ingest.spool.bytes(); got != bytes {
		a.t.Errorf("%d bytes of the spool are taken, want %d", got, bytes)
	}
}

// eventuallyHolds waits until this many bytes are counted: the server notices sent and aborted data with a delay.
func (a *ingestAPI) eventuallyHolds(bytes int64) {
	a.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); a.ingest.spool.bytes() != bytes; runtime.Gosched() {
		if time.Now().After(deadline) {
			a.t.Fatalf("%d bytes of the spool are taken, want %d", a.ingest.spool.bytes(), bytes)
		}
	}
}

// eventuallyReceivesNothing waits until no upload is in progress.
func (a *ingestAPI) eventuallyReceivesNothing() {
	a.t.Helper()
	receiving := func() int {
		a.ingest.spool.mu.Lock()
		defer a.ingest.spool.mu.Unlock()
		return len(a.ingest.spool.receiving)
	}
	for deadline := time.Now().Add(10 * time.Second); receiving() > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			a.t.Fatal("an upload is still in progress")
		}
	}
}

// startUpload uploads what a reader gives, and returns where the answer will be; its status is 0 if there is none.
func (w *worker) startUpload(body io.Reader) <-chan answer {
	w.api.t.Helper()
	return w.beginsWithin(w.api.t.Context(), body)
}

// beginsWithin is begins with further headers, until the context ends.
func (w *worker) beginsWithin(ctx context.Context, body io.Reader, headers ...string) <-chan answer {
	w.api.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, w.api.url+workerapi.PathCatalogResult, body)
	w.api.must(err)
	request.Header.Set("Authorization", "Bearer "+w.token)
	for n := 0; n < len(headers); n += 2 {
		request.Header.Set(headers[n], headers[n+1])
	}
	answers := make(chan answer, 1)
	go func() {
		response, err := w.api.http.Do(request)
		if err != nil {
			answers <- answer{}
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		answers <- answer{response.StatusCode, string(text), response.Header.Get("Retry-After")}
	}()
	return answers
}

// stallUpload sends this many bytes and then nothing, until the test ends.
func (w *worker) stallUpload(size int) <-chan answer {
	w.api.t.Helper()
	reader, writer := io.Pipe()
	w.api.t.Cleanup(func() { _ = writer.Close() })
	return w.startUpload(io.MultiReader(bytes.NewReader(make([]byte, size)), reader))
}

// TestSpoolOfANamespace: regardless of how many Jobs a namespace has, other namespaces have space in the spool. Its own uploads
// are delayed and retried.
func TestSpoolOfANamespace(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	const share = 256 << 10
	a.ingest.spool.limit, a.ingest.spool.share = 3*share, share
	for _, namespace := range []string{"hostile", "hostile too"} {
		a.tenant(namespace, "one", web).stallUpload(share / 2)
		a.tenant(namespace, "two", web).stallUpload(share / 2)
	}
	a.eventuallyHolds(2 * share)
	third := a.tenant("hostile", "three", web)
	got := third.uploadResult(newCatalogUpload(t))
	third.want(got, http.StatusInsufficientStorage, "ingest.spoolSizePerNamespace")
	if got.retryAfter != "10" {
		t.Errorf("Retry-After is %q, want 10", got.retryAfter)
	}
	a.tenant("honest", "catalog", web).uploadValidResult()
	if !a.cataloged("honest") {
		t.Error("the honest namespace's image is not cataloged")
	}
	a.spoolHolds(4, 2*share)
}

// TestFullSpool: an upload that does not fit is asked to retry, leaves nothing behind, and succeeds when there is space.
func TestFullSpool(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.ingest.spool.limit = 1 << 10
	a.tenant("slow", "catalog", web).stallUpload(1 << 10)
	a.eventuallyHolds(1 << 10)
	w := a.tenant("shop", "catalog", web)
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusInsufficientStorage, "ingest.spoolSize there")
	a.spoolHolds(1, 1<<10)
	a.must(a.store.DeleteJob(t.Context(), "slow", "catalog"))
	a.must(a.ingest.Sweep(t.Context()))
	a.eventuallyHolds(0)
	w.uploadValidResult()
}

// TestUploadOfAJobThatEnds: the spool space of an ended Job is released, even if its pod continues to send slowly.
func TestUploadOfAJobThatEnds(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	slow := a.tenant("shop", "slow", web).stallUpload(1 << 10)
	going := a.tenant("shop", "going", web).stallUpload(1 << 9)
	a.eventuallyHolds(1<<10 + 1<<9)
	a.must(a.store.EndJob(t.Context(), "shop", "slow", noon, true))
	a.must(a.ingest.Sweep(t.Context()))
	if got := <-slow; got.status != 0 && got.status != http.StatusRequestTimeout {
		t.Errorf("the answer is %s, want none or %d", got, http.StatusRequestTimeout)
	}
	a.eventuallyHolds(1 << 9)
	select {
	case got := <-going:
		t.Errorf("the upload of a Job that lives ended: %s", got)
	default:
	}
}

// TestFailureOverStoreBudget: a Job whose result does not fit into its namespace's storage budget fails for that reason, and not for
// what its worker reports.
func TestFailureOverStoreBudget(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.ingest.StoreBytes = 1
	img := backend.Image{Key: web, Scope: "shop", Namespace: "shop", Scanner: "scanner", PullReferences: []string{"docker.io/library/web@" + web.Digest}}
	a.must(a.cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	_, err := a.backend.StartCatalog(t.Context(), img)
	a.must(err)
	var jobs batchv1.JobList
	a.must(a.cluster.List(t.Context(), &jobs))
	job := &jobs.Items[0]
	w := a.worker("shop", job.Name+"-pod", string(job.UID))
	w.want(w.uploadResult(newCatalogUpload(t)), http.StatusRequestEntityTooLarge, "have used up their room in the store")
	w.setPodStatus(job.Name, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: job.Spec.Template.Spec.Containers[0].Name,
		State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"reason":"UploadRefused","message":"no room"}`},
		},
	}}})
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	a.must(a.cluster.Status().Update(t.Context(), job))
	a.runJobs(func() bool { return len(a.liveJobs()) == 0 })
	var failure *backend.Failure
	if _, err := a.backend.StartCatalog(t.Context(), img); !errors.As(err, &failure) || failure.Reason != v1alpha1.ReasonStoreBudgetExceeded {
		t.Errorf("the image's failure is %v, want %s", err, v1alpha1.ReasonStoreBudgetExceeded)
	}
}

// TestStoreBudget: a namespace that has used up its storage budget uses none of other namespaces.
func TestStoreBudget(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	size := int64(len(newCatalogUpload(t).sbom) + len(newCatalogUpload(t).matchInput))
	a.ingest.StoreBytes = size
	w := a.tenant("shop", "large", web)
	w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { p.sbom = compressed(t, []byte("a larger SBOM")) })),
		http.StatusRequestEntityTooLarge, `of the namespace "shop" have used up their room in the store (ingest.storeSizePerNamespace`)
	a.spoolHolds(0, 0)
	a.tenant("shop", "fits", web).uploadValidResult()
	a.tenant("bank", "catalog", web).uploadValidResult()
	stored, err := a.store.StoredByNamespace(t.Context())
	a.must(err)
	if stored["shop"] != size || stored["bank"] != size {
		t.Errorf("stored are %v, want %d each", stored, size)
	}
}

// TestBudgetOfSharedResult: the result of a Job without credentials counts for the namespace of a Scanner that has the image.
func TestBudgetOfSharedResult(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.setUsed()
	a.job(store.JobCatalog, "catalog").uploadValidResult()
	stored, err := a.store.StoredByNamespace(t.Context())
	a.must(err)
	if len(stored) != 1 || stored["shop"] == 0 {
		t.Errorf("stored are %v, want what counts for shop", stored)
	}
}

// TestOneUploadAtATime: concurrent uploads of one Job get no additional space or time.
func TestOneUploadAtATime(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	a.must(a.ingest.spool.begin("uid-of-catalog", func() {}))
	got := w.uploadResult(newCatalogUpload(t))
	w.want(got, http.StatusTooManyRequests, "another upload of this Job")
	if got.retryAfter != "1" {
		t.Errorf("Retry-After is %q, want 1", got.retryAfter)
	}
	a.job(store.JobCatalog, "other").uploadValidResult()
	a.ingest.spool.finish("uid-of-catalog", false)
	w.uploadValidResult()
}

// TestAnUploadThatNeverFits: an upload larger than the spool is refused for good.
func TestAnUploadThatNeverFits(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	a.ingest.SpoolShare = 512
	handler, err := a.ingest.Handler()
	a.must(err)
	a.serve(handler)
	w := a.job(store.JobCatalog, "catalog")
	w.want(w.uploadResult(newCatalogUpload(t, func(p *catalogUpload) { p.sbom = make([]byte, 512) })), http.StatusRequestEntityTooLarge, "too large")
}

// TestMountedSpool: reset keeps the directory itself, because a volume may be mounted there.
func TestMountedSpool(t *testing.T) {
	s := newSpool(t.TempDir(), 1, 1, newMetrics(nil, 1, 1).spooled)
	before, err := os.Stat(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.reset(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(s.dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("the directory is another one: %v", err)
	}
}
