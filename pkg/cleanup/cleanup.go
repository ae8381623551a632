// Package cleanup removes what the operator left in a cluster: the command "manager cleanup". No controller uses it.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pageSize is the page size of list requests, in objects.
	pageSize = 500
	// pollInterval is the interval between two checks of a condition that Run waits for.
	pollInterval = time.Second
)

// Cleaner removes what the operator left in the cluster. It is for an operator that is already uninstalled, or is about to be. It removes
// the operator's finalizers on pods, Scanners and ClusterScanners, which would block their deletion, its annotations on pods, its Jobs, and the
// objects that only a manager needs. It deletes data only on request: Scanners, PVCs, Results and CRDs.
type Cleaner struct {
	// Client must not read from a cache.
	Client client.Client
	// Namespaces limits the cleanup; empty means all namespaces. Objects in Home, and what belongs to ClusterScanners, are removed only if Home
	// is one of them.
	Namespaces []string
	// Home is the operator's namespace. Manager is the name of its Deployment there.
	Home, Manager string
	// DryRun changes nothing and prints what would change.
	DryRun bool
	// Scanners deletes all Scanners and ClusterScanners. A running manager gets until Timeout to release what it holds for them: only the manager can remove
	// what it made outside the cluster, for example in Clair.
	Scanners bool
	// ClusterScanner is the name of one ClusterScanner to delete, as Scanners does with all; empty for none.
	ClusterScanner string
	// StopManager scales the manager to zero and waits for its pods to end, at most until Timeout.
	StopManager bool
	// Timeout bounds each wait.
	Timeout time.Duration
	// ManagerObjects lists objects in Home that hold no data. A manager recreates them, and a running manager needs them.
	ManagerObjects []ObjectRef
	// PVCs lists PersistentVolumeClaims in Home to delete as well.
	PVCs []ObjectRef
	// Results deletes all ImageScans.
	Results bool
	// CRDs deletes the operator's CustomResourceDefinitions, and with them all objects of these kinds.
	CRDs bool
	// Permissions removes nothing, and only names the ClusterRoleBindings that an earlier installation has left.
	Permissions bool
	// Out receives one line for each object that is changed.
	Out io.Writer

	// missingKinds has the kinds that the cluster does not have.
	missingKinds map[schema.GroupVersionKind]bool
}

// ObjectRef identifies an object by kind and name.
type ObjectRef struct {
	Kind schema.GroupVersionKind
	Name string
}

// Run performs the cleanup. It continues after a failure and returns all failures in one error. Run is idempotent.
func (c *Cleaner) Run(ctx context.Context) error {
	if c.Permissions {
		return c.printPermissions(ctx)
	}
	manager, err := c.manager(ctx)
	failed := []error{err}
	if c.Scanners || c.ClusterScanner != "" {
		failed = append(failed, c.removeScanners(ctx, manager))
	}
	stopped := err == nil && !isRunning(manager)
	if c.StopManager && err == nil {
		err := c.stopManager(ctx, manager)
		failed = append(failed, err)
		stopped = err == nil
	}
	failed = append(failed, c.removeMarks(ctx), c.removeWorkers(ctx), c.removeOwn(ctx, stopped))
	if c.CRDs && stopped {
		failed = append(failed, c.removeCRDs(ctx))
	}
	if manager == nil && err == nil && c.includesHome() {
		failed = append(failed, c.printPermissions(ctx))
	}
	if ctx.Err() != nil {
		return ctx.Err() // the failures after the cancellation are only its consequence
	}
	return errors.Join(failed...)
}

// all accepts each object.
func all(*metav1.PartialObjectMetadata) bool { return true }

// forEach calls do for each object of a kind that wanted accepts. It lists all objects before it changes the first: the API server does not
// keep a list's continue token valid for long.
func (c *Cleaner) forEach(
	ctx context.Context, kind schema.GroupVersionKind, wanted func(*metav1.PartialObjectMetadata) bool,
	do func(context.Context, *metav1.PartialObjectMetadata) error, options ...client.ListOption,
) error {
	objects, failed := c.list(ctx, kind, wanted, options...)
	for i := range objects {
		if ctx.Err() != nil {
			break
		}
		if err := client.IgnoreNotFound(do(ctx, &objects[i])); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", nameOf(&objects[i]), err))
		}
	}
	return errors.Join(failed...)
}

func (c *Cleaner) list(
	ctx context.Context, kind schema.GroupVersionKind, wanted func(*metav1.PartialObjectMetadata) bool, options ...client.ListOption,
) (found []metav1.PartialObjectMetadata, failed []error) {
	namespaces := c.Namespaces
	if len(namespaces) == 0 || kind == clusterScannerKind {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		for more := true; more; more = page.Continue != "" {
			err := c.Client.List(ctx, page, append(options, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(page.Continue))...)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				c.printMissingKind(kind)
				return nil, nil
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("listing %ss%s: %w", kind.Kind, inNamespace(namespace), err))
				break
			}
			for _, o := range page.Items {
				if o.SetGroupVersionKind(kind); wanted(&o) {
					found = append(found, o)
				}
			}
		}
	}
	return found, failed
}

// printMissingKind prints, once per kind, that the cluster does not have the kind.
func (c *Cleaner) printMissingKind(kind schema.GroupVersionKind) {
	if !c.missingKinds[kind] {
		fmt.Fprintf(c.Out, "%s: the cluster does not have this kind, so there are none\n", kind.Kind)
	}
	if c.missingKinds == nil {
		c.missingKinds = map[schema.GroupVersionKind]bool{}
	}
	c.missingKinds[kind] = true
}

func inNamespace(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return ""
	}
	return " in " + namespace
}

// remove deletes one object, unless another object has taken its name. A dry run is a server-side dry run, so it also checks the permission
// to delete.
func (c *Cleaner) remove(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if uid := o.GetUID(); uid != "" {
		options = append(options, client.Preconditions{UID: &uid})
	}
	if c.DryRun {
		options = append(options, client.DryRunAll)
	}
	// The client deletes by partial metadata only kinds of its scheme, and the scheme does not have CustomResourceDefinitions.
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(o.GroupVersionKind())
	target.SetNamespace(o.Namespace)
	target.SetName(o.Name)
	err := c.Client.Delete(ctx, target, options...)
	if err == nil {
		c.printChange(o, "delete")
	}
	return err
}

// printChange prints a line about a change of an object, done or, in a dry run, planned. The verb must end in "e".
func (c *Cleaner) printChange(o *metav1.PartialObjectMetadata, verb string, what ...string) {
	done := verb + "d"
	if c.DryRun {
		done = "would " + verb
	}
	fmt.Fprintln(c.Out, strings.Join(append([]string{nameOf(o) + ":", done}, what...), " "))
}

func nameOf(o *metav1.PartialObjectMetadata) string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// waitFor polls isSo until it returns true. It returns false if that did not happen within Timeout.
func (c *Cleaner) waitFor(ctx context.Context, isSo func() (bool, error)) (bool, error) {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, c.Timeout, true, func(context.Context) (bool, error) { return isSo() })
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}
