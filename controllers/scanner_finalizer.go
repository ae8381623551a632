package controllers

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// +kubebuilder:rbac:groups=scanner-operator.io,resources=scanners,verbs=patch
// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=scanner-operator.io,resources=clusterscanners,verbs=patch

// keepFinalizers adds the Scanner's finalizers while something outside it has to be cleaned up, and removes them afterwards. A positive
// duration is the requeue delay.
func (r *ScannerReconciler) keepFinalizers(ctx context.Context, scanner v1alpha1.GenericScanner) (time.Duration, error) {
	// A failure of one does not block the other.
	pods, podsErr := r.holdsPods(ctx, scanner)
	manifests, wait, manifestsErr := r.holdsManifests(ctx, scanner)
	before := copyOf(scanner)
	changed := podsErr == nil && setFinalizer(scanner, v1alpha1.FinalizerPods, pods)
	changed = manifestsErr == nil && setFinalizer(scanner, v1alpha1.FinalizerManifests, manifests) || changed
	err := errors.Join(podsErr, manifestsErr)
	if changed {
		// A merge patch replaces the whole list. With the optimistic lock it fails if someone else changed the Scanner meanwhile.
		patched := r.Client.Patch(ctx, scanner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		err = errors.Join(err, client.IgnoreNotFound(patched))
	}
	return wait, err
}

// setFinalizer reports whether it changed the Scanner. It adds none to a Scanner that is being deleted, since the API server would refuse
// it.
func setFinalizer(scanner v1alpha1.GenericScanner, finalizer string, wanted bool) bool {
	if wanted {
		return scanner.GetDeletionTimestamp().IsZero() && controllerutil.AddFinalizer(scanner, finalizer)
	}
	return controllerutil.RemoveFinalizer(scanner, finalizer)
}

// holdsPods reports whether any pod has the Scanner's finalizer or may get it. The Scanner has its own finalizer before the first pod may
// get one, and until the last pod has lost it. The PodReconciler changes the pods, whose events trigger this reconciler again.
func (r *ScannerReconciler) holdsPods(ctx context.Context, scanner v1alpha1.GenericScanner) (bool, error) {
	if scanner.GetDeletionTimestamp().IsZero() && addsPodFinalizer(scanner) {
		return true, nil
	}
	if !controllerutil.ContainsFinalizer(scanner, v1alpha1.FinalizerPods) {
		return false, nil
	}
	holds := false
	err := r.Inventory.VisitPods(ctx, func(pod *corev1.Pod) error {
		holds = holds || slices.Contains(pod.Finalizers, scanner.GetName()+podmark.FinalizerSuffix)
		return nil
	}, client.InNamespace(scanner.GetNamespace()))
	return holds, err
}
