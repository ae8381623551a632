package cleanup

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// scannerKinds returns the kinds whose objects the operator holds with finalizers. ClusterScanners belong to the operator's namespace, as
// their Secrets do.
func (c *Cleaner) scannerKinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind(string(v1alpha1.KindScanner))}
	if c.includesHome() {
		kinds = append(kinds, clusterScannerKind)
	}
	return kinds
}

var clusterScannerKind = v1alpha1.GroupVersion.WithKind(string(v1alpha1.KindClusterScanner))

// removeMarks removes the operator's finalizers and annotations from pods, Scanners and ClusterScanners.
func (c *Cleaner) removeMarks(ctx context.Context) error {
	failed := []error{c.forEach(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), isMarked, c.cleanPod)}
	for _, kind := range c.scannerKinds() {
		failed = append(failed, c.forEach(ctx, kind, hasScannerFinalizer, c.cleanScanner))
	}
	return errors.Join(failed...)
}

func isMarked(pod *metav1.PartialObjectMetadata) bool {
	return len(podmark.Finalizers(pod.Finalizers))+len(podmark.Annotations(pod.Annotations)) > 0
}

func isScannerFinalizer(name string) bool {
	return name == v1alpha1.FinalizerPods || name == v1alpha1.FinalizerManifests
}

func hasScannerFinalizer(scanner *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(scanner.Finalizers, isScannerFinalizer)
}

func (c *Cleaner) cleanPod(ctx context.Context, pod *metav1.PartialObjectMetadata) error {
	change := podmark.Patch{RemoveFinalizers: podmark.Finalizers(pod.Finalizers), Annotations: map[string]any{}}
	keys := podmark.Annotations(pod.Annotations)
	for _, key := range keys {
		change.Annotations[key] = nil
	}
	if !c.DryRun {
		pod.SetUID("") // a pod that has taken the name meanwhile is cleaned as well
		if err := change.Apply(ctx, c.Client, pod); err != nil {
			return err
		}
	}
	c.printChange(pod, "remove", strings.Join(slices.Concat(change.RemoveFinalizers, keys), ", "))
	return nil
}

func (c *Cleaner) cleanScanner(ctx context.Context, scanner *metav1.PartialObjectMetadata) error {
	own := slices.DeleteFunc(slices.Clone(scanner.Finalizers), func(name string) bool { return !isScannerFinalizer(name) })
	if !c.DryRun {
		if err := c.removeScannerFinalizers(ctx, scanner); err != nil {
			return err
		}
	}
	c.printChange(scanner, "remove", strings.Join(own, ", "))
	return nil
}

func (c *Cleaner) removeScannerFinalizers(ctx context.Context, scanner *metav1.PartialObjectMetadata) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(scanner), scanner); err != nil {
			return err
		}
		before := scanner.DeepCopy()
		scanner.Finalizers = slices.DeleteFunc(scanner.Finalizers, isScannerFinalizer)
		if len(scanner.Finalizers) == len(before.Finalizers) {
			return nil
		}
		return c.Client.Patch(ctx, scanner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}
