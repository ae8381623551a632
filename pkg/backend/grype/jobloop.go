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

// jobInterval is how often Jobs are checked. They are read one by one, without a watch on all Jobs of the cluster.
const jobInterval = 3 * time.Second

// creationTimeout is how long the creation of a Job whose record has no UID may still be in progress.
const creationTimeout = time.Minute

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list

// RunJobs reconciles Jobs until the context ends. It records failures, deletes Jobs that are over or not needed, wakes queued images, and
// starts match workers while there is work. It runs on the leader only.
func (b *Backend) RunJobs(ctx context.Context) error {
	ticker := time.NewTicker(jobInterval)
	defer ticker.Stop()
	defer b.runner.running.Wait()
	for {
		if err := b.Loops.Run("jobs", func() error { return b.reconcileJobs(ctx) }); err != nil && ctx.Err() == nil {
			b.Log.Error(err, "Looking after jobs")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-b.wakeJobs:
		}
	}
}

func (b *Backend) reconcileJobs(ctx context.Context) error {
	jobs, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	b.metrics.setLive(jobs)
	err = b.runner.run(ctx, jobs, func(job store.Job) error { return b.reconcileJob(ctx, job) })
	return errors.Join(err, b.pruneHistory(ctx), b.wakeQueued(ctx), b.ensureMatchWorkers(ctx))
}

// jobAge returns the age of a Job. A Job recorded creationTimeout or more in the future was recorded while the clock was ahead. It counts as
// older than any timeout, because otherwise it would stay young until the clock catches up.
func (b *Backend) jobAge(record store.Job) time.Duration {
	age := b.Clock.Since(record.CreatedAt)
	if age <= -creationTimeout {
		return math.MaxInt64
	}
	return age
}

// reconcileJob reconciles one Job with its record.
func (b *Backend) reconcileJob(ctx context.Context, record store.Job) error {
	if record.UID == "" {
		if b.jobAge(record) < creationTimeout {
			return nil
		}
		return b.deleteJob(ctx, record) // the manager stopped between recording and creating it
	}
	if record.Worker != b.WorkerImage {
		return b.endOutdatedJob(ctx, record)
	}
	var job batchv1.Job
	err := b.Reader.Get(ctx, types.NamespacedName{Namespace: record.Namespace, Name: record.Name}, &job)
	if apierrors.IsForbidden(err) && b.hasExpired(record) {
		return b.abandon(ctx, record)
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil || string(job.UID) != record.UID {
		return b.recordEnd(ctx, record, jobEnd{failure: &backend.Failure{Reason: backend.ReasonJobDeleted, Message: "the Job was deleted before it ended"}}, false)
	}
	switch condition := endCondition(&job); {
	case condition == nil:
		return b.reconcileRunning(ctx, record, &job)
	case condition.Type == batchv1.JobComplete:
		return b.recordEnd(ctx, record, jobEnd{failure: noResult}, true)
	default:
		end, err := b.failureOf(ctx, record, &job, condition)
		if err != nil {
			return err
		}
		return b.recordEnd(ctx, record, end, true)
	}
}

// endOutdatedJob removes a Job that a manager with another worker image created. That is no failure of the image. The Job's result would
// be of another engine version, and workers of two versions would cause endless rematching.
func (b *Backend) endOutdatedJob(ctx context.Context, record store.Job) error {
	b.Log.Info("Removing a job of another version of the worker", "job", record.Namespace+"/"+record.Name, "worker", record.Worker)
	// The leases are returned because ending the worker says nothing about its images.
	if err := b.Store.ReturnLeases(ctx, Engine, record.UID); err != nil {
		return err
	}
	err := b.abandon(ctx, record)
	if record.Purpose == store.JobCatalog {
		b.Wake(ctx, record.Key.Digest)
	}
	return b.metrics.countEnd(err, record, outcomeUnwanted, b.jobAge(record))
}

// noResult is the failure for a worker that exited with success but delivered no result.
var noResult = &backend.Failure{Reason: backend.ReasonUploadMissing, Message: "the Job ended well but brought no result"}

// reconcileRunning handles a Job that has not ended. It removes a Job that is not needed, gives up a Job that cannot succeed, and records why a
// Job does not start.
func (b *Backend) reconcileRunning(ctx context.Context, record store.Job, job *batchv1.Job) error {
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
		return b.metrics.countEnd(b.abandon(ctx, record), record, outcomeUnwanted, b.jobAge(record))
	}
	now, err := b.observe(ctx, record, job)
	switch {
	case err != nil:
		return err
	case now.hasFailed:
		return b.recordEnd(ctx, record, now.jobEnd, false)
	}
	b.publishStartProblem(ctx, record, now.failure)
	return nil
}

