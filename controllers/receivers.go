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

// Bounds of the annotation by which a pod, or its namespace, names receivers: as many as a Scanner may have, and what is read of it, in
// bytes.
const (
	maxNamedReceivers     = 16
	maxReceiverAnnotation = 1100
)

// maxReceiverName is the length of a receiver's name, in bytes.
const maxReceiverName = 63

// receiverName is the API's pattern of a receiver's name.
var receiverName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// namespaceReceivers is what a namespace says about receivers; empty if nothing, and if it is not there.
func namespaceReceivers(ctx context.Context, reader client.Reader, name string) (string, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
	return namespace.Annotations[v1alpha1.AnnotationReceiver], client.IgnoreNotFound(err)
}

// namedBy lists the names that a pod's annotation has, or else its namespace's, whatever they are. An annotation without any name
// takes the pod out of what its namespace says.
func namedBy(pod *corev1.Pod, ofNamespace string) (names []string) {
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

// validReceivers are those of some names that a receiver can have.
func validReceivers(names []string) (valid []string) {
	for _, name := range names {
		if len(name) <= maxReceiverName && receiverName.MatchString(name) {
			valid = append(valid, name)
		}
	}
	return valid
}

// unknownReceivers says in words which receivers pods of a Scanner name that none has of the Scanners which are about them; empty if
// there are none.
func (i inventory) unknownReceivers(ctx context.Context, scanner *v1alpha1.Scanner) (string, error) {
	ofNamespace, err := namespaceReceivers(ctx, i.client, scanner.Namespace)
	if err != nil {
		return "", err
	}
	pods, err := i.selected(ctx, scanner, client.UnsafeDisableDeepCopy) // they are only read
	if err != nil {
		return "", err
	}
	var scanners v1alpha1.ScannerList
	if err := i.client.List(ctx, &scanners, client.InNamespace(scanner.Namespace)); err != nil {
		return "", err
	}
	unknown := map[string]string{}
	for p := range pods {
		for _, name := range namedBy(&pods[p], ofNamespace) {
			if isReceiver(scanners.Items, &pods[p], name) {
				continue
			}
			name = fmt.Sprintf("%q", truncate(name, maxReceiverName))
			if by := whoNames(&pods[p]); unknown[name] == "" || by < unknown[name] {
				unknown[name] = by
			}
		}
	}
	return describeUnknown(unknown), nil
}

// isReceiver says whether a receiver with that name is told about a pod.
func isReceiver(scanners []v1alpha1.Scanner, pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(scanners, func(s v1alpha1.Scanner) bool {
		return slices.Contains(receiverNames(&s), name) && selects(&s, pod)
	})
}

// whoNames is the workload, or the namespace, by whose annotation a pod names receivers.
func whoNames(pod *corev1.Pod) string {
	if _, own := pod.Annotations[v1alpha1.AnnotationReceiver]; !own {
		return "namespace " + pod.Namespace
	}
	kind, name := workloadOf(pod)
	return kind + "/" + name
}

// maxUnknownReceivers are named in a message.
const maxUnknownReceivers = 3

// describeUnknown names receivers, each with one that names it. The same receivers give the same text.
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
