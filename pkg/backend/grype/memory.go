package grype

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ladder are the memory limits that an image is cataloged with, one after the other while none is enough.
type ladder struct {
	// resources of the first attempt. They have no limit if the operator's configuration has none.
	resources corev1.ResourceRequirements
	rungs     []resource.Quantity
}

// ladderOf is the operator's, or that of the Scanner in whose namespace the Job runs. A Scanner that names no memory
// limit gets the operator's, or what it requests if that is more: no image is cataloged without a bound by omission.
func (b *Backend) ladderOf(img backend.Image) ladder {
	catalog, shape := b.Config.Grype.Catalog, b.shapeOf(img)
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

// above is the least limit greater than so many bytes; 0 if there is none.
func (l ladder) above(bytes int64) (least int64) {
	for _, limit := range l.limits() {
		if limit > bytes && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// limits in bytes, in no order; 0 stands for none.
func (l ladder) limits() []int64 {
	limits := []int64{l.resources.Limits.Memory().Value()}
	for _, rung := range l.rungs {
		limits = append(limits, rung.Value())
	}
	return limits
}

// after is what an image gets for which so many bytes were not enough: the first limit above, or the last there is.
// What is requested is never more than the limit.
func (l ladder) after(exceeded int64) corev1.ResourceRequirements {
	resources := *l.resources.DeepCopy()
	limit := cmp.Or(l.above(exceeded), slices.Max(l.limits()))
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

// outOfMemory follows a Job whose worker was killed for its memory. While there is a next rung that is no failure: the
// image is tried again at once, and begins there from now on.
func (b *Backend) outOfMemory(ctx context.Context, record store.Job, limit int64) (again bool, err error) {
	// The record's comes first: what a tenant makes of the pod's limit must not have the same rung tried again.
	exceeded := record.Memory
	if exceeded == 0 {
		exceeded = limit // not the Job's own: the namespace's LimitRange gave it one
	}
	if exceeded == 0 {
		return false, nil // its node had no memory left, whatever the Job may have
	}
	if err := b.Store.ExceedMemory(ctx, record.Key, record.Scope, exceeded); err != nil {
		return false, err
	}
	again = record.MostMemory > exceeded
	b.counts.steps.WithLabelValues(map[bool]string{true: "retried", false: "exhausted"}[again]).Inc()
	return again, nil
}

// tooMuchMemory is the failure at the top of the ladder, which names the setting that helps. The limit is the pod's own,
// which webhooks and LimitRanges may have made another than the Job's.
func (b *Backend) tooMuchMemory(record store.Job, limit int64) *backend.Failure {
	lowered := ""
	if limit > 0 && limit < record.Memory {
		lowered = fmt.Sprintf(" (the Job has a limit of %s, which something in its namespace lowers)", inBytes(record.Memory))
	}
	if limit = cmp.Or(limit, record.Memory); limit == 0 {
		return &backend.Failure{Reason: ReasonOutOfMemory, Message: "the worker was killed because its node had no memory left: " +
			"set a memory request and limit in " + b.setting(record, "resources")}
	}
	message := fmt.Sprintf("the worker needed more memory than %s%s: ", inBytes(limit), lowered)
	if record.Purpose == store.JobMatch {
		return &backend.Failure{Reason: ReasonOutOfMemory, Message: message + "raise grype.match.resources in the operator's configuration"}
	}
	return &backend.Failure{Reason: ReasonOutOfMemory, Message: message + "add a larger limit to " + b.setting(record, "memoryLadder")}
}

// setting names a setting of catalog Jobs where it counts for this one.
func (b *Backend) setting(record store.Job, field string) string {
	switch {
	case record.Purpose == store.JobMatch:
		return "grype.match." + field + " in the operator's configuration"
	case record.Namespace == b.Namespace:
		return "grype.catalog." + field + " in the operator's configuration"
	}
	return "spec.backend.grype.job." + field + " of the Scanner (or grype.catalog." + field + " in the operator's configuration)"
}

// inBytes writes a number of bytes as Kubernetes does: 4Gi.
func inBytes(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
