package grype

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/queue"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// catalog starts a Job for an image that has none, as soon as the queue gives it a slot.
func (b *Backend) catalog(ctx context.Context, img backend.Image) (backend.Progress, error) {
	// A catalog of another namespace can be reused, but not created: no Job runs on behalf of another namespace.
	if img.Scope != store.Cluster && string(img.Scope) != img.Namespace {
		return backend.Waiting(v1alpha1.ReasonPending, "what another namespace knew of the image is gone", time.Second), nil
	}
	full, err := b.budget.Exceeded(ctx, img.Namespace)
	if err != nil {
		return backend.Progress{}, err
	}
	start, progress, err := b.reserveJob(ctx, img, full)
	if err != nil || start == nil {
		return progress, err
	}
	return b.createJob(ctx, *start)
}

// reservedJob is a catalog Job that is recorded and not created yet.
type reservedJob struct {
	record store.Job
	job    *batchv1.Job
	// image is the image to catalog. exceeded is how many bytes of memory were not enough for it; 0 for none.
	image    backend.Image
	exceeded int64
}

// reserveJob reserves a slot for an image and records its Job, or returns what the image waits for. The record is written before the Job is
// created. Therefore a Job without a record is never the operator's, and concurrent calls see that the Job is on its way. full is the
// failure of a namespace over its storage budget; nil if it has space. Such a namespace takes no slot, but other namespaces that wait for
// the same image keep their position.
func (b *Backend) reserveJob(ctx context.Context, img backend.Image, full *backend.Failure) (*reservedJob, backend.Progress, error) {
	b.starting.Lock()
	defer b.starting.Unlock()
	live, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return nil, backend.Progress{}, err
	}
	exceeded, err := b.Store.MemoryExceeded(ctx, img.Key, img.Scope)
	if err != nil {
		return nil, backend.Progress{}, err
	}
	for _, job := range live {
		if job.Purpose == store.JobCatalog && job.Key == img.Key && job.Scope == img.Scope {
			b.queue.removeForAll(img.Key, img.Scope)
			return nil, b.jobProgress(job, exceeded), nil
		}
	}
	// The Job of another call may have ended since the caller looked for a catalog. A Job that is not live any more has saved its own.
	cataloged, err := b.isCataloged(ctx, img.Key, img.Scope)
	if err != nil {
		return nil, backend.Progress{}, err
	}
	if cataloged {
		b.queue.removeForAll(img.Key, img.Scope)
		return nil, backend.Done, nil
	}
	if full != nil {
		b.queue.removeForScanner(img)
		return nil, backend.Progress{}, full
	}
	p := b.slots(live)
	if !b.queue.admit(img, p) {
		return nil, b.queuedProgress(img, p), nil
	}
	asked := catalogRequest{image: img, avoidedRegistries: b.throttledRegistries(img)}
	job := b.catalogJob(backend.WorkerName(backend.CatalogWorker, b.Random), img, exceeded)
	record := store.Job{
		Namespace: job.Namespace, Name: job.Name, Purpose: store.JobCatalog,
		Key: img.Key, Scope: img.Scope, CreatedAt: b.Clock.Now(), Scanner: img.Scanner, Worker: b.WorkerImage,
		Memory:    job.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value(),
		MaxMemory: slices.Max(b.ladderOf(img).limits()),
	}
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return nil, backend.Progress{}, err
	}
	b.requests.record(record, asked)
	return &reservedJob{record: record, job: job, image: img, exceeded: exceeded}, backend.Progress{}, nil
}

