package controllers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// ensureFinalizers sets the finalizers of a pod that is not being deleted to those that the given Scanners, which are responsible for it, want. It
// removes all other finalizers of this operator: their Scanner is gone, does not set finalizers, or is not responsible for the pod.
func (r *PodReconciler) ensureFinalizers(ctx context.Context, pod *corev1.Pod, scanners []v1alpha1.GenericScanner) error {
	held := podmark.Finalizers(pod.Finalizers)
	var wanted []string
	for _, scanner := range scanners {
		if finalizer := scanner.GetName() + podmark.FinalizerSuffix; wantsFinalizer(scanner, slices.Contains(held, finalizer)) {
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
	return r.patch(ctx, pod, podmark.Patch{AddFinalizers: missing, RemoveFinalizers: stale})
}

// wantsFinalizer reports whether a Scanner that is responsible for a pod wants its finalizer on it. The Scanner must have its own finalizer
// first: otherwise nothing would remove the pods' finalizers when the Scanner is deleted. A suspended Scanner adds no new ones.
func wantsFinalizer(scanner v1alpha1.GenericScanner, held bool) bool {
	return addsPodFinalizer(scanner) &&
		controllerutil.ContainsFinalizer(scanner, v1alpha1.FinalizerPods) && (held || !isSuspended(scanner))
}
