package grype

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// reservedJob is a catalog Job that is recorded and not created yet.
type reservedJob struct {
	record store.Job
	job    *batchv1.Job
	// image is the image to catalog. exceeded is how many bytes of memory were not enough for it; 0 for none.
	image    backend.Image
	exceeded int64
}

// reserveJob reserves a slot for an image and records its Job, or returns what the image waits for. refused is why the image gets no new Job;
// nil if it may have one. Such an image takes no slot, but other Scanners that wait for it keep their position.
func (b *Backend) reserveJob(ctx context.Context, request catalogRequest, refused *refusal) (*reservedJob, backend.Progress, error) {
	img := request.image
	if refused != nil && !refused.newJobsOnly {
		b.queue.removeForScanner(img)
		return nil, refused.progress, refused.err
	}
	b.starting.Lock()
	defer b.starting.Unlock()
	state, err := b.readCatalogState(ctx, img)
	switch {
	case err != nil:
		return nil, backend.Progress{}, err
	case state.progress != nil:
		b.queue.removeForAll(img.Key, img.Scope)
		return nil, *state.progress, nil
	case refused != nil:
		b.queue.removeForScanner(img)
		return nil, refused.progress, refused.err
	}
	slots := b.slots(state.live)
	if !b.queue.admit(img, slots) {
		return nil, b.queuedProgress(img, slots), nil
	}
	request.sbomPolicy = state.sbomPolicy
	start, err := b.recordJob(ctx, request, state.exceeded)
	return start, backend.Progress{}, err
}

// catalogState is what the store has about an image that is to be cataloged.
type catalogState struct {
	// live are the live Jobs of all images.
	live []store.Job
	// progress is that of an image with a live Job or a catalog that counts for it; nil for any other.
	progress *backend.Progress
	// exceeded is how many bytes of memory were not enough for the image; 0 for none.
	exceeded int64
	// sbomPolicy is the policy by which a new Job may use an attested or uploaded SBOM; empty if it has to catalog the image.
	sbomPolicy string
}

// readCatalogState reads the Jobs before the catalog: a Job that ends in between has saved its catalog.
//
// If an attested SBOM counts for an image of another registry and not for this one, the image is cataloged. Otherwise two registries that
// trust different signers would replace each other's SBOM of the same digest forever. An uploaded SBOM replaces it, since all Scanners of its
// namespace have its policy then.
func (b *Backend) readCatalogState(ctx context.Context, img backend.Image) (state catalogState, err error) {
	key, scope := img.Key, img.Scope
	if state.live, err = b.Store.LiveJobs(ctx); err != nil {
		return state, err
	}
	if state.exceeded, err = b.Store.MemoryExceeded(ctx, key, scope); err != nil {
		return state, err
	}
	for _, job := range state.live {
		if job.Purpose == store.JobCatalog && job.Key == key && job.Scope == scope {
			progress := b.jobProgress(job, state.exceeded)
			state.progress = &progress
			return state, nil
		}
	}
	requested, err := b.Store.RescanRequested(ctx, img.OfScanner())
	if err != nil {
		return state, err
	}
	catalog, err := b.Store.Catalog(ctx, Engine, key, scope)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && requested:
		state.sbomPolicy, err = img.SBOMPolicy, nil
	case err == nil && catalog.CountsWith(img.SBOMPolicy):
		state.progress = &backend.Progress{Done: true}
	case err == nil && (store.IsUpload(img.SBOMPolicy) || !b.Config.HasSBOMPolicy(catalog.Origin.Policy)):
		state.sbomPolicy = img.SBOMPolicy
	}
	return state, err
}

// recordJob builds the Job of an image and records it. The record is written before the Job is created. Therefore a Job without a record is
// never the operator's, and concurrent calls see that the Job is on its way.
func (b *Backend) recordJob(ctx context.Context, request catalogRequest, exceeded int64) (*reservedJob, error) {
	img := request.image
	memory := b.ladderOf(jobSettings(img))
	job := b.catalogJob(backend.WorkerName(backend.CatalogWorker, b.Random), request, memory.resourcesAfter(exceeded))
	record := store.Job{
		Namespace: job.Namespace, Name: job.Name, Purpose: store.JobCatalog,
		Key: img.Key, Scope: img.Scope, CreatedAt: b.Clock.Now(), Scanner: img.Scanner, Worker: b.WorkerImage, SBOMPolicy: request.sbomPolicy, VEXPolicy: img.VEXPolicy,
		Memory:    job.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value(),
		MaxMemory: slices.Max(memory.limits()),
	}
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return nil, err
	}
	b.requests.record(record, request)
	return &reservedJob{record: record, job: job, image: img, exceeded: exceeded}, nil
}

// isCataloged reports whether an image has a catalog in its credential scope that counts for it.
func (b *Backend) isCataloged(ctx context.Context, img backend.Image) (bool, error) {
	catalog, err := b.Store.Catalog(ctx, Engine, img.Key, img.Scope)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil || !catalog.CountsWith(img.SBOMPolicy):
		return false, err
	}
	requested, err := b.Store.RescanRequested(ctx, img.OfScanner())
	return err == nil && !requested, err
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
