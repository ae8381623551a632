package grype

import (
	"context"
	"errors"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// tendInterval is how often Jobs are checked. They are read one by one, without a watch on all Jobs of the cluster.
const tendInterval = 3 * time.Second

// intentLifetime is how long the creation of a Job whose record has no UID may still be in progress.
const intentLifetime = time.Minute

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list

// Tender reconciles Jobs until the context ends. It records failures, deletes Jobs that are over or not needed, wakes queued images, and
// starts match workers while there is work. It runs on the leader only.
func (b *Backend) Tender(ctx context.Context) error {
	ticker := time.NewTicker(tendInterval)
	defer ticker.Stop()
	defer b.lanes.running.Wait()
	for {
		if err := b.Loops.Run("jobs", func() error { return b.tend(ctx) }); err != nil && ctx.Err() == nil {
			b.Log.Error(err, "Looking after jobs")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-b.work:
		}
	}
}

func (b *Backend) tend(ctx context.Context) error {
	jobs, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	b.counts.live(jobs)
	err = b.lanes.run(jobs, func(job store.Job) error { return b.tendJob(ctx, job) })
	return errors.Join(err, b.pruneHistory(ctx), b.callWaiting(ctx), b.staffMatchWorkers(ctx))
}

// age returns the age of a Job. A Job recorded intentLifetime or more in the future was recorded while the clock was ahead. It counts as
// older than any timeout, because otherwise it would stay young until the clock catches up.
func (b *Backend) age(record store.Job) time.Duration {
	age := b.Clock.Since(record.CreatedAt)
	if age <= -intentLifetime {
		return math.MaxInt64
	}
	return age
}

// tendJob reconciles one Job with its record.
func (b *Backend) tendJob(ctx context.Context, record store.Job) error {
	if record.UID == "" {
		if b.age(record) < intentLifetime {
			return nil
		}
		return b.remove(ctx, record) // the manager stopped between recording and creating it
	}
	if record.Worker != b.WorkerImage {
		return b.endOtherVersion(ctx, record)
	}
	var job batchv1.Job
	err := b.Reader.Get(ctx, types.NamespacedName{Namespace: record.Namespace, Name: record.Name}, &job)
	if apierrors.IsForbidden(err) && b.outlived(record) {
		return b.giveUp(ctx, record)
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil || string(job.UID) != record.UID {
		return b.ended(ctx, record, end{failure: &backend.Failure{Reason: ReasonJobDeleted, Message: "the Job was deleted before it ended"}}, false)
	}
	switch condition := finished(&job); {
	case condition == nil:
		return b.tendRunning(ctx, record, &job)
	case condition.Type == batchv1.JobComplete:
		return b.ended(ctx, record, end{failure: endedWell}, true)
	default:
		end, err := b.explain(ctx, record, &job, condition)
		if err != nil {
			return err
		}
		return b.ended(ctx, record, end, true)
	}
}

// endOtherVersion removes a Job that a manager with another worker image created. That is no failure of the image. The Job's result would
// be of another engine version, and workers of two versions would cause endless rematching.
func (b *Backend) endOtherVersion(ctx context.Context, record store.Job) error {
	b.Log.Info("Removing a job of another version of the worker", "job", record.Namespace+"/"+record.Name, "worker", record.Worker)
	// The leases are returned because ending the worker says nothing about its images.
	if err := b.Store.ReturnLeases(ctx, Engine, record.UID); err != nil {
		return err
	}
	err := b.giveUp(ctx, record)
	if record.Purpose == store.JobCatalog {
		b.Wake(ctx, record.Key.Digest)
	}
	return b.counts.ended(err, record, outcomeUnwanted, b.age(record))
}

// endedWell is the failure for a worker that exited with success but delivered no result.
var endedWell = &backend.Failure{Reason: ReasonUploadMissing, Message: "the Job ended well but brought no result"}

// tendRunning handles a Job that has not ended. It removes a Job that is not needed, gives up a Job that cannot succeed, and records why a
// Job does not start.
func (b *Backend) tendRunning(ctx context.Context, record store.Job, job *batchv1.Job) error {
	needed, err := true, error(nil)
	switch record.Purpose {
	case store.JobCatalog:
		needed, err = b.Store.InUse(ctx, Engine, record.Key, record.Scope)
	case store.JobMatch:
		var images int
		images, err = b.Store.ImagesInUse(ctx, Engine)
		needed = images > 0
	}
	if err != nil {
		return err
	}
	if !needed {
		b.Log.Info("Removing a job that nobody needs any more", "job", record.Namespace+"/"+record.Name)
		return b.counts.ended(b.giveUp(ctx, record), record, outcomeUnwanted, b.age(record))
	}
	now, err := b.observe(ctx, record, job)
	switch {
	case err != nil:
		return err
	case now.over:
		return b.ended(ctx, record, now.end, false)
	}
	b.show(ctx, record, now.failure)
	return nil
}

// show publishes why a Job does not start; nil if nothing is wrong.
func (b *Backend) show(ctx context.Context, record store.Job, trouble *backend.Failure) {
	news := b.troubles.note(record, trouble)
	if record.Purpose == store.JobCatalog {
		if news {
			b.Wake(ctx, record.Key.Digest)
		}
		return
	}
	// Before firstLook it is unknown whether a match worker runs.
	if b.age(record) >= firstLook && b.data.workerStands(record.UID, trouble) || news {
		b.DataChanged(ctx)
	}
}

// ended records the end of a Job. A finished catalog Job stays in the cluster as history. A Job that is not finished is deleted, since it
// may still run.
func (b *Backend) ended(ctx context.Context, record store.Job, e end, finished bool) error {
	if e.failure == nil {
		e.failure = endedWell
	}
	if record.Purpose != store.JobCatalog {
		idle := b.data.workerEnded(b.Clock.Now(), e.failure)
		return b.counts.ended(b.remove(ctx, record), record, outcomeOf(!idle), b.age(record))
	}
	failed, err := b.catalogEnded(ctx, record, e)
	if err != nil {
		return err
	}
	if finished {
		b.forget(ctx, record)
		err = b.Store.EndJob(ctx, record.Namespace, record.Name, b.Clock.Now(), failed)
	} else {
		err = b.giveUp(ctx, record)
	}
	b.Wake(ctx, record.Key.Digest)
	return b.counts.ended(err, record, outcomeOf(failed), b.age(record))
}

// giveUp deletes a Job that has not ended. If the deletion fails, for example because a tenant's webhook rejects it, the record of a
// catalog Job still ends: the Job frees its slot and its result is rejected. The Job is then deleted with the history.
func (b *Backend) giveUp(ctx context.Context, record store.Job) error {
	err := b.remove(ctx, record)
	if err == nil || record.Purpose != store.JobCatalog {
		return err
	}
	b.forget(ctx, record)
	return errors.Join(err, b.Store.EndJob(ctx, record.Namespace, record.Name, b.Clock.Now(), true))
}

// catalogEnded decides what the end of a catalog Job means for its image. A failure counts only if the catalog is missing.
func (b *Backend) catalogEnded(ctx context.Context, record store.Job, e end) (failed bool, err error) {
	switch _, err := b.Store.Catalogued(ctx, Engine, record.Key, record.Scope); {
	case err == nil:
		return false, nil
	case !errors.Is(err, store.ErrNotFound):
		return false, err
	}
	if leaving, err := b.leaving(ctx, record); leaving || err != nil {
		return true, err
	}
	q, known := b.asked.of(record)
	e.failure = q.shown(e.failure)
	again := false
	if e.killed {
		if again, err = b.outOfMemory(ctx, record, e.limit); err != nil {
			return false, err
		}
	}
	b.Log.Info("A catalog job failed", "job", record.Namespace+"/"+record.Name, "image", record.Key.String(),
		"reason", e.failure.Reason, "message", e.failure.Message, "againWithMoreMemory", again)
	if again {
		return true, nil
	}
	if !q.sparedOnly(e.failure) && (!known || q.names(e.failure.Registry)) {
		b.throttles.Note(b.Clock.Now(), record.Scope, e.failure)
	}
	if known {
		b.failures.remember(q.image, e.failure)
	}
	return true, nil
}

// remove deletes the Job and its pods, if the Job has the recorded UID, and then the record.
func (b *Backend) remove(ctx context.Context, record store.Job) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name}}
	opts := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if record.UID != "" {
		uid := types.UID(record.UID)
		opts = append(opts, client.Preconditions{UID: &uid})
	}
	err := b.Client.Delete(ctx, job, opts...)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) && (!apierrors.IsForbidden(err) || !b.outlived(record)) {
		return err
	}
	b.forget(ctx, record)
	return b.Store.DeleteJob(ctx, record.Namespace, record.Name)
}

// outlived reports whether a catalog Job must have ended by its deadline and been deleted by its TTL, unless somebody changed these. It is
// used where the operator may not read Jobs any more. A match worker has no deadline.
func (b *Backend) outlived(record store.Job) bool {
	catalog := b.Config.Grype.Catalog
	return record.Purpose == store.JobCatalog && b.age(record) >= catalog.Deadline.Duration+catalog.History.TTL.Duration+slowPatience
}

// forget drops everything in memory about a Job.
func (b *Backend) forget(ctx context.Context, record store.Job) {
	b.troubles.note(record, nil)
	b.asked.forget(record)
	b.contacts.forget(record)
	if b.data.workerGone(record.UID) {
		b.DataChanged(ctx)
	}
}

// finished returns the condition that ended a Job, or nil if the Job has not ended.
func finished(job *batchv1.Job) *batchv1.JobCondition {
	for i, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}
