package grype

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// catalog makes a Job for an image unless there is one, when it is the image's turn.
func (b *Backend) catalog(ctx context.Context, img backend.Image) (backend.Progress, error) {
	// Only what was there already may come from another namespace: nobody's Job speaks for one.
	if img.Scope != store.Cluster && string(img.Scope) != img.Namespace {
		return backend.Waiting(v1alpha1.ReasonPending, "what another namespace knew of the image is gone", time.Second), nil
	}
	b.starting.Lock()
	defer b.starting.Unlock()
	live, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return backend.Progress{}, err
	}
	exceeded, err := b.Store.MemoryExceeded(ctx, img.Key, img.Scope)
	if err != nil {
		return backend.Progress{}, err
	}
	for _, job := range live {
		if job.Purpose == store.JobCatalog && job.Key == img.Key && job.Scope == img.Scope {
			b.line.leave(img.Key, img.Scope)
			return b.cataloging(job, exceeded), nil
		}
	}
	p := b.places(live)
	if b.line.admit(img, p) {
		return b.startCatalog(ctx, img, exceeded)
	}
	message := fmt.Sprintf("waiting for one of %d catalog Jobs to end (grype.catalog.maxJobs in the operator's configuration)", b.Config.Grype.Catalog.MaxJobs)
	if p.running[img.Scanner] >= p.perScanner {
		message = fmt.Sprintf("waiting for one of this Scanner's %d catalog Jobs to end", p.running[img.Scanner])
	}
	return backend.Waiting(v1alpha1.ReasonPending, message, checkQueue), nil
}

// cataloging says how a Job gets on.
func (b *Backend) cataloging(job store.Job, exceeded int64) backend.Progress {
	if trouble := b.troubles.of(job); trouble != nil {
		return backend.Waiting(trouble.Reason, trouble.Message, checkCatalog)
	}
	message := fmt.Sprintf("Job %s/%s lists what is in the image", job.Namespace, job.Name)
	if exceeded > 0 && job.Memory > exceeded {
		message += fmt.Sprintf(", with up to %s of memory: %s were not enough", inBytes(job.Memory), inBytes(exceeded))
	}
	return backend.Waiting(v1alpha1.ReasonCataloging, message, checkCatalog)
}

// startCatalog records the Job before it makes it, so that a Job without record can only be somebody else's.
func (b *Backend) startCatalog(ctx context.Context, img backend.Image, exceeded int64) (backend.Progress, error) {
	job := b.catalogJob("scan-catalog-"+b.Random(10), img, exceeded)
	record := store.Job{
		Namespace: job.Namespace, Name: job.Name, Purpose: store.JobCatalog,
		Key: img.Key, Scope: img.Scope, CreatedAt: b.Clock.Now(), Scanner: img.Scanner,
		Memory:     job.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value(),
		MostMemory: slices.Max(b.ladderOf(img).limits()),
	}
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return backend.Progress{}, err
	}
	if err := b.Client.Create(ctx, job); err != nil {
		return b.notCreated(ctx, record, err)
	}
	record.UID = string(job.UID)
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return backend.Progress{}, err
	}
	b.Log.Info("Started a catalog job", "job", job.Namespace+"/"+job.Name, "image", img.Key.String(),
		"references", img.PullReferences, "memory", inBytes(record.Memory))
	return b.cataloging(record, exceeded), nil
}

// notCreated tells a namespace that does not want the Job (a quota, a policy) from one that is being deleted, which is
// nobody's failure, and from an API server in trouble. The latter may have made the Job nevertheless: its record
// stays, for the Tender to clean up.
func (b *Backend) notCreated(ctx context.Context, record store.Job, err error) (backend.Progress, error) {
	if !rejected(err) {
		return backend.Progress{}, fmt.Errorf("creating a catalog job: %w", err)
	}
	if err := b.Store.DeleteJob(ctx, record.Namespace, record.Name); err != nil {
		return backend.Progress{}, err
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return backend.Waiting(v1alpha1.ReasonPending, "the namespace is being deleted", checkQueue), nil
	}
	failure := b.refusal(record, ReasonJobRejected, "the API server does not take the catalog Job", err.Error())
	b.failures.remember(record.Key, record.Scope, failure)
	return backend.Progress{}, failure
}

// rejected says whether the API server surely did not make an object.
func rejected(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}
