package inventory

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Namespaces are the namespaces of a scanner, each list sorted. For a Scanner, Covered is its namespace and the other lists are empty. The
// other lists are disjoint from Covered and have only namespaces that the ClusterScanner's selector matches.
type Namespaces struct {
	// Covered are the namespaces whose pods the scanner is responsible for.
	Covered []string
	// Own have a Scanner of the same engine that the ClusterScanner respects. Excluded are named in spec.excludeNamespaces. Terminating are
	// being deleted. The operator does not watch NotWatched, or has no permission to read it.
	Own, Excluded, Terminating, NotWatched []string
	// SlackChannels has the Slack channel that a Covered namespace chooses with its annotation, if it has one. It may not be allowed to.
	SlackChannels map[string]string
	// UnknownExcluded are those in spec.excludeNamespaces that do not exist.
	UnknownExcluded []string
	// Overlaps has the other ClusterScanners of the same engine, with the number of Covered namespaces that each covers as well.
	Overlaps map[string]int
}

// namespaceState is what a namespace is for a ClusterScanner.
type namespaceState int

const (
	namespaceNotSelected namespaceState = iota
	namespaceExcluded
	namespaceTerminating
	namespaceNotWatched
	namespaceOwn
	// namespaceUnreadable is covered, but the cache lacks its objects: the operator has no permission to read them.
	namespaceUnreadable
	namespaceCovered
)

// stateFor returns what a namespace is for a ClusterScanner. own are the admitted Scanners of the namespace. An invalid selector selects
// nothing.
func (i *Inventory) stateFor(scanner *v1alpha1.ClusterScanner, namespace *metav1.PartialObjectMetadata, own []*v1alpha1.Scanner) namespaceState {
	selector, err := metav1.LabelSelectorAsSelector(scanner.Spec.NamespaceSelector)
	switch {
	case err != nil, !selector.Matches(labels.Set(namespace.Labels)):
		return namespaceNotSelected
	case slices.Contains(scanner.Spec.ExcludeNamespaces, namespace.Name):
		return namespaceExcluded
	case !namespace.DeletionTimestamp.IsZero():
		return namespaceTerminating
	case !i.Watches(namespace.Name):
		return namespaceNotWatched
	case scanner.Spec.OwnScanners != v1alpha1.OwnScannersIgnore && slices.ContainsFunc(own, func(s *v1alpha1.Scanner) bool {
		return s.DeletionTimestamp.IsZero() && s.Spec.Backend.Type == scanner.Spec.Backend.Type
	}):
		return namespaceOwn
	case i.CanRead != nil && !i.CanRead(namespace.Name):
		return namespaceUnreadable
	}
	return namespaceCovered
}

// Watches reports whether the operator watches a namespace. The cache refuses to list objects of any other.
func (i *Inventory) Watches(namespace string) bool {
	return len(i.Watched) == 0 || slices.Contains(i.Watched, namespace)
}

// Covers reports whether a scanner is responsible for a namespace. A ClusterScanner that is being deleted covers what it covered before.
func (i *Inventory) Covers(ctx context.Context, scanner v1alpha1.GenericScanner, namespace string) (bool, error) {
	clusterWide, ok := scanner.(*v1alpha1.ClusterScanner)
	if !ok {
		return scanner.GetNamespace() == namespace, nil
	}
	if !i.Watches(namespace) {
		return false, nil
	}
	metadata, err := readNamespace(ctx, i.Client, namespace)
	if metadata == nil || err != nil {
		return false, err
	}
	own, err := i.admittedScanners(ctx, namespace)
	return i.stateFor(clusterWide, metadata, own) >= namespaceUnreadable, err // what cannot be read has not left
}

// Namespaces returns the namespaces of a scanner.
func (i *Inventory) Namespaces(ctx context.Context, scanner v1alpha1.GenericScanner) (all Namespaces, err error) {
	clusterWide, ok := scanner.(*v1alpha1.ClusterScanner)
	if !ok {
		return Namespaces{Covered: []string{scanner.GetNamespace()}}, nil
	}
	existing, err := readNamespaces(ctx, i.Client)
	if err != nil {
		return Namespaces{}, err
	}
	others, err := ListClusterScanners(ctx, i.Client)
	if err != nil {
		return Namespaces{}, err
	}
	others = slices.DeleteFunc(others, func(other *v1alpha1.ClusterScanner) bool {
		return other.UID == scanner.GetUID() || !other.DeletionTimestamp.IsZero() || other.Spec.Backend.Type != clusterWide.Spec.Backend.Type
	})
	own, err := i.admittedByNamespace(ctx)
	if err != nil {
		return Namespaces{}, err
	}
	byState := map[namespaceState]*[]string{
		namespaceCovered: &all.Covered, namespaceOwn: &all.Own, namespaceExcluded: &all.Excluded, namespaceTerminating: &all.Terminating,
		namespaceNotWatched: &all.NotWatched,
	}
	unreadable := []string(nil)
	byState[namespaceUnreadable] = &unreadable
	exists := make(map[string]bool, len(existing))
	for n := range existing {
		namespace := &existing[n]
		exists[namespace.Name] = true
		state := i.stateFor(clusterWide, namespace, own[namespace.Name])
		if names := byState[state]; names != nil {
			*names = append(*names, namespace.Name)
		}
		if channel := slackChannel(namespace); channel != "" && state == namespaceCovered {
			if all.SlackChannels == nil {
				all.SlackChannels = map[string]string{}
			}
			all.SlackChannels[namespace.Name] = channel
		}
		for _, other := range others {
			if state == namespaceCovered && i.stateFor(other, namespace, own[namespace.Name]) == namespaceCovered {
				if all.Overlaps == nil {
					all.Overlaps = map[string]int{}
				}
				all.Overlaps[other.Name]++
			}
		}
	}
	all.NotWatched = append(all.NotWatched, unreadable...)
	for _, names := range byState {
		slices.Sort(*names)
	}
	all.UnknownExcluded = slices.Sorted(slices.Values(clusterWide.Spec.ExcludeNamespaces))
	all.UnknownExcluded = slices.DeleteFunc(all.UnknownExcluded, func(name string) bool { return exists[name] })
	return all, nil
}

// slackChannel returns the Slack channel that a namespace chooses; empty if it chooses none.
func slackChannel(namespace *metav1.PartialObjectMetadata) string {
	return strings.TrimSpace(namespace.Annotations[v1alpha1.AnnotationSlackChannel])
}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

// readNamespace returns the metadata of a namespace; nil if it does not exist.
func readNamespace(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(namespaceKind)
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return namespace, nil
}

// readNamespaces returns the metadata of all namespaces. It belongs to the cache and must not be modified.
func readNamespaces(ctx context.Context, reader client.Reader) ([]metav1.PartialObjectMetadata, error) {
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(namespaceKind.GroupVersion().WithKind("NamespaceList"))
	err := reader.List(ctx, namespaces, client.UnsafeDisableDeepCopy)
	return namespaces.Items, err
}
