package controllers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// cleanupPage is how many objects are listed with one request.
const cleanupPage = 500

// Cleanup takes back what the operator left on objects of others when it is not there any more to do so itself:
// its finalizers on pods and Scanners, without which these cannot go, and its annotations on pods.
type Cleanup struct {
	// Client is not cached.
	Client client.Client
	// Namespace limits it; empty for all namespaces.
	Namespace string
	// DryRun changes nothing and says what would be changed.
	DryRun bool
	// Out is where it says what it does, a line for each object.
	Out io.Writer
}

// Run does it. What fails is named in the error and does not keep it from going on; it may be run again at any time.
func (c *Cleanup) Run(ctx context.Context) error {
	var failed []error
	for _, kind := range []struct {
		schema.GroupVersionKind
		marked func(*metav1.PartialObjectMetadata) bool
		clean  func(context.Context, *metav1.PartialObjectMetadata) (string, error)
	}{
		{corev1.SchemeGroupVersion.WithKind("Pod"), isMarked, c.cleanPod},
		{v1alpha1.GroupVersion.WithKind("Scanner"), hasScannerFinalizer, c.cleanScanner},
	} {
		objects, err := c.list(ctx, kind.GroupVersionKind, kind.marked)
		if err != nil {
			failed = append(failed, fmt.Errorf("listing %ss: %w", kind.Kind, err))
			continue
		}
		for i := range objects {
			if ctx.Err() != nil {
				return errors.Join(append(failed, ctx.Err())...)
			}
			name := fmt.Sprintf("%s %s/%s", kind.Kind, objects[i].Namespace, objects[i].Name)
			done, err := kind.clean(ctx, &objects[i])
			if client.IgnoreNotFound(err) != nil {
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
				continue
			}
			c.say(name, done)
		}
	}
	return errors.Join(failed...)
}

func (c *Cleanup) say(name, done string) {
	verb := "removed"
	if c.DryRun {
		verb = "would remove"
	}
	fmt.Fprintf(c.Out, "%s: %s %s\n", name, verb, done)
}

func isMarked(pod *metav1.PartialObjectMetadata) bool {
	return len(podFinalizers(pod.Finalizers))+len(ownAnnotations(pod.Annotations)) > 0
}

func hasScannerFinalizer(scanner *metav1.PartialObjectMetadata) bool {
	return len(scannerFinalizers(scanner.Finalizers)) > 0
}

// list returns the objects on which something is to be taken back. All pages are read before anything is changed: the
// API server does not keep a list open for long.
func (c *Cleanup) list(
	ctx context.Context, kind schema.GroupVersionKind, wanted func(*metav1.PartialObjectMetadata) bool,
) ([]metav1.PartialObjectMetadata, error) {
	var marked []metav1.PartialObjectMetadata
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for {
		err := c.Client.List(ctx, page, client.InNamespace(c.Namespace), client.Limit(cleanupPage), client.Continue(page.Continue))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil, nil // the CRD has gone, and all Scanners with it
		}
		if err != nil {
			return nil, err
		}
		for _, o := range page.Items {
			if wanted(&o) {
				o.SetGroupVersionKind(kind)
				marked = append(marked, o)
			}
		}
		if page.Continue == "" {
			return marked, nil
		}
	}
}

func (c *Cleanup) cleanPod(ctx context.Context, pod *metav1.PartialObjectMetadata) (string, error) {
	change := podPatch{remove: podFinalizers(pod.Finalizers), annotations: map[string]any{}}
	keys := slices.Sorted(maps.Keys(ownAnnotations(pod.Annotations)))
	for _, key := range keys {
		change.annotations[key] = nil
	}
	removed := strings.Join(slices.Concat(change.remove, keys), ", ")
	if c.DryRun {
		return removed, nil
	}
	pod.SetUID("") // another pod of the same name is to be rid of them as well
	return removed, patchPod(ctx, c.Client, pod, change)
}

func (c *Cleanup) cleanScanner(ctx context.Context, scanner *metav1.PartialObjectMetadata) (string, error) {
	removed := strings.Join(scannerFinalizers(scanner.Finalizers), ", ")
	if c.DryRun {
		return removed, nil
	}
	return removed, retry.RetryOnConflict(retry.DefaultRetry, func() error {
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
