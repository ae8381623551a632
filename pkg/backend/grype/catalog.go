package grype

import (
	"context"
	"fmt"

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
		return backend.Waiting(v1alpha1.ReasonPending, fmt.Sprintf("waiting for one of %d catalog Jobs to end", limit), checkQueue), nil
	}
	return b.startCatalog(ctx, img)
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
