package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// podFinalizerSuffix ends the finalizer that a Scanner has on pods, after its name. The name is at most 63 characters
// long, so that the part before the slash is well within the 253 that a DNS subdomain may have.
const podFinalizerSuffix = ".scanner-operator.io/release"

// Recording a release fails only with the store. Then it is tried again after releaseRetry, and for no longer than
// releasePatience after the pod's grace period: a store that is full must not keep a namespace's pods from going.
// Nothing is lost by that: when the store works again, uses are counted from the pods that are there.
const (
	releaseRetry    = 2 * time.Second
	releasePatience = 15 * time.Second
)

// UseRecorder tells the store who runs the image of an ImageScan now.
type UseRecorder interface {
	RecordUse(ctx context.Context, scan *v1alpha1.ImageScan) error
}

// podFinalizers are those of a pod's finalizers that are this operator's.
func podFinalizers(all []string) []string {
	var own []string
	for _, finalizer := range all {
		if strings.HasSuffix(finalizer, podFinalizerSuffix) {
			own = append(own, finalizer)
		}
	}
	return own
}

// release lets a pod go that is being deleted: its release is recorded, then its finalizers go, all with one call.
func (r *PodReconciler) release(ctx context.Context, pod *corev1.Pod) (ctrl.Result, error) {
	held := podFinalizers(pod.Finalizers)
	if len(held) == 0 {
		return ctrl.Result{}, nil
	}
	if err := r.recordRelease(ctx, pod, held); err != nil {
		log := ctrl.LoggerFrom(ctx)
		if r.Clock.Since(pod.DeletionTimestamp.Time) < releasePatience {
			log.Error(err, "Recording the release of a pod; it is held until then")
			return ctrl.Result{RequeueAfter: releaseRetry}, nil
		}
		log.Error(err, "Recording the release of a pod; it goes without")
	}
	return ctrl.Result{}, r.patch(ctx, pod, podPatch{remove: held})
}

// hold makes the finalizers of a pod that is not being deleted those that these Scanners, which are about it, want.
// All others of this operator go, whether their Scanner has gone, was switched off, or is not about the pod any more.
func (r *PodReconciler) hold(ctx context.Context, pod *corev1.Pod, scanners []v1alpha1.Scanner) error {
	held := podFinalizers(pod.Finalizers)
	var wanted []string
	for i := range scanners {
		if finalizer := scanners[i].Name + podFinalizerSuffix; wantsFinalizer(&scanners[i], slices.Contains(held, finalizer)) {
			wanted = append(wanted, finalizer)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(f string) bool { return slices.Contains(held, f) })
	stale := slices.DeleteFunc(held, func(f string) bool { return slices.Contains(wanted, f) })
	if len(missing)+len(stale) == 0 {
		return nil
	}
	if err := r.recordRelease(ctx, pod, stale); err != nil {
		return err
	}
	return r.patch(ctx, pod, podPatch{add: missing, remove: stale})
}

// wantsFinalizer says whether a Scanner wants a pod that it is about to have its finalizer. The Scanner's own comes
// first: without it nobody would take the pods' away when the Scanner is deleted. A suspended one begins nothing new.
func wantsFinalizer(scanner *v1alpha1.Scanner, held bool) bool {
	return scanner.Spec.PodFinalizer == v1alpha1.Enabled &&
		controllerutil.ContainsFinalizer(scanner, scannerFinalizer) && (held || !scanner.Spec.Suspend)
}

// recordRelease has the store know what the pods run without this one, for the Scanners of these finalizers.
func (r *PodReconciler) recordRelease(ctx context.Context, pod *corev1.Pod, finalizers []string) error {
	if len(finalizers) == 0 {
		return nil
	}
	resolved, _ := imagesOf(pod)
	var errs []error
	for _, img := range resolved {
		var scans v1alpha1.ImageScanList
		err := r.Client.List(ctx, &scans, client.InNamespace(pod.Namespace), client.MatchingFields{imageScansByDigest: img.ID.Digest})
		if err != nil {
			return err
		}
		for i := range scans.Items {
			if slices.Contains(finalizers, scans.Items[i].Spec.Scanner+podFinalizerSuffix) {
				errs = append(errs, r.Uses.RecordUse(ctx, &scans.Items[i]))
			}
		}
	}
	return errors.Join(errs...)
}

// patch changes a pod that is still there.
func (r *PodReconciler) patch(ctx context.Context, pod *corev1.Pod, change podPatch) error {
	err := patchPod(ctx, r.Client, pod, change)
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		// Another pod of the same name took its place, or it is being deleted and takes no finalizer any more: either
		// has an event of its own.
		return nil
	}
	return client.IgnoreNotFound(err)
}

// podPatch is a change of a pod's metadata that names only what is this operator's.
type podPatch struct {
	// add and remove are finalizers.
	add, remove []string
	// annotations to set, or with nil to remove.
	annotations map[string]any
}

// patchPod sends a strategic merge patch: finalizers are a set to it, so what others add or remove at the same time
// stays as they want it. It fails with a conflict if the pod is another one of the same name.
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
