package controllers

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// cleanupPage is how many objects are listed with one request.
	cleanupPage = 500
	// cleanupPoll is how often it looks whether what it waits for has happened.
	cleanupPoll = time.Second
)

// Cleanup takes back what the operator left in the cluster when it is not there any more to do so itself, or is about to go:
// its finalizers on pods and Scanners, without which these cannot go, its annotations on pods, its Jobs, and what only a
// manager has a use for. What holds data goes only when asked for.
type Cleanup struct {
	// Client is not cached.
	Client client.Client
	// Namespaces limit it; empty for all. What is in Home goes only if Home is one of them.
	Namespaces []string
	// Home is the operator's namespace, and Manager the name of its Deployment there.
	Home, Manager string
	// DryRun changes nothing and says what would be changed.
	DryRun bool
	// Scanners deletes all Scanners. A manager that runs has until Timeout to undo what it did for them: what it did outside the
	// cluster, as in Clair, only it can undo.
	Scanners bool
	// StopManager scales the manager to zero and waits until its pods have gone, until Timeout.
	StopManager bool
	// Timeout bounds each wait.
	Timeout time.Duration
	// Workers selects the Jobs that may be the operator's; IsWorker says whether one is.
	Workers  labels.Selector
	IsWorker func(metav1.Object) bool
	// Own are objects in Home without data: a manager makes them again, and one that runs needs them.
	Own []Named
	// Claims are volume claims in Home that are to go too.
	Claims []Named
	// Results deletes all ImageScans.
	Results bool
	// Kinds deletes the operator's CustomResourceDefinitions, and with them all objects of these kinds.
	Kinds bool
	// Out is where it says what it does, a line for each object.
	Out io.Writer

	// absent are kinds that the cluster does not have.
	absent map[schema.GroupVersionKind]bool
}

// Named is an object that is known by its name.
type Named struct {
	Kind schema.GroupVersionKind
	Name string
}

// Run does it. What fails is named in the error and does not keep it from going on; it may be run again at any time.
func (c *Cleanup) Run(ctx context.Context) error {
	manager, err := c.manager(ctx)
	failed := []error{err}
	if c.Scanners {
		failed = append(failed, c.removeScanners(ctx, manager))
	}
	stopped := err == nil && !manager.wanted()
	if c.StopManager && err == nil {
		err := c.stopManager(ctx, manager)
		failed = append(failed, err)
		stopped = err == nil
	}
	failed = append(failed, c.takeBack(ctx), c.removeWorkers(ctx), c.removeOwn(ctx, stopped))
	if c.Kinds && stopped {
		failed = append(failed, c.removeKinds(ctx))
	}
	if ctx.Err() != nil {
		return ctx.Err() // all that failed since then failed for it
	}
	return errors.Join(failed...)
}

// each does something to all objects of a kind that are wanted. All are listed before anything is changed: the API server does
// not keep a list open for long.
func (c *Cleanup) each(
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

func (c *Cleanup) list(
	ctx context.Context, kind schema.GroupVersionKind, wanted func(*metav1.PartialObjectMetadata) bool, options ...client.ListOption,
) (found []metav1.PartialObjectMetadata, failed []error) {
	namespaces := c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		for more := true; more; more = page.Continue != "" {
			err := c.Client.List(ctx, page, append(options, client.InNamespace(namespace), client.Limit(cleanupPage), client.Continue(page.Continue))...)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				c.sayAbsent(kind)
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

// sayAbsent says once that there can be no objects of a kind.
func (c *Cleanup) sayAbsent(kind schema.GroupVersionKind) {
	if !c.absent[kind] {
		fmt.Fprintf(c.Out, "%s: the cluster does not have this kind, so there are none\n", kind.Kind)
	}
	if c.absent == nil {
		c.absent = map[schema.GroupVersionKind]bool{}
	}
	c.absent[kind] = true
}

func inNamespace(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return ""
	}
	return " in " + namespace
}

// remove deletes one object, unless it is another one of the same name by now. A dry run is the API server's own: it also
// tells whether the right to do it is there.
func (c *Cleanup) remove(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if uid := o.GetUID(); uid != "" {
		options = append(options, client.Preconditions{UID: &uid})
	}
	if c.DryRun {
		options = append(options, client.DryRunAll)
	}
	// The client deletes by partial metadata only what its scheme has, and the scheme has no CustomResourceDefinitions.
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(o.GroupVersionKind())
	target.SetNamespace(o.Namespace)
	target.SetName(o.Name)
	err := c.Client.Delete(ctx, target, options...)
	if err == nil {
		c.say(o, "delete")
	}
	return err
}

// say prints a line about an object: what was done to it, or would be. The verb ends in "e".
func (c *Cleanup) say(o *metav1.PartialObjectMetadata, verb string, what ...string) {
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

// waitFor waits until something is so, which it asks now and then, and says whether it came to be so before Timeout.
func (c *Cleanup) waitFor(ctx context.Context, isSo func() (bool, error)) (bool, error) {
	err := wait.PollUntilContextTimeout(ctx, cleanupPoll, c.Timeout, true, func(context.Context) (bool, error) { return isSo() })
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}
