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
)

// Finalizers that hold a Scanner's deletion while something outside it needs undoing.
const (
	// scannerFinalizer is there until the Scanner's finalizers are off all pods.
	scannerFinalizer = "scanner-operator.io/pod-finalizers"
	// manifestsFinalizer is there until an engine keeps nothing elsewhere on the Scanner's behalf, or its time is over.
	manifestsFinalizer = "scanner-operator.io/backend-manifests"
)

// scannerFinalizers are those of a Scanner's finalizers that are this operator's.
func scannerFinalizers(all []string) []string {
	var own []string
	for _, finalizer := range all {
		if finalizer == scannerFinalizer || finalizer == manifestsFinalizer {
			own = append(own, finalizer)
		}
	}
	return own
}

// +kubebuilder:rbac:groups=scanner-operator.io,resources=scanners,verbs=patch

// keepFinalizers gives the Scanner its finalizers while something elsewhere needs undoing, and takes them away after.
// A positive duration is when to look again.
func (r *ScannerReconciler) keepFinalizers(ctx context.Context, scanner *v1alpha1.Scanner) (time.Duration, error) {
	// What goes wrong with one does not hold up the other.
	pods, podsErr := r.holdsPods(ctx, scanner)
	manifests, wait, manifestsErr := r.holdsManifests(ctx, scanner)
	before := scanner.DeepCopy()
	changed := podsErr == nil && setFinalizer(scanner, scannerFinalizer, pods)
	changed = manifestsErr == nil && setFinalizer(scanner, manifestsFinalizer, manifests) || changed
	err := errors.Join(podsErr, manifestsErr)
	if changed {
		// A merge patch replaces the whole list: with the lock it fails if somebody else changed it meanwhile.
		patched := r.Client.Patch(ctx, scanner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		err = errors.Join(err, client.IgnoreNotFound(patched))
	}
	return wait, err
}

// setFinalizer says whether it changed anything. The API server takes no new ones of what is being deleted.
func setFinalizer(scanner *v1alpha1.Scanner, finalizer string, wanted bool) bool {
	if wanted {
		return scanner.DeletionTimestamp.IsZero() && controllerutil.AddFinalizer(scanner, finalizer)
	}
	return controllerutil.RemoveFinalizer(scanner, finalizer)
}

// holdsPods says whether any pod has the Scanner's finalizer, or may get it: the Scanner has its own before the first pod
// may have one, and until the last has lost it. The PodReconciler does that to the pods, whose events lead here again.
func (r *ScannerReconciler) holdsPods(ctx context.Context, scanner *v1alpha1.Scanner) (bool, error) {
	if scanner.DeletionTimestamp.IsZero() && addsPodFinalizer(scanner) {
		return true, nil
	}
	if !controllerutil.ContainsFinalizer(scanner, scannerFinalizer) {
		return false, nil
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(scanner.Namespace)); err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return slices.Contains(pod.Finalizers, scanner.Name+podFinalizerSuffix)
	}), nil
}
