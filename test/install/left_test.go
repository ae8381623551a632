package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// requireNothingLeft waits until the cluster contains no object of the operator. An object counts if its name, labels, annotations or
// finalizers belong to the operator, or if it is of one of the operator's kinds or in its namespace. kept are objects that the page
// documents as remaining, each "Kind namespace/name", or "Kind name" without a namespace; a * at the end matches any suffix. Objects of
// the tests themselves (the demo's namespaces, the RBAC objects and Secrets of teams) do not count.
func requireNothingLeft(t *testing.T, kept ...string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		left, err := leftovers(ctx)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(object string) bool {
			return slices.ContainsFunc(kept, func(pattern string) bool { return matches(object, pattern) })
		})
		if len(left) > 0 {
			return fmt.Errorf("expected nothing of the operator to be left, there are %d:\n%s", len(left), strings.Join(left, "\n"))
		}
		return nil
	})
}

func matches(object, pattern string) bool {
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(object, prefix)
	}
	return object == pattern
}

// leftovers checks all objects of all kinds that the API server can list.
func leftovers(ctx context.Context) ([]string, error) {
	lists, err := env.Clientset.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var left []string
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
	slices.Sort(left)
	return slices.Compact(left), nil
}

func leftOfKind(ctx context.Context, kind schema.GroupVersionKind) ([]string, error) {
	if kind.Kind == "Event" || kind.Kind == "ComponentStatus" { // events are history, and component statuses belong to others
		return nil, nil
	}
	var objects metav1.PartialObjectMetadataList
	objects.SetGroupVersionKind(kind)
	if err := env.Client.List(ctx, &objects); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	var left []string
	for i := range objects.Items {
		if object := &objects.Items[i]; isOperatorObject(kind, object) && !isTestObject(kind, object) {
			left = append(left, strings.TrimSpace(kind.Kind+" "+strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/")))
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
