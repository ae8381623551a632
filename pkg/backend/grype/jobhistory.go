package grype

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxEndedJobs bounds the ended Jobs of all namespaces together.
const maxEndedJobs = 1000

// pruneHistory deletes ended Jobs beyond the history limits of their Scanner's namespace, past their TTL, or of deleted Scanners. A Job's
// own TTL enforces the second even without the operator.
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
	most := map[bool]int{true: history.Failed, false: history.Succeeded}
	type account struct {
		namespace string
		failed    bool
	}
	kept, all := map[account]int{}, 0
	var over []store.Job
	for _, job := range ended {
		// Limits apply per namespace of the Scanner, even for Jobs in the operator's namespace: a namespace whose Jobs keep failing does
		// not displace the history of others.
		own := account{cmp.Or(job.ScannerNamespace, job.Namespace), job.Failed}
		known := slices.Contains(scanners, job.Scanner)
		if known && kept[own] < most[job.Failed] && all < maxEndedJobs && b.Clock.Since(job.EndedAt) < history.TTL.Duration {
			kept[own]++
			all++
			continue
		}
		over = append(over, job)
	}
	return b.runner.run(ctx, over, func(job store.Job) error { return b.deleteJob(ctx, job) })
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups="",resources=namespaces,verbs=get

// isTerminating reports whether a Job's namespace is being deleted or gone. Jobs fail there for that reason alone, which is not to be reported.
func (b *Backend) isTerminating(ctx context.Context, record store.Job) (bool, error) {
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
