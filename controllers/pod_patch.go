package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// patch changes a pod that still exists. If the API server refuses the change, an event is emitted for the Scanners that want it.
func (r *PodReconciler) patch(ctx context.Context, pod *corev1.Pod, change podmark.Patch) error {
	err := change.Apply(ctx, r.Client, pod)
	if apierrors.IsConflict(err) || isMetadataRejected(err) {
		// Either another pod has taken the name, or the pod is being deleted and accepts no new finalizer. Both have an event of their own.
		return nil
	}
	if isRefused(err) {
		r.emitRefusal(ctx, pod, change, err)
	}
	return client.IgnoreNotFound(err)
}

// isMetadataRejected reports whether the API server itself rejects a field of the pod's metadata. A policy that denies a change also returns
// "invalid" by default, but names no field.
func isMetadataRejected(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return strings.HasPrefix(cause.Field, "metadata.")
	})
}

// isRefused reports whether an error lasts until someone changes a policy, an unreachable webhook or a role.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err)
}

// emitRefusal emits an event for each Scanner on whose behalf a pod was to be changed. The reference has no resource version, so that the
// recorder aggregates all refusals, of any pod, into one event.
func (r *PodReconciler) emitRefusal(ctx context.Context, pod *corev1.Pod, change podmark.Patch, refusal error) {
	for _, name := range change.Scanners() {
		var scanner v1alpha1.Scanner
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, &scanner); err != nil {
			if !apierrors.IsNotFound(err) {
				ctrl.LoggerFrom(ctx).Error(err, "Reading a Scanner to report a refusal")
			}
			continue
		}
		note := fmt.Sprintf("the API server refuses the operator's finalizer or annotation on pods, such as %s; their images are scanned "+
			"all the same. Allow it, or set spec.addPodFinalizer and spec.addPodAnnotation to false: %v", pod.Name, refusal)
		regarding := &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: scanner.Namespace, Name: name, UID: scanner.UID}}
		r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, v1alpha1.ReasonPodChangeRefused, "Mark", "%s", truncate(note, maxEventNote))
	}
}
