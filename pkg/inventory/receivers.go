package inventory

import (
	"context"
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

// annotatedReceivers returns the names in a pod's annotation or, without that annotation, in its namespace's, valid or not. An annotation
// without any name overrides the namespace's.
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

// receiversOf returns the receivers that a pod, or else its namespace, names. Names that no receiver can have are left out.
func receiversOf(pod *corev1.Pod, ofNamespace string) []string {
	return slices.DeleteFunc(annotatedReceivers(pod, ofNamespace), func(name string) bool {
		return len(name) > maxReceiverName || !receiverName.MatchString(name)
	})
}

// joinReceivers returns at most maxNamedReceivers distinct names in the format of store.Workload.Receivers. It sorts names in place.
func joinReceivers(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	return strings.Join(names[:min(len(names), maxNamedReceivers)], ",")
}

// unknownReceivers returns the receivers that running pods name and that none of the Scanners responsible for the pod has. Each has the first
// object that names it.
func unknownReceivers(pods []corev1.Pod, ofNamespace string, scanners []v1alpha1.Scanner) map[string]string {
	unknown := map[string]string{}
	for p := range pods {
		for _, name := range annotatedReceivers(&pods[p], ofNamespace) {
			if hasReceiver(scanners, &pods[p], name) {
				continue
			}
			if by := annotationSource(&pods[p]); unknown[name] == "" || by < unknown[name] {
				unknown[name] = by
			}
		}
	}
	return unknown
}

// hasReceiver reports whether any Scanner that is responsible for the pod has a receiver of that name.
func hasReceiver(scanners []v1alpha1.Scanner, pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(scanners, func(s v1alpha1.Scanner) bool {
		return slices.ContainsFunc(s.Spec.Notifications, func(r v1alpha1.Receiver) bool { return r.Name == name }) && coversPod(&s, pod)
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
