package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

var scannerKind = v1alpha1.GroupVersion.WithKind("Scanner")

// removeMarks removes the operator's finalizers and annotations from pods and Scanners.
func (c *Cleanup) removeMarks(ctx context.Context) error {
	return errors.Join(
		c.forEach(ctx, corev1.SchemeGroupVersion.WithKind("Pod"), isMarked, c.cleanPod),
		c.forEach(ctx, scannerKind, hasScannerFinalizer, c.cleanScanner))
}

func isMarked(pod *metav1.PartialObjectMetadata) bool {
	return len(podmark.Finalizers(pod.Finalizers))+len(podmark.Annotations(pod.Annotations)) > 0
}

func hasScannerFinalizer(scanner *metav1.PartialObjectMetadata) bool {
	return len(scannerFinalizers(scanner.Finalizers)) > 0
}

func (c *Cleanup) cleanPod(ctx context.Context, pod *metav1.PartialObjectMetadata) error {
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

func (c *Cleanup) cleanScanner(ctx context.Context, scanner *metav1.PartialObjectMetadata) error {
	removed := strings.Join(scannerFinalizers(scanner.Finalizers), ", ")
	if !c.DryRun {
		if err := c.removeScannerFinalizers(ctx, scanner); err != nil {
			return err
		}
	}
	c.printChange(scanner, "remove", removed)
	return nil
}

func (c *Cleanup) removeScannerFinalizers(ctx context.Context, scanner *metav1.PartialObjectMetadata) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(scanner), scanner); err != nil {
			return err
		}
		before := scanner.DeepCopy()
		changed := false
		for _, finalizer := range scannerFinalizers(scanner.Finalizers) {
			changed = controllerutil.RemoveFinalizer(scanner, finalizer) || changed
		}
		if !changed {
			return nil
		}
		return c.Client.Patch(ctx, scanner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}
