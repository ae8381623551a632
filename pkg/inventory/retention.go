package inventory

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Retention returns how long an image is kept after its last use. An image whose pods ended also stays in use for that time.
func Retention(scanner v1alpha1.GenericScanner) time.Duration {
	if scanner.Settings().UnusedImageRetention != nil {
		return scanner.Settings().UnusedImageRetention.Duration
	}
	return 24 * time.Hour
}

// runsToCompletion reports whether a pod is meant to end by itself.
func runsToCompletion(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

// endedAt returns when a pod ended that does not run: when its last container finished or, if no node reports that, when the pod ceased to
// be ready or was created. If none of these is known, it returns now.
func endedAt(pod *corev1.Pod, now time.Time) time.Time {
	var last time.Time
	for _, status := range containerStatuses(pod) {
		if end := status.State.Terminated; end != nil && end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
	}
	if !last.IsZero() {
		return last
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && !condition.LastTransitionTime.IsZero() {
			return condition.LastTransitionTime.Time
		}
	}
	if !pod.CreationTimestamp.IsZero() {
		return pod.CreationTimestamp.Time
	}
	return now
}

// hasImagesInUse reports whether the images of a Scanner's pod are in use: the pod runs, or ended within the Scanner's Retention.
func hasImagesInUse(scanner v1alpha1.GenericScanner, pod *corev1.Pod, now time.Time) bool {
	return IsActive(pod) || now.Sub(endedAt(pod, now)) < Retention(scanner)
}
