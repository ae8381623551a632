package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// retention returns how long an image is kept after its last use. An image whose pods ended also stays in use for that time.
func retention(scanner *v1alpha1.Scanner) time.Duration {
	if scanner.Spec.UnusedImageRetention != nil {
		return scanner.Spec.UnusedImageRetention.Duration
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

// hasImagesInUse reports whether the images of a Scanner's pod are in use: the pod runs, or ended within the Scanner's retention.
func hasImagesInUse(scanner *v1alpha1.Scanner, pod *corev1.Pod, now time.Time) bool {
	return isActive(pod) || now.Sub(endedAt(pod, now)) < retention(scanner)
}

// recent returns a Scanner's images that no pod runs now and whose last pods ended within its retention, ordered by ID. It leaves out
// images in running, which the store may not have recorded yet.
func (i inventory) recent(
	ctx context.Context, scanner *v1alpha1.Scanner, images []store.RecentImage, reported map[image.Key]store.ReportAge, running []coveredImage,
) (recent []coveredImage, err error) {
	if len(images) == 0 {
		return nil, nil
	}
	scans, err := i.scansByKey(ctx, scanner)
	if err != nil {
		return nil, err
	}
	for _, img := range images {
		named := podImage{}
		if named.Reference, err = image.ParseReference(img.Reference); err != nil {
			named.Reference.Repository = img.Repositories[0]
		}
		state := stateOf(scanner, runningImage{named, img.Key}, scans[img.Key], reported)
		state.Repositories, state.Receivers = img.Repositories, img.Receivers
		if state.State != imageExcluded && !slices.ContainsFunc(running, func(r coveredImage) bool { return r.ID == state.ID }) {
			recent = append(recent, state)
		}
	}
	slices.SortFunc(recent, func(a, b coveredImage) int { return strings.Compare(a.ID, b.ID) })
	return recent, nil
}

// staysInUse reports whether an image that no pod runs now is still scanned. Without its pods it is indexed only if no credentials are
// needed, since credentials are known only from pods.
func (r *ImageScanReconciler) staysInUse(ctx context.Context, s *imageScanScope) (bool, error) {
	if len(s.ended) > 0 || s.backend == nil {
		return len(s.ended) > 0, nil
	}
	recent, err := r.Store.RecentImages(ctx, string(s.scanner.UID), s.backend.Engine())
	if err != nil || !slices.ContainsFunc(recent, func(img store.RecentImage) bool { return img.Key == s.key }) {
		return false, err
	}
	location, err := r.Store.Locate(ctx, string(s.scanner.UID), s.scan.Namespace, s.key)
	if err != nil {
		return false, ignoreMissing(err)
	}
	s.image.Scope = location.Scope
	return location.Scope == store.Cluster || location.PlatformDigest != "", nil
}
