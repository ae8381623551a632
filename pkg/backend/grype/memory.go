package grype

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ladder holds the memory limits to catalog an image with. Each attempt that runs out of memory is followed by one with the next higher
// limit.
type ladder struct {
	// resources are those of the first attempt. They have no limit if the operator's configuration sets none.
	resources corev1.ResourceRequirements
	rungs     []resource.Quantity
}

// ladderOf returns the ladder of the Scanner's settings, or else the operator's. A Scanner without a memory limit gets the operator's limit,
// or its own request if that is higher. Thus omitting the limit never makes a Job unbounded.
func (b *Backend) ladderOf(shape v1alpha1.CatalogJob) ladder {
	catalog := b.Config.Grype.Catalog
	l := ladder{resources: catalog.Resources, rungs: catalog.MemoryLadder}
	if shape.Resources != nil {
		l.resources = *shape.Resources.DeepCopy()
		if limit, found := catalog.Resources.Limits[corev1.ResourceMemory]; found && l.resources.Limits.Memory().IsZero() {
			if request := l.resources.Requests.Memory(); request.Cmp(limit) > 0 {
				limit = *request
			}
			l.resources.Limits = withMemory(l.resources.Limits, limit)
		}
	}
	if len(shape.MemoryLadder) > 0 {
		l.rungs = shape.MemoryLadder
	}
	return l
}

func withMemory(list corev1.ResourceList, quantity resource.Quantity) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[corev1.ResourceMemory] = quantity
	return list
}

// nextLimit returns the lowest limit greater than bytes, or 0 if there is none.
func (l ladder) nextLimit(bytes int64) (least int64) {
	for _, limit := range l.limits() {
		if limit > bytes && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// limits returns all limits in bytes, unsorted; 0 stands for no limit.
func (l ladder) limits() []int64 {
	limits := []int64{l.resources.Limits.Memory().Value()}
	for _, rung := range l.rungs {
		limits = append(limits, rung.Value())
	}
	return limits
}

// resourcesAfter returns the resources of the next attempt after exceeded bytes were not enough: the next higher limit, or else the highest. The
// request never exceeds the limit.
func (l ladder) resourcesAfter(exceeded int64) corev1.ResourceRequirements {
	resources := *l.resources.DeepCopy()
	limit := cmp.Or(l.nextLimit(exceeded), slices.Max(l.limits()))
	if exceeded == 0 || limit <= resources.Limits.Memory().Value() {
		return resources
	}
	quantity := *resource.NewQuantity(limit, resource.BinarySI)
	resources.Limits = withMemory(resources.Limits, quantity)
	if request, found := resources.Requests[corev1.ResourceMemory]; found && request.Cmp(quantity) > 0 {
		resources.Requests[corev1.ResourceMemory] = quantity
	}
	return resources
}

// recordOutOfMemory handles a Job whose worker was OOM-killed. If a higher limit is left, that is no failure: the image is retried at once. The
// store remembers the exceeded limit, so that later attempts start above it.
func (b *Backend) recordOutOfMemory(ctx context.Context, record store.Job, limit int64) (again bool, err error) {
	// The record's limit takes precedence: a tenant who changes the pod's limit must not cause retries with the same limit.
	exceeded := record.Memory
	if exceeded == 0 {
		exceeded = limit // the Job has no limit of its own: the namespace's LimitRange set one
	}
	if exceeded == 0 {
		return false, nil // the node ran out of memory, whatever limit the Job has
	}
	if err := b.Store.RecordMemoryExceeded(ctx, record.Key, record.Scope, exceeded); err != nil {
		return false, err
	}
	again = record.MaxMemory > exceeded
	b.metrics.ladderSteps.WithLabelValues(map[bool]string{true: "retried", false: "exhausted"}[again]).Inc()
	return again, nil
}

// outOfMemoryFailure returns the failure at the top of the ladder. It names the setting to change. The limit is that of the pod, which webhooks
// and LimitRanges may have changed from the Job's.
func (b *Backend) outOfMemoryFailure(record store.Job, limit int64) *backend.Failure {
	lowered := ""
	if limit > 0 && limit < record.Memory {
		lowered = fmt.Sprintf(" (the Job has a limit of %s, which something in its namespace lowers)", formatBytes(record.Memory))
	}
	if limit = cmp.Or(limit, record.Memory); limit == 0 {
		return &backend.Failure{Reason: backend.ReasonOutOfMemory, Message: "the worker was killed because its node had no memory left: " +
			"set a memory request and limit in " + b.settingName(record, "resources")}
	}
	message := fmt.Sprintf("the worker needed more memory than %s%s: ", formatBytes(limit), lowered)
	if record.Purpose == store.JobMatch {
		return &backend.Failure{Reason: backend.ReasonOutOfMemory, Message: message + "raise grype.match.resources in the operator's configuration"}
	}
	return &backend.Failure{Reason: backend.ReasonOutOfMemory, Message: message + "add a larger limit to " + b.settingName(record, "memoryLadder")}
}

// settingName returns the name of a catalog setting in the object that applies to this Job.
func (b *Backend) settingName(record store.Job, field string) string {
	switch {
	case record.Purpose == store.JobMatch:
		return "grype.match." + field + " in the operator's configuration"
	case record.Namespace == b.Namespace:
		return "grype.catalog." + field + " in the operator's configuration"
	}
	return "spec.backend.grype.job." + field + " of the Scanner (or grype.catalog." + field + " in the operator's configuration)"
}

// formatBytes formats a number of bytes as Kubernetes does, such as "4Gi".
func formatBytes(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
