// Package podmark sets and removes the operator's finalizers and annotations on the pods of users. Each Scanner has one finalizer and one
// annotation. The operator changes nothing else of a pod.
package podmark

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FinalizerSuffix is the end of the finalizer that a Scanner sets on pods. The Scanner's name comes before it. With a name of at most 63
// characters, the part before the slash stays well within the 253 characters of a DNS subdomain.
const FinalizerSuffix = ".scanner-operator.io/release"

// AnnotationSuffix is the end of the key of the annotation that a Scanner sets on pods. The Scanner's name comes before it.
const AnnotationSuffix = ".scanner-operator.io/image-hashes"

// ClusterAnnotationSuffix is the same for a ClusterScanner. Its end is AnnotationSuffix.
const ClusterAnnotationSuffix = ".cluster" + AnnotationSuffix

// Finalizers returns those of a pod's finalizers that are this operator's.
func Finalizers(all []string) []string {
	var own []string
	for _, finalizer := range all {
		if strings.HasSuffix(finalizer, FinalizerSuffix) {
			own = append(own, finalizer)
		}
	}
	return own
}

// Annotations returns the keys of those of a pod's annotations that are this operator's, sorted.
func Annotations(all map[string]string) []string {
	var own []string
	for key := range all {
		if strings.HasSuffix(key, AnnotationSuffix) {
			own = append(own, key)
		}
	}
	slices.Sort(own)
	return own
}

// Patch is a change of a pod's metadata that contains only entries of this operator.
type Patch struct {
	// AddFinalizers and RemoveFinalizers are complete finalizers, with a Scanner's name.
	AddFinalizers, RemoveFinalizers []string
	// Annotations has the values to set; nil removes an annotation.
	Annotations map[string]any
}

// Scanners returns the names of the Scanners on whose behalf a pod is changed, sorted, each once.
func (p Patch) Scanners() []string {
	var names []string
	for _, finalizer := range slices.Concat(p.AddFinalizers, p.RemoveFinalizers) {
		names = append(names, strings.TrimSuffix(finalizer, FinalizerSuffix))
	}
	for key := range p.Annotations {
		names = append(names, strings.TrimSuffix(key, AnnotationSuffix))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Apply sends a strategic merge patch. It treats finalizers as a set, so that concurrent changes by others are preserved. It returns a
// conflict if the pod has a UID and another pod has taken its name.
func (p Patch) Apply(ctx context.Context, c client.Client, pod client.Object) error {
	metadata := map[string]any{}
	if uid := pod.GetUID(); uid != "" {
		metadata["uid"] = uid
	}
	if len(p.AddFinalizers) > 0 {
		metadata["finalizers"] = p.AddFinalizers
	}
	if len(p.RemoveFinalizers) > 0 {
		metadata["$deleteFromPrimitiveList/finalizers"] = p.RemoveFinalizers
	}
	if len(p.Annotations) > 0 {
		metadata["annotations"] = p.Annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: pod.GetName()}}
	target.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return c.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
}
