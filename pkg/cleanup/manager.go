package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// isRunning reports whether a manager runs or is about to.
func isRunning(manager *appsv1.Deployment) bool {
	return manager != nil && (ptr.Deref(manager.Spec.Replicas, 1) > 0 || manager.Status.Replicas > 0)
}

// manager returns the manager's Deployment; nil if there is none.
func (c *Cleaner) manager(ctx context.Context) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Home, Name: c.Manager}, deployment)
	switch {
	case apierrors.IsNotFound(err):
		c.printOtherManagers(ctx)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking whether a manager runs: %w", err)
	}
	return deployment, nil
}

// managerLabels are set on the manager's Deployment by every installation method.
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/component": "manager"}

// printOtherManagers prints where a manager runs if it is not in Home: that manager continues to work and restores what is removed. It prints
// nothing where listing Deployments is forbidden.
func (c *Cleaner) printOtherManagers(ctx context.Context) {
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	found, _ := c.list(ctx, kind, func(o *metav1.PartialObjectMetadata) bool { return o.Name == c.Manager }, managerLabels)
	for i := range found {
		fmt.Fprintf(c.Out, "%s: this is a manager; if it is the one to stop, set --operator-namespace=%s\n", nameOf(&found[i]), found[i].Namespace)
	}
}

// stopManager scales the Deployment to zero and waits until its pods have gone.
func (c *Cleaner) stopManager(ctx context.Context, manager *appsv1.Deployment) error {
	if manager == nil {
		fmt.Fprintf(c.Out, "Deployment %s/%s: there is none, so there is no manager to stop\n", c.Home, c.Manager)
		return nil
	}
	if !isRunning(manager) {
		return nil
	}
	named := partialObject(ObjectRef{Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Name: c.Manager}, c.Home)
	if !c.DryRun {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
		if err := c.Client.SubResource("scale").Patch(ctx, manager, patch, client.WithSubResourceBody(&autoscalingv1.Scale{})); err != nil {
			return fmt.Errorf("%s: cannot be scaled to zero: %w", nameOf(named), err)
		}
	}
	c.printChange(named, "scale", "to zero")
	if c.DryRun {
		return nil
	}
	return c.waitForPods(ctx, manager)
}

// waitForPods waits until a Deployment has no pods. Pods that are being deleted count, since they still work.
func (c *Cleaner) waitForPods(ctx context.Context, deployment *appsv1.Deployment) error {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return err
	}
	var left []string
	gone, err := c.waitFor(ctx, func() (bool, error) {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(c.Home), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return false, err
		}
		left = left[:0]
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				left = append(left, pod.Name+" on node "+pod.Spec.NodeName)
			}
		}
		return len(left) == 0, nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("waiting for the manager's pods to end: %w", err)
	case !gone:
		return fmt.Errorf("the manager's pods have not ended in %s (is a node lost? does something scale the Deployment up again?), "+
			"and may restore what is removed here: %q", c.Timeout, left)
	}
	return nil
}

// isUnwanted reports whether a Scanner or ClusterScanner is to be deleted.
func (c *Cleaner) isUnwanted(o *metav1.PartialObjectMetadata) bool {
	return c.Scanners || o.GroupVersionKind() == clusterScannerKind && o.Name == c.ClusterScanner
}

// removeScanners deletes the unwanted Scanners and ClusterScanners. It gives a working manager until Timeout to release what it holds for them.
func (c *Cleaner) removeScanners(ctx context.Context, manager *appsv1.Deployment) error {
	var failed []error
	for _, kind := range c.scannerKinds() {
		failed = append(failed, c.forEach(ctx, kind, c.isUnwanted, c.remove))
	}
	if err := errors.Join(failed...); err != nil || c.DryRun || manager == nil || manager.Status.ReadyReplicas == 0 {
		return err
	}
	var left []metav1.PartialObjectMetadata
	gone, err := c.waitFor(ctx, func() (bool, error) {
		left = left[:0]
		var failed []error
		for _, kind := range c.scannerKinds() {
			found, errs := c.list(ctx, kind, c.isUnwanted)
			left, failed = append(left, found...), append(failed, errs...)
		}
		left = slices.DeleteFunc(left, func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp.IsZero() })
		return len(left) == 0, errors.Join(failed...)
	})
	if err != nil || gone {
		return err
	}
	for i := range left {
		fmt.Fprintf(c.Out, "%s: the manager did not release it in %s; it is deleted all the same, and what the manager keeps for it elsewhere stays there\n",
			nameOf(&left[i]), c.Timeout)
	}
	return nil
}