// publishStartProblem publishes why a Job does not start; nil if nothing is wrong.
func (b *Backend) publishStartProblem(ctx context.Context, record store.Job, problem *backend.Failure) {
	news := b.startProblems.set(record, problem)
	if record.Purpose == store.JobCatalog {
		if news {
			b.Wake(ctx, record.Key.Digest)
		}
		return
	}
	// Before firstCheckAge it is unknown whether a match worker runs.
	if b.jobAge(record) >= firstCheckAge && b.data.setWorkerProblem(record.UID, problem) || news {
		b.DataChanged(ctx)
	}
}

// recordEnd records the end of a Job. A finished catalog Job stays in the cluster as history. A Job that is not finished is deleted, since it
// may still run.
func (b *Backend) recordEnd(ctx context.Context, record store.Job, e jobEnd, finished bool) error {
	if e.failure == nil {
		e.failure = noResult
	}
	if record.Purpose != store.JobCatalog {
		idle := b.data.recordWorkerEnd(b.Clock.Now(), e.failure)
		return b.metrics.countEnd(b.deleteJob(ctx, record), record, outcomeOf(!idle), b.jobAge(record))
	}
	failed, err := b.recordCatalogEnd(ctx, record, e)
	if err != nil {
		return err
	}
	if finished {
		b.forgetJob(ctx, record)
		err = b.Store.EndJob(ctx, record.Namespace, record.Name, b.Clock.Now(), failed)
	} else {
		err = b.abandon(ctx, record)
	}
	b.Wake(ctx, record.Key.Digest)
	return b.metrics.countEnd(err, record, outcomeOf(failed), b.jobAge(record))
}

// abandon deletes a Job that has not ended. If the deletion fails, for example because a tenant's webhook rejects it, the record of a
// catalog Job still ends: the Job frees its slot and its result is rejected. The Job is then deleted with the history.
func (b *Backend) abandon(ctx context.Context, record store.Job) error {
	err := b.deleteJob(ctx, record)
	if err == nil || record.Purpose != store.JobCatalog {
		return err
	}
	b.forgetJob(ctx, record)
	return errors.Join(err, b.Store.EndJob(ctx, record.Namespace, record.Name, b.Clock.Now(), true))
}

// recordCatalogEnd decides what the end of a catalog Job means for its image. A failure counts only if the catalog is missing.
func (b *Backend) recordCatalogEnd(ctx context.Context, record store.Job, e jobEnd) (failed bool, err error) {
	q, known := b.requests.get(record)
	catalog, err := b.Store.Catalog(ctx, Engine, record.Key, record.Scope)
	if err == nil && catalog.CountsWith(record.SBOMPolicy) {
		// The catalog that a requested Job had to replace is there before it.
		if requested, err := b.Store.JobRescans(ctx, record); !requested || err != nil {
			return false, err
		}
	} else if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	if leaving, err := b.isTerminating(ctx, record); leaving || err != nil {
		return true, err
	}
	e.failure = q.userFailure(e.failure)
	again := false
	if e.killed {
		if again, err = b.recordOutOfMemory(ctx, record, e.limit); err != nil {
			return false, err
		}
	}
	b.Log.Info("A catalog job failed", "job", record.Namespace+"/"+record.Name, "image", record.Key.String(),
		"reason", e.failure.Reason, "message", e.failure.Message, "againWithMoreMemory", again)
	if again {
		return true, nil
	}
	if !q.failedByAvoiding(e.failure) && (!known || q.hasRegistry(e.failure.Registry)) {
		b.throttles.Record(b.Clock.Now(), record.Scope, e.failure)
	}
	if known {
		b.rememberFailure(q.image, e.failure)
	}
	return true, nil
}

// deleteJob deletes the Job and its pods, if the Job has the recorded UID, and then the record.
func (b *Backend) deleteJob(ctx context.Context, record store.Job) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name}}
	opts := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if record.UID != "" {
		uid := types.UID(record.UID)
		opts = append(opts, client.Preconditions{UID: &uid})
	}
	err := b.Client.Delete(ctx, job, opts...)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) && (!apierrors.IsForbidden(err) || !b.hasExpired(record)) {
		return err
	}
	b.forgetJob(ctx, record)
	return b.Store.DeleteJob(ctx, record.Namespace, record.Name)
}

// hasExpired reports whether a catalog Job must have ended by its deadline and been deleted by its TTL, unless somebody changed these. It is
// used where the operator may not read Jobs any more. A match worker has no deadline.
func (b *Backend) hasExpired(record store.Job) bool {
	catalog := b.Config.Grype.Catalog
	return record.Purpose == store.JobCatalog && b.jobAge(record) >= catalog.Deadline.Duration+catalog.History.TTL.Duration+slowStartTimeout
}

// forgetJob drops everything in memory about a Job.
func (b *Backend) forgetJob(ctx context.Context, record store.Job) {
	b.startProblems.set(record, nil)
	b.requests.remove(record)
	b.contacts.Delete(record.UID)
	if b.data.removeWorker(record.UID) {
		b.DataChanged(ctx)
	}
}

// endCondition returns the condition that ended a Job, or nil if the Job has not ended.
func endCondition(job *batchv1.Job) *batchv1.JobCondition {
	for i, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}
