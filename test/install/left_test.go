package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/suite"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// requireNothingLeft waits until the cluster contains no object of the operator. An object counts if its name, labels, annotations or
// finalizers belong to the operator, or if it is of one of the operator's kinds or in its namespace. kept are objects that the page
// documents as remaining, each "Kind namespace/name", or "Kind name" without a namespace; a * at the end matches any suffix. Objects of
// the tests themselves (the demo's namespaces, the RBAC objects and Secrets of teams) do not count.
func requireNothingLeft(t *testing.T, kept ...string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error { return nothingLeft(ctx, kept...) })
}

// nothingLeft returns an error that names what is left, except the objects that match one of the patterns.
func nothingLeft(ctx context.Context, kept ...string) error {
	objects, err := leftovers(ctx)
	if err != nil {
		return err
	}
	var left []string
	for _, object := range objects {
		if name := describe(object); !slices.ContainsFunc(kept, func(pattern string) bool { return matches(name, pattern) }) {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	if left = slices.Compact(left); len(left) > 0 {
		return fmt.Errorf("expected nothing of the operator to be left, there are %d:\n%s", len(left), strings.Join(left, "\n"))
	}
	return nil
}

// startFromNothing removes what an earlier test, or an interrupted run, has left of the operator, so that tests may run in any order. After
// the test, it removes what that test has left. A failed test prints diagnoses before.
func startFromNothing(t *testing.T) {
	t.Helper()
	must(t, removeOperator(t.Context()))
	t.Cleanup(func() {
		if t.Failed() {
			env.Diagnose(context.Background())
		}
		if suite.Keep() {
			return
		}
		cleaning, cancel := context.WithTimeout(context.Background(), suite.CleanUpTimeout)
		defer cancel()
		if err := removeOperator(cleaning); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
}

// removeOperator removes all objects of the operator, however it was installed. Its own clean-up takes the finalizers from pods and Scanners.
func removeOperator(ctx context.Context) error {
	if _, err := env.Kubectl(ctx, "get", "namespace", scenario.SystemNamespace); err != nil && nothingLeft(ctx) == nil {
		return nil
	}
	// OLM would scale a manager up again.
	_, err := env.Kubectl(ctx, "--namespace", scenario.SystemNamespace, "delete", "subscriptions.operators.coreos.com,clusterserviceversions.operators.coreos.com", "--all", "--timeout=60s")
	if err != nil && !strings.Contains(err.Error(), "the server doesn't have a resource type") {
		return err
	}
	text, err := runCommands(ctx, "bin/manager cleanup --scanners --stop-manager --database --results --crds")
	if err != nil {
		return fmt.Errorf("manager cleanup: %w\n%s", err, text)
	}
	if text, err := env.Kubectl(ctx, "delete", "namespace", scenario.SystemNamespace, "--ignore-not-found", "--timeout=120s"); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return wait.Eventually(ctx, suite.CleanUpTimeout, wait.Rarely, func(ctx context.Context) error {
		objects, err := leftovers(ctx)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := env.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !isGone(err) {
				return fmt.Errorf("%s: %w", describe(object), err)
			}
		}
		return nothingLeft(ctx)
	})
}

// isGone reports whether an object cannot be deleted any more, because it, its kind or its namespace is being deleted.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || meta.IsNoMatchError(err)
}

// describe returns "Kind namespace/name", or "Kind name" without a namespace.
func describe(object *metav1.PartialObjectMetadata) string {
	return strings.TrimSpace(object.Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/"))
}

func matches(object, pattern string) bool {
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(object, prefix)
	}
	return object == pattern
}

// leftovers checks all objects of all kinds that the API server can list.
func leftovers(ctx context.Context) ([]*metav1.PartialObjectMetadata, error) {
	lists, err := env.Clientset.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var left []*metav1.PartialObjectMetadata
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			found, err := leftOfKind(ctx, version.WithKind(resource.Kind))
			if err != nil {
				return nil, err
			}
			left = append(left, found...)
		}
	}
	return left, nil
}

func leftOfKind(ctx context.Context, kind schema.GroupVersionKind) ([]*metav1.PartialObjectMetadata, error) {
	if kind.Kind == "Event" || kind.Kind == "ComponentStatus" { // events are history, and component statuses belong to others
		return nil, nil
	}
	var objects metav1.PartialObjectMetadataList
	objects.SetGroupVersionKind(kind)
	if err := env.Client.List(ctx, &objects); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	var left []*metav1.PartialObjectMetadata
	for i := range objects.Items {
		if object := &objects.Items[i]; isOperatorObject(kind, object) && !isTestObject(kind, object) {
			object.SetGroupVersionKind(kind)
			left = append(left, object)
		}
	}
	return left, nil
}

// isOperatorObject reports whether an object belongs to the operator.
func isOperatorObject(kind schema.GroupVersionKind, object *metav1.PartialObjectMetadata) bool {
	marks := []string{object.Name, object.Namespace}
	for key, value := range object.Labels {
		marks = append(marks, key, value)
	}
	for key := range object.Annotations {
		marks = append(marks, key)
	}
	marks = append(marks, object.Finalizers...)
	return kind.Group == v1alpha1.GroupVersion.Group || slices.ContainsFunc(marks, func(mark string) bool {
		return mark != scenario.Label && (strings.Contains(mark, "scanner-operator") || strings.HasPrefix(mark, "scanner-notifier"))
	})
}

// isTestObject reports whether an object was created by a team or is a namespace of the demo.
func isTestObject(kind schema.GroupVersionKind, object *metav1.PartialObjectMetadata) bool {
	switch kind.Kind {
	case "Namespace":
		return object.Labels[scenario.Label] == "true"
	case "Role", "RoleBinding":
		return strings.HasPrefix(object.Name, "scanner-operator-notifier") && object.Namespace != scenario.SystemNamespace
	case "ConfigMap", "ServiceAccount": // those that every namespace has
		return object.Name == "kube-root-ca.crt" || object.Name == "default"
	}
	return false
}
