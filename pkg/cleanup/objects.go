package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// crdResources are the plural resource names of the operator's CustomResourceDefinitions.
var crdResources = []string{"scanners", "clusterscanners", "imagescans", "vulnerabilityexceptions", "clustervulnerabilityexceptions"}

// partialObject returns an object of which only kind, namespace and name are known.
func partialObject(named ObjectRef, namespace string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: named.Name}}
	o.SetGroupVersionKind(named.Kind)
	return o
}

// includesHome reports whether the operator's own namespace is among those to clean up.
func (c *Cleaner) includesHome() bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, c.Home)
}

// removeWorkers deletes the operator's Jobs together with their pods.
func (c *Cleaner) removeWorkers(ctx context.Context) error {
	isWorker := func(o *metav1.PartialObjectMetadata) bool { return backend.IsWorker(o) }
	return c.forEach(ctx, batchv1.SchemeGroupVersion.WithKind("Job"), isWorker, c.remove, client.MatchingLabelsSelector{Selector: backend.WorkerSelector()})
}

// removeOwn deletes the objects of ManagerObjects and PVCs and, if Results is set, all ImageScans. It deletes nothing while a manager runs, since a
// manager needs or recreates them.
func (c *Cleaner) removeOwn(ctx context.Context, stopped bool) error {
	home := c.includesHome()
	if !stopped {
		if !home && !c.Results {
			return nil
		}
		return fmt.Errorf("the manager was not stopped, so its Secrets, ConfigMap and Lease stay, and so do PersistentVolumeClaims, ImageScans and "+
			"CustomResourceDefinitions; it restores what else was removed while there are Scanners: stop it first (flag --stop-manager), or delete its Deployment %s/%s", c.Home, c.Manager)
	}
	var failed []error
	if home {
		for _, named := range slices.Concat(c.ManagerObjects, c.PVCs) {
			failed = append(failed, c.removeNamed(ctx, partialObject(named, c.Home)))
		}
	}
	if c.Results {
		failed = append(failed, c.forEach(ctx, v1alpha1.GroupVersion.WithKind("ImageScan"), all, c.remove))
	}
	return errors.Join(failed...)
}

// removeCRDs deletes the operator's CustomResourceDefinitions.
func (c *Cleaner) removeCRDs(ctx context.Context) error {
	var failed []error
	for _, resource := range crdResources {
		definition := partialObject(ObjectRef{Kind: crdKind, Name: resource + "." + v1alpha1.GroupVersion.Group}, "")
		failed = append(failed, c.removeNamed(ctx, definition))
	}
	return errors.Join(failed...)
}

// removeNamed deletes an object. An object that does not exist is no error.
func (c *Cleaner) removeNamed(ctx context.Context, o *metav1.PartialObjectMetadata) error {
	if err := client.IgnoreNotFound(c.remove(ctx, o)); err != nil {
		return fmt.Errorf("%s: %w", nameOf(o), err)
	}
	return nil
}
