package inventory

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// IsActive reports whether a pod runs or is about to.
func IsActive(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// coversPod reports whether a scanner is responsible for a pod of a namespace that it covers. The pod runs or has ended. A pod that is being deleted does not
// count: it may hang for long on a lost node. The operator's own worker pods do not count either, or a namespace would get findings of the
// operator's image.
func coversPod(scanner v1alpha1.GenericScanner, pod *corev1.Pod) bool {
	if backend.IsWorkerPod(pod) || !pod.DeletionTimestamp.IsZero() || scanner.GetDeletionTimestamp() != nil || pod.Labels[scanner.Settings().IgnoreLabel] == "true" {
		return false
	}
	if scanner.Settings().PodSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(scanner.Settings().PodSelector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// isOwnJob reports whether a pod belongs to a Job that the operator created. It relies on the store's record, not on labels, which anyone
// may set. The record has the Job's name from before its creation and its UID from then on, until the Job is removed.
func (i *Inventory) isOwnJob(ctx context.Context, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" {
		return false, nil
	}
	return i.Store.IsRecorded(ctx, pod.Namespace, owner.Name, string(owner.UID))
}

// ScannersOf returns the scanners that are responsible for a pod. A pod that has ended counts for as long as a scanner retains unused images.
// The scanners belong to the cache and must not be modified.
func (i *Inventory) ScannersOf(ctx context.Context, pod *corev1.Pod) ([]v1alpha1.GenericScanner, error) {
	scanners, err := i.ScannersIn(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	scanners = slices.DeleteFunc(scanners, func(s v1alpha1.GenericScanner) bool {
		return !coversPod(s, pod) || !hasImagesInUse(s, pod, i.Clock.Now())
	})
	if len(scanners) == 0 {
		return nil, nil
	}
	own, err := i.isOwnJob(ctx, pod)
	if own || err != nil {
		return nil, err
	}
	return scanners, nil
}

// VisitPods calls visit with each pod in the cache that the options select. Visits end with the first error. visit may keep a pod, and must
// not modify it.
func (i *Inventory) VisitPods(ctx context.Context, visit func(*corev1.Pod) error, opts ...client.ListOption) error {
	if i.Pods != nil {
		return i.Pods.VisitPods(ctx, visit, opts...)
	}
	var pods corev1.PodList
	if err := i.Client.List(ctx, &pods, append(slices.Clone(opts), client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	for n := range pods.Items {
		if err := visit(&pods.Items[n]); err != nil {
			return err
		}
	}
	return nil
}

// visitPodsOf visits the pods, running and ended, that a scanner is responsible for in a namespace that it covers, and that pass accepts. The
// operator's own Jobs are left out.
func (i *Inventory) visitPodsOf(
	ctx context.Context, scanner v1alpha1.GenericScanner, namespace string, pass func(*corev1.Pod) bool, visit func(*corev1.Pod) error,
	opts ...client.ListOption,
) error {
	return i.VisitPods(ctx, func(pod *corev1.Pod) error {
		if !pass(pod) || !coversPod(scanner, pod) {
			return nil
		}
		if own, err := i.isOwnJob(ctx, pod); own || err != nil {
			return err
		}
		return visit(pod)
	}, append(opts, client.InNamespace(namespace))...)
}
