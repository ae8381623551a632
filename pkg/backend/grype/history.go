package grype

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// pruneHistory removes ended Jobs that nobody is to look at any more: those beyond the numbers, those whose time is
// over, and those of Scanners that have gone. The TTL of a Job does the second even without the operator.
func (b *Backend) pruneHistory(ctx context.Context) error {
	ended, err := b.Store.EndedJobs(ctx)
	if err != nil || len(ended) == 0 {
		return err
	}
	scanners, err := b.Store.Scanners(ctx)
	if err != nil {
		return err
	}
	history := b.Config.Grype.Catalog.History
	left := map[bool]int{true: history.Failed, false: history.Succeeded}
	var over []store.Job
	for _, job := range ended {
		known := slices.Contains(scanners, job.Scanner)
		if known && left[job.Failed] > 0 && b.Clock.Since(job.EndedAt) < history.TTL.Duration {
			left[job.Failed]--
			continue
		}
		over = append(over, job)
	}
	return b.lanes.run(over, func(job store.Job) error { return b.remove(ctx, job) })
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// leaving says whether a Job's namespace is being deleted: its Jobs fail for no other reason, and nobody is to be told.
func (b *Backend) leaving(ctx context.Context, record store.Job) (bool, error) {
	if record.Namespace == b.Namespace {
		return false, nil
	}
	var namespace corev1.Namespace
	err := b.Reader.Get(ctx, types.NamespacedName{Name: record.Namespace}, &namespace)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return !namespace.DeletionTimestamp.IsZero(), err
}
