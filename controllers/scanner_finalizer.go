package controllers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// scannerFinalizer holds a Scanner's deletion until its finalizers are off all pods.
const scannerFinalizer = "scanner-operator.io/pod-finalizers"

// +kubebuilder:rbac:groups=scanner-operator.io,resources=scanners,verbs=patch

// keepFinalizer gives the Scanner its finalizer before the first pod may have one, and takes it away after the last
// pod has lost its own. The PodReconciler does that to the pods, whose events lead here again.
func (r *ScannerReconciler) keepFinalizer(ctx context.Context, scanner *v1alpha1.Scanner) error {
	wanted := scanner.DeletionTimestamp.IsZero() && scanner.Spec.PodFinalizer == v1alpha1.Enabled
	if wanted == controllerutil.ContainsFinalizer(scanner, scannerFinalizer) {
		return nil
	}
	before := scanner.DeepCopy()
	if wanted {
		controllerutil.AddFinalizer(scanner, scannerFinalizer)
	} else {
		if held, err := r.holdsPods(ctx, scanner); held || err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(scanner, scannerFinalizer)
	}
	// A merge patch replaces the whole list: with the lock it fails if somebody else changed it meanwhile.
	err := r.Client.Patch(ctx, scanner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

// holdsPods says whether any pod still has the Scanner's finalizer.
func (r *ScannerReconciler) holdsPods(ctx context.Context, scanner *v1alpha1.Scanner) (bool, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(scanner.Namespace)); err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return slices.Contains(pod.Finalizers, scanner.Name+podFinalizerSuffix)
	}), nil
}
