package controllers

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Bounds of the annotation by which a pod or its namespace names receivers. maxNamedReceivers is as many as a Scanner may have.
// maxReceiverAnnotation is how much of the annotation is read, in bytes.
const (
	maxNamedReceivers     = 16
	maxReceiverAnnotation = 1100
)

// maxReceiverName is the maximum length of a receiver's name, in bytes.
const maxReceiverName = 63

// receiverName is the API's pattern of a receiver's name.
var receiverName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// namespaceReceivers returns the receivers annotation of a namespace; empty if there is none, or no such namespace.
func namespaceReceivers(ctx context.Context, reader client.Reader, name string) (string, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
	return namespace.Annotations[v1alpha1.AnnotationReceiver], client.IgnoreNotFound(err)
}

// annotatedReceivers returns the names in a pod's annotation or, without that annotation, in its namespace's, valid or not. An annotation without any
// name overrides the namespace's.
func annotatedReceivers(pod *corev1.Pod, ofNamespace string) (names []string) {
	text, own := pod.Annotations[v1alpha1.AnnotationReceiver]
	if !own {
		text = ofNamespace
	}
	for name := range strings.SplitSeq(text[:min(len(text), maxReceiverAnnotation)], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// validReceivers returns those names that a receiver can have.
func validReceivers(names []string) (valid []string) {
	for _, name := range names {
		if len(name) <= maxReceiverName && receiverName.MatchString(name) {
			valid = append(valid, name)
		}
	}
	return valid
}

// unknownReceivers returns a message about receivers that pods of a Scanner name and that no Scanner responsible for the pod has; empty if
// there are none.
func (i inventory) unknownReceivers(ctx context.Context, scanner *v1alpha1.Scanner) (string, error) {
	ofNamespace, err := namespaceReceivers(ctx, i.client, scanner.Namespace)
	if err != nil {
		return "", err
	}
	pods, err := i.selected(ctx, scanner, client.UnsafeDisableDeepCopy) // only read
	if err != nil {
		return "", err
	}
	var scanners v1alpha1.ScannerList
	if err := i.client.List(ctx, &scanners, client.InNamespace(scanner.Namespace)); err != nil {
		return "", err
	}
	unknown := map[string]string{}
	for p := range pods {
		for _, name := range annotatedReceivers(&pods[p], ofNamespace) {
			if hasReceiver(scanners.Items, &pods[p], name) {
				continue
			}
			name = fmt.Sprintf("%q", truncate(name, maxReceiverName))
			if by := annotationSource(&pods[p]); unknown[name] == "" || by < unknown[name] {
				unknown[name] = by
			}
		}
	}
	return describeUnknown(unknown), nil
}

// hasReceiver reports whether any Scanner that selects the pod has a receiver of that name.
func hasReceiver(scanners []v1alpha1.Scanner, pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(scanners, func(s v1alpha1.Scanner) bool {
		return slices.Contains(receiverNames(&s), name) && coversActivePod(&s, pod)
	})
}

// annotationSource returns the workload, or the namespace, whose annotation names the receivers of a pod.
func annotationSource(pod *corev1.Pod) string {
	if _, own := pod.Annotations[v1alpha1.AnnotationReceiver]; !own {
		return "namespace " + pod.Namespace
	}
	kind, name := workloadOf(pod)
	return kind + "/" + name
}

// maxUnknownReceivers is the number of receivers that a message names.
const maxUnknownReceivers = 3

// describeUnknown returns a message with unknown receivers, each with one object that names it. It is deterministic.
func describeUnknown(unknown map[string]string) string {
	if len(unknown) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(unknown))
	var parts []string
	for _, name := range names[:min(len(names), maxUnknownReceivers)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", name, truncate(unknown[name], maxWorkloadBytes)))
	}
	text := "the annotation " + v1alpha1.AnnotationReceiver + " names receivers that no Scanner here has: " + strings.Join(parts, ", ")
	if more := len(names) - len(parts); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ". Such a name counts as none"
}
