package grype

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Reasons of failures that the manager sees and a worker cannot report.
const (
	ReasonJobRejected     = "JobRejected"          // the API server did not take the Job
	ReasonJobDeleted      = "JobDeleted"           // somebody deleted it
	ReasonOutOfMemory     = "OutOfMemory"          // the worker was killed for its memory
	ReasonDeadline        = "DeadlineExceeded"     // it took too long
	ReasonEvicted         = "Evicted"              // its node wanted it gone
	ReasonUploadMissing   = "UploadMissing"        // it ended well and brought nothing
	ReasonWorkerCrashed   = "WorkerCrashed"        // it died without a word
	ReasonWorkerNotPulled = "WorkerImageNotPulled" // its own image cannot be pulled
	ReasonNoPod           = "NoPod"                // the namespace takes the Job and not its pod
	ReasonUnschedulable   = "Unschedulable"        // no node has room, or may run it
	ReasonNotStarted      = "NotStarted"           // its pod waits for something else
)

// catalog makes a Job for an image unless there is one.
func (b *Backend) catalog(ctx context.Context, img backend.Image) (backend.Progress, error) {
	b.starting.Lock()
	defer b.starting.Unlock()
	jobs, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return backend.Progress{}, err
	}
	running := 0
	for _, job := range jobs {
		if job.Purpose != store.JobCatalog {
			continue
		}
		if job.Key == img.Key && job.Scope == img.Scope {
			message := fmt.Sprintf("Job %s/%s lists what is in the image", job.Namespace, job.Name)
			return backend.Waiting(v1alpha1.ReasonCataloging, message, checkCatalog), nil
		}
		running++
	}
	if limit := b.Config.Grype.Catalog.MaxJobs; running >= limit {
		b.waiting.add(img.Key.Digest)
		return backend.Waiting(v1alpha1.ReasonPending, fmt.Sprintf("waiting for one of %d catalog Jobs to end", limit), checkQueue), nil
	}
	return b.startCatalog(ctx, img)
}

// callWaiting wakes those who have waited longest, as many as there are free places.
func (b *Backend) callWaiting(ctx context.Context) error {
	jobs, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	free := b.Config.Grype.Catalog.MaxJobs
	for _, job := range jobs {
		if job.Purpose == store.JobCatalog {
			free--
		}
	}
	for _, digest := range b.waiting.take(free) {
		b.Wake(ctx, digest)
	}
	return nil
}

// waitingLine holds the digests of images that wait for a place, in the order in which they came.
type waitingLine struct {
	mu      sync.Mutex
	digests []string
	there   map[string]bool
}

func (w *waitingLine) add(digest string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.there == nil {
		w.there = map[string]bool{}
	}
	if !w.there[digest] {
		w.there[digest] = true
		w.digests = append(w.digests, digest)
	}
}

// take removes the first n.
func (w *waitingLine) take(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = max(0, min(n, len(w.digests)))
	first := slices.Clone(w.digests[:n])
	w.digests = w.digests[n:]
	for _, digest := range first {
		delete(w.there, digest)
	}
	return first
}

// startCatalog records the Job before it makes it, so that a Job without record can only be somebody else's.
func (b *Backend) startCatalog(ctx context.Context, img backend.Image) (backend.Progress, error) {
	job := b.catalogJob("scan-catalog-"+b.Random(10), img)
	record := store.Job{
		Namespace: job.Namespace, Name: job.Name, Purpose: store.JobCatalog,
		Key: img.Key, Scope: img.Scope, CreatedAt: b.Clock.Now(),
	}
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return backend.Progress{}, err
	}
	if err := b.Client.Create(ctx, job); err != nil {
		return backend.Progress{}, b.notCreated(ctx, record, err)
	}
	record.UID = string(job.UID)
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return backend.Progress{}, err
	}
	b.Log.Info("Started a catalog job", "job", job.Namespace+"/"+job.Name, "image", img.Key.String(), "references", img.PullReferences)
	message := fmt.Sprintf("Job %s/%s lists what is in the image", job.Namespace, job.Name)
	return backend.Waiting(v1alpha1.ReasonCataloging, message, checkCatalog), nil
}

// notCreated tells a namespace that does not want the Job (a quota, a policy, its end) from an API server in
// trouble. The latter may have made the Job nevertheless: its record stays, for the Tender to clean up.
func (b *Backend) notCreated(ctx context.Context, record store.Job, err error) error {
	if !rejected(err) {
		return fmt.Errorf("creating a catalog job: %w", err)
	}
	if err := b.Store.DeleteJob(ctx, record.Namespace, record.Name); err != nil {
		return err
	}
	failure := &backend.Failure{Reason: ReasonJobRejected, Message: "the API server does not take the catalog Job: " + err.Error()}
	b.failures.remember(record.Key, record.Scope, failure)
	return failure
}

// rejected says whether the API server surely did not make an object.
func rejected(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}