// isCataloged reports whether an image has a catalog in its credential scope.
func (b *Backend) isCataloged(ctx context.Context, key image.Key, scope store.Scope) (bool, error) {
	_, err := b.Store.Catalog(ctx, Engine, key, scope)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// queuedProgress returns the Progress of a queued image.
func (b *Backend) queuedProgress(img backend.Image, p queue.Slots) backend.Progress {
	message := fmt.Sprintf("waiting for one of %d catalog Jobs to end (grype.catalog.maxJobs in the operator's configuration)", b.Config.Grype.Catalog.MaxJobs)
	if running := p.Running[img.Namespace]; running >= p.Limit {
		message = fmt.Sprintf("waiting for one of this namespace's %d catalog Jobs to end (grype.catalog.maxJobsPerNamespace in the operator's configuration)", running)
	}
	return backend.Waiting(v1alpha1.ReasonPending, message, checkQueue)
}

// jobProgress returns the Progress of an image that has a Job.
func (b *Backend) jobProgress(job store.Job, exceeded int64) backend.Progress {
	if job.UID == "" {
		message := fmt.Sprintf("the API server's answer to the catalog Job %s/%s is outstanding", job.Namespace, job.Name)
		return backend.Waiting(v1alpha1.ReasonPending, message, checkCreation)
	}
	if problem := b.startProblems.get(job); problem != nil {
		return backend.Waiting(problem.Reason, problem.Message, checkCatalog)
	}
	message := fmt.Sprintf("Job %s/%s catalogs the image", job.Namespace, job.Name)
	if exceeded > 0 && job.Memory > exceeded {
		message += fmt.Sprintf(", with up to %s of memory: %s were not enough", formatBytes(job.Memory), formatBytes(exceeded))
	}
	return backend.Waiting(v1alpha1.ReasonCataloging, message, checkCatalog)
}

// createJob creates a recorded Job and adds its UID to the record.
func (b *Backend) createJob(ctx context.Context, start reservedJob) (backend.Progress, error) {
	record := start.record
	if err := b.Client.Create(ctx, start.job); err != nil {
		return b.handleCreateError(ctx, start, err)
	}
	record.UID = string(start.job.UID)
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return backend.Progress{}, err
	}
	b.Log.Info("Started a catalog job", "job", record.Namespace+"/"+record.Name, "image", record.Key.String(),
		"references", start.image.PullReferences, "memory", formatBytes(record.Memory))
	return b.jobProgress(record, start.exceeded), nil
}

// handleCreateError handles a failed creation of a Job. A namespace that rejects the Job, by a quota or policy, is the image's failure. A
// namespace that is being deleted, or an unavailable API server, is not. An unavailable API server may still have created the Job: then
// the record stays, and the Job loop cleans up.
func (b *Backend) handleCreateError(ctx context.Context, start reservedJob, err error) (backend.Progress, error) {
	record, problem := start.record, fmt.Errorf("creating a catalog job: %w", err)
	if isTimeout(err) {
		failure := &backend.Failure{Reason: backend.ReasonPolicyUnavailable, Message: fmt.Sprintf("the API server does not say within %s whether it takes the catalog Job: "+
			"an admission webhook seems to hang (kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations): %s", apiTimeout, quoteLine(err.Error()))}
		b.rememberFailure(start.image, failure)
		return backend.Progress{}, failure
	}
	if !isNotCreated(err) {
		return backend.Progress{}, problem
	}
	if err := b.Store.DeleteJob(ctx, record.Namespace, record.Name); err != nil {
		return backend.Progress{}, err
	}
	b.requests.remove(record)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return backend.Waiting(v1alpha1.ReasonPending, "the namespace is being deleted", checkQueue), nil
	case apierrors.IsTooManyRequests(err), apierrors.IsConflict(err), apierrors.IsUnauthorized(err):
		return backend.Progress{}, problem
	}
	failure := b.rejectionFailure(record, backend.ReasonJobRejected, "the API server does not take the catalog Job", err.Error())
	b.rememberFailure(start.image, failure)
	return backend.Progress{}, failure
}

// isTimeout reports whether admission took longer than the timeout of the operator or of the API server.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err)
}

// isNotCreated reports whether the API server certainly did not create an object. Errors from before or during admission, including failed
// webhooks, come before anything is written.
func isNotCreated(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonBadRequest, metav1.StatusReasonNotFound,
		metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonTooManyRequests, metav1.StatusReasonConflict,
		metav1.StatusReasonUnauthorized, metav1.StatusReasonMethodNotAllowed:
		return true
	case metav1.StatusReasonInternalError:
		return strings.Contains(err.Error(), webhookFailed)
	}
	return apierrors.IsRequestEntityTooLargeError(err)
}
