package grype

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ensureMatchWorkers starts one match worker if more are needed: while images wait to be matched, or newer data is to be installed for
// images in use. Idle workers end by themselves. Only the Job loop calls it.
func (b *Backend) ensureMatchWorkers(ctx context.Context) error {
	wanted, err := b.wantedWorkers(ctx)
	if err != nil || wanted == 0 {
		return err
	}
	jobs, err := b.Store.LiveJobs(ctx)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if job.Purpose == store.JobMatch {
			wanted--
		}
	}
	if wanted <= 0 || !b.data.mayStartWorker(b.Clock.Now()) {
		return nil
	}
	return b.startMatchWorker(ctx)
}

// wantedWorkers returns how many match workers the queue needs.
func (b *Backend) wantedWorkers(ctx context.Context) (int, error) {
	images, err := b.Store.ImagesInUse(ctx, Engine)
	if err != nil || images == 0 {
		b.metrics.queue.Set(0)
		return 0, err
	}
	queue, err := b.Store.QueueLength(ctx, Engine)
	if err != nil {
		return 0, err
	}
	b.metrics.queue.Set(float64(queue))
	current, err := b.Store.DataVersion(ctx, Engine)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return 0, err
	}
	if queue == 0 && !b.data.wantedBuild(b.Clock.Now(), current.Built).After(current.Built) {
		return 0, nil
	}
	if b.volume.shared() {
		return 1, nil // most PersistentVolumeClaims can be mounted by one node only
	}
	perWorker := b.Config.Grype.Match.ImagesPerWorker
	return min(b.Config.Grype.Match.MaxWorkers, max(1, (queue+perWorker-1)/perWorker)), nil
}

func (b *Backend) startMatchWorker(ctx context.Context) error {
	volume, err := b.volume.choose(ctx, b)
	if err != nil {
		return fmt.Errorf("choosing the vulnerability database's volume: %w", err)
	}
	job := b.matchJob(backend.WorkerName(backend.MatchWorker, b.Random), volume)
	record := store.Job{Namespace: job.Namespace, Name: job.Name, Purpose: store.JobMatch, CreatedAt: b.Clock.Now(), Worker: b.WorkerImage}
	if err := b.Store.SaveJob(ctx, record); err != nil {
		return err
	}
	if err := b.Client.Create(ctx, job); err != nil {
		b.data.recordWorkerEnd(b.Clock.Now(), &backend.Failure{Reason: backend.ReasonJobRejected, Message: err.Error()})
		err = fmt.Errorf("creating a match worker: %w", err)
		if isNotCreated(err) {
			return errors.Join(err, b.Store.DeleteJob(ctx, job.Namespace, job.Name))
		}
		return err // the Job may still exist: the record stays, and the Job loop cleans up
	}
	record.UID = string(job.UID)
	b.Log.Info("Started a match worker", "job", job.Namespace+"/"+job.Name)
	return b.Store.SaveJob(ctx, record)
}

// leaseSlack is the time for fetching an SBOM and sending a report, in addition to matching. It allows for a restart of the manager.
const leaseSlack = 5 * time.Minute

// LeaseTime is how long a match worker holds the lease of an image. A worker that makes no request for longer is ended.
func LeaseTime(match config.Match) time.Duration { return match.Deadline.Duration + leaseSlack }
