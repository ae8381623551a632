package inventory

import (
	"context"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
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

// annotatedReceivers returns the distinct names in a pod's annotation or, without that annotation, in its namespace's, valid or not. An annotation
// without any name overrides the namespace's. namespace is nil if it does not exist.
func annotatedReceivers(pod *corev1.Pod, namespace *metav1.PartialObjectMetadata) (names []string) {
	all, own := pod.Annotations[v1alpha1.AnnotationReceiver]
	if !own && namespace != nil {
		all = namespace.Annotations[v1alpha1.AnnotationReceiver]
	}
	for name := range strings.SplitSeq(all[:min(len(all), maxReceiverAnnotation)], ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// receiversOf returns those receivers of a scanner that a pod, or else its namespace, names and that the namespace may use. For a Scanner it also
// returns names that no receiver of it has. Names that no receiver can have are left out.
func receiversOf(pod *corev1.Pod, namespace *metav1.PartialObjectMetadata, allowed func(string) bool) []string {
	return slices.DeleteFunc(annotatedReceivers(pod, namespace), func(name string) bool {
		return len(name) > maxReceiverName || !receiverName.MatchString(name) || !allowed(name)
	})
}

// allowedReceivers returns a function that reports whether workloads of a namespace may name a receiver of a scanner. A Scanner allows all.
func allowedReceivers(scanner v1alpha1.GenericScanner, namespace *metav1.PartialObjectMetadata) func(receiver string) bool {
	if scanner.ScannerKind() == v1alpha1.KindScanner {
		return func(string) bool { return true }
	}
	allowed := map[string]bool{}
	for _, receiver := range scanner.Receivers() {
		selector, err := metav1.LabelSelectorAsSelector(receiver.FromNamespaces) // selects nothing if it is nil
		allowed[receiver.Name] = err == nil && namespace != nil && selector.Matches(labels.Set(namespace.Labels))
	}
	return func(receiver string) bool { return allowed[receiver] }
}

// notAllowed returns the receivers and the Slack channel of a ClusterScanner that a pod or its namespace names and may not use.
func notAllowed(scanner v1alpha1.GenericScanner, pod *corev1.Pod, namespace *metav1.PartialObjectMetadata, allowed func(string) bool) (names []string) {
	receivers := scanner.Receivers()
	for _, name := range annotatedReceivers(pod, namespace) {
		isReceiver := slices.ContainsFunc(receivers, func(r v1alpha1.ClusterReceiver) bool { return r.Name == name })
		if isReceiver && !allowed(name) {
			names = append(names, "receiver "+name)
		}
	}
	if scanner.ScannerKind() == v1alpha1.KindScanner || namespace == nil || len(receivers) == 0 {
		return names
	}
	channel := slackChannel(namespace)
	mayUse := slices.ContainsFunc(receivers, func(r v1alpha1.ClusterReceiver) bool {
		return slices.Contains(r.AllowedChannels, channel) || r.Slack != nil && r.Slack.Channel == channel
	})
	if channel != "" && !mayUse {
		names = append(names, "Slack channel "+text.Truncate(channel, maxReceiverName))
	}
	return names
}

// joinReceivers returns at most maxNamedReceivers distinct names in the format of store.Workload.Receivers. It sorts names in place.
func joinReceivers(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	return strings.Join(names[:min(len(names), maxNamedReceivers)], ",")
}

// receiverOwners returns the scanners whose receivers pods of a namespace may name: all its Scanners, and the ClusterScanners that cover it.
func (i *Inventory) receiverOwners(ctx context.Context, namespace string) ([]v1alpha1.GenericScanner, error) {
	owners, err := ListScanners(ctx, i.Client, namespace)
	if err != nil {
		return nil, err
	}
	covering, err := i.ScannersIn(ctx, namespace)
	for _, scanner := range covering {
		if scanner.ScannerKind() == v1alpha1.KindClusterScanner {
			owners = append(owners, scanner)
		}
	}
	return owners, err
}

// receiverCheck finds the receivers that running pods of a namespace name and that none of the scanners responsible for the pod lets them use.
type receiverCheck struct {
	namespace *metav1.PartialObjectMetadata
	scanners  []v1alpha1.GenericScanner
	// allowedBy has a function for each of the scanners, see allowedReceivers.
	allowedBy []func(receiver string) bool
	// unknown has the first object that names each of the receivers.
	unknown map[string]string
}

func newReceiverCheck(namespace *metav1.PartialObjectMetadata, scanners []v1alpha1.GenericScanner) *receiverCheck {
	check := &receiverCheck{namespace: namespace, scanners: scanners, unknown: map[string]string{}}
	for _, s := range scanners {
		check.allowedBy = append(check.allowedBy, allowedReceivers(s, namespace))
	}
	return check
}

// add checks the receivers of one pod.
func (c *receiverCheck) add(pod *corev1.Pod) {
	for _, name := range annotatedReceivers(pod, c.namespace) {
		hasReceiver := func(r v1alpha1.ClusterReceiver) bool { return r.Name == name }
		known := false
		for i, s := range c.scanners {
			known = known || slices.ContainsFunc(s.Receivers(), hasReceiver) && c.allowedBy[i](name) && coversPod(s, pod)
		}
		if known {
			continue
		}
		if by := annotationSource(pod); c.unknown[name] == "" || by < c.unknown[name] {
			c.unknown[name] = by
		}
	}
}

// annotationSource returns the workload, or the namespace, whose annotation names the receivers of a pod.
func annotationSource(pod *corev1.Pod) string {
	if _, own := pod.Annotations[v1alpha1.AnnotationReceiver]; !own {
		return "namespace " + pod.Namespace
	}
	kind, name := workloadOf(pod)
	return kind + "/" + name
}
