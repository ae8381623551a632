package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// patch changes a pod that still exists. If the API server refuses the change, an event is emitted for the Scanners that want it.
func (r *PodReconciler) patch(ctx context.Context, pod *corev1.Pod, change podPatch) error {
	err := patchPod(ctx, r.Client, pod, change)
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
func (r *PodReconciler) emitRefusal(ctx context.Context, pod *corev1.Pod, change podPatch, refusal error) {
	for _, name := range change.scanners() {
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

// scanners returns the names of the Scanners on whose behalf a pod is changed, each once.
func (p podPatch) scanners() []string {
	var names []string
	for _, finalizer := range slices.Concat(p.add, p.remove) {
		names = append(names, strings.TrimSuffix(finalizer, podFinalizerSuffix))
	}
	for key := range maps.Keys(p.annotations) {
		names = append(names, strings.TrimSuffix(key, annotationSuffix))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// podPatch is a change of a pod's metadata that contains only entries of this operator.
type podPatch struct {
	// add and remove are finalizers.
	add, remove []string
	// annotations has the values to set; nil removes an annotation.
	annotations map[string]any
}

// patchPod sends a strategic merge patch. It treats finalizers as a set, so that concurrent changes by others are preserved. It returns a
// conflict if another pod has taken the name.
func patchPod(ctx context.Context, c client.Client, pod client.Object, change podPatch) error {
	metadata := map[string]any{}
	if uid := pod.GetUID(); uid != "" {
		metadata["uid"] = uid
	}
	if len(change.add) > 0 {
		metadata["finalizers"] = change.add
	}
	if len(change.remove) > 0 {
		metadata["$deleteFromPrimitiveList/finalizers"] = change.remove
	}
	if len(change.annotations) > 0 {
		metadata["annotations"] = change.annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: pod.GetName()}}
	target.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return c.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
}
