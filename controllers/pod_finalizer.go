package controllers

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// podFinalizerSuffix ends the finalizer that a Scanner has on pods, after its name. The name is at most 63 characters
// long, so that the part before the slash is well within the 253 that a DNS subdomain may have.
const podFinalizerSuffix = ".scanner-operator.io/release"

// UseRecorder tells the store who runs the image of an ImageScan now.
type UseRecorder interface {
	RecordUse(ctx context.Context, scan *v1alpha1.ImageScan) error
}

// podFinalizers are those of a pod's finalizers that are this operator's.
func podFinalizers(all []string) []string {
	var own []string
	for _, finalizer := range all {
		if strings.HasSuffix(finalizer, podFinalizerSuffix) {
			own = append(own, finalizer)
		}
	}
	return own
}

// hold makes the finalizers of a pod that is not being deleted those that these Scanners, which are about it, want.
// All others of this operator go, whether their Scanner has gone, was switched off, or is not about the pod any more.
func (r *PodReconciler) hold(ctx context.Context, pod *corev1.Pod, scanners []v1alpha1.Scanner) error {
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
	if err := r.recordRelease(ctx, pod, stale, releasePatience); err != nil {
		return err
	}
	return r.patch(ctx, pod, podPatch{add: missing, remove: stale})
}

// wantsFinalizer says whether a Scanner wants a pod that it is about to have its finalizer. The Scanner's own comes
// first: without it nobody would take the pods' away when the Scanner is deleted. A suspended one begins nothing new.
func wantsFinalizer(scanner *v1alpha1.Scanner, held bool) bool {
	return addsPodFinalizer(scanner) &&
		controllerutil.ContainsFinalizer(scanner, scannerFinalizer) && (held || !isSuspended(scanner))
}
