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

// coversPod reports whether a Scanner is responsible for a pod of its namespace, which runs or has ended. A pod that is being deleted does not
// count: it may hang for long on a lost node. The operator's own worker pods do not count either, or a namespace would get findings of the
// operator's image.
func coversPod(scanner *v1alpha1.Scanner, pod *corev1.Pod) bool {
	if backend.IsWorkerPod(pod) || !pod.DeletionTimestamp.IsZero() || !scanner.DeletionTimestamp.IsZero() || pod.Labels[scanner.Spec.IgnoreLabel] == "true" {
		return false
	}
	if scanner.Spec.PodSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(scanner.Spec.PodSelector)
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

// ScannersOf returns the admitted Scanners that are responsible for a pod. A pod that has ended counts for as long as a Scanner retains unused
// images. The Scanners belong to the cache and must not be modified.
func (i *Inventory) ScannersOf(ctx context.Context, pod *corev1.Pod) ([]*v1alpha1.Scanner, error) {
	scanners, err := i.AdmittedScanners(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	scanners = slices.DeleteFunc(scanners, func(s *v1alpha1.Scanner) bool {
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

// podsOf returns the pods, running and ended, that a Scanner is responsible for and that pass accepts. The operator's own Jobs are left
// out.
func (i *Inventory) podsOf(
	ctx context.Context, scanner *v1alpha1.Scanner, pass func(*corev1.Pod) bool, opts ...client.ListOption,
) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := i.Client.List(ctx, &pods, append(opts, client.InNamespace(scanner.Namespace))...); err != nil {
		return nil, err
	}
	var selected []corev1.Pod
	for _, pod := range pods.Items {
		if !pass(&pod) || !coversPod(scanner, &pod) {
			continue
		}
		own, err := i.isOwnJob(ctx, &pod)
		if err != nil {
			return nil, err
		}
		if !own {
			selected = append(selected, pod)
		}
	}
	return selected, nil
}
