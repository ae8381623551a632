package controllers

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// podFinalizerSuffix is the end of the finalizer that a Scanner sets on pods. The Scanner's name comes before it. With a name of at most 63
// characters, the part before the slash stays well within the 253 characters of a DNS subdomain.
const podFinalizerSuffix = ".scanner-operator.io/release"

// UseRecorder records in the store which workloads run the image of an ImageScan now.
type UseRecorder interface {
	RecordUse(ctx context.Context, scan *v1alpha1.ImageScan) error
}

// podFinalizers returns those of a pod's finalizers that are this operator's.
func podFinalizers(all []string) []string {
	var own []string
	for _, finalizer := range all {
		if strings.HasSuffix(finalizer, podFinalizerSuffix) {
			own = append(own, finalizer)
		}
	}
	return own
}

// ensureFinalizers sets the finalizers of a pod that is not being deleted to those that the given Scanners, which are responsible for it, want. It
// removes all other finalizers of this operator: their Scanner is gone, does not set finalizers, or is not responsible for the pod.
func (r *PodReconciler) ensureFinalizers(ctx context.Context, pod *corev1.Pod, scanners []v1alpha1.Scanner) error {
	held := podFinalizers(pod.Finalizers)
	var wanted []string
	for i := range scanners {
		if finalizer := scanners[i].Name + podFinalizerSuffix; wantsFinalizer(&scanners[i], slices.Contains(held, finalizer)) {
			wanted = append(wanted, finalizer)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(f string) bool { return slices.Contains(held, f) })
	stale := slices.DeleteFunc(held, func(f string) bool { return slices.Contains(wanted, f) })
	if len(missing)+len(stale) == 0 {
		return nil
	}
	if err := r.recordRelease(ctx, pod, stale, releaseTimeout); err != nil {
		return err
	}
	return r.patch(ctx, pod, podPatch{add: missing, remove: stale})
}

// wantsFinalizer reports whether a Scanner that is responsible for a pod wants its finalizer on it. The Scanner must have its own finalizer
// first: otherwise nothing would remove the pods' finalizers when the Scanner is deleted. A suspended Scanner adds no new ones.
func wantsFinalizer(scanner *v1alpha1.Scanner, held bool) bool {
	return addsPodFinalizer(scanner) &&
		controllerutil.ContainsFinalizer(scanner, scannerFinalizer) && (held || !isSuspended(scanner))
}
