package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// explanation says why something is as it is.
type explanation struct {
	// Subject is what it is about: an ImageScan, a receiver or a pod.
	Subject string `json:"subject"`
	// State in one word, such as Failed.
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// Do is what to do about it.
	Do string `json:"do,omitempty"`
}

func (s *session) whyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "why IMAGE", Short: "Explain why an image is pending, failed, excluded or was not announced", Args: cobra.ExactArgs(1),
		Long: `Explain why an image is pending, failed or excluded, and for each receiver why its findings were not announced.

IMAGE is the ImageScan's name, the image's reference or a part of it, its digest, or a workload such as Deployment/web. Without an
ImageScan, the pods of the namespace and the settings of its Scanners explain why there is none.`,
		Example:           `  kubectl scanner why shop/billing -n shop`,
		ValidArgsFunction: s.completeImages,
		RunE:              func(c *cobra.Command, args []string) error { return s.why(c.Context(), args[0]) },
	}
	s.addFormat(c)
	return s.requires(c,
		own("imagescans", "", "list"), own("scanners", "for the receivers of a Scanner", "list"),
		permission{verbs: []string{"get"}, group: v1alpha1.GroupVersion.Group, resource: "clusterscanners", scope: inCluster, when: "for the receivers of a ClusterScanner"},
		permission{verbs: []string{"list"}, resource: "pods", scope: inNamespace, when: "for an image without an ImageScan"})
}

func (s *session) why(ctx context.Context, word string) error {
	format, err := s.checkFormat()
	if err != nil {
		return err
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	scans, err := listScans(ctx, cluster, namespace)
	if err != nil {
		return err
	}
	var all []explanation
	selected, unknown := selectScans(scans, word)
	for i := range selected {
		all = append(all, why(&selected[i]))
		more, err := whyNotAnnounced(ctx, cluster, &selected[i])
		if err != nil {
			return err
		}
		all = append(all, more...)
	}
	if unknown != nil {
		if all, err = s.whyNoScan(ctx, cluster, namespace, word); err != nil {
			return err
		}
		if len(all) == 0 {
			return fmt.Errorf("%w in namespace %s, and no pod there names such an image", unknown, namespace)
		}
	}
	if format.IsForPeople() {
		for _, e := range all {
			s.explain(e)
		}
		return nil
	}
	table := output.Table{Columns: []output.Column{{Name: "SUBJECT"}, {Name: "STATE"}, {Name: "REASON"}, {Name: "MESSAGE"}, {Name: "DO"}}}
	for _, e := range all {
		table.Rows = append(table.Rows, []string{e.Subject, e.State, e.Reason, e.Message, e.Do})
	}
	return s.write(table, map[string]any{"items": all})
}

// explain prints an explanation in sentences.
func (s *session) explain(e explanation) {
	text := e.Subject + ": " + e.State
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	text += "\n  " + e.Message + "\n"
	if e.Do != "" {
		text += "  → " + e.Do + "\n"
	}
	fmt.Fprint(s.results(), text)
}

// why explains the phase of an ImageScan, with the words of its condition Ready.
func why(scan *v1alpha1.ImageScan) explanation {
	e := explanation{Subject: "ImageScan " + scan.Namespace + "/" + scan.Name + " (" + shortImageOf(scan) + ")", State: string(phaseOf(scan))}
	ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		e.Message = "the operator has not handled the image yet"
		e.Do = "if it stays so, look at the Scanner: kubectl scanner status -n " + scan.Namespace
		return e
	}
	e.Reason, e.Message = ready.Reason, ready.Message
	switch phaseOf(scan) {
	case v1alpha1.PhaseScanned:
		if len(scan.Status.NotCovered) > 0 {
			e.Message += "; the result does not cover " + strings.Join(scan.Status.NotCovered, ", ")
		}
	case v1alpha1.PhaseFailed:
		e.Message += fmt.Sprintf(" (attempts: %d", scan.Status.Attempts)
		if next := scan.Status.NextAttemptTime; next != nil {
			e.Message += ", next " + minute(next.Time)
		}
		e.Message += ")"
		e.Do = "look up " + ready.Reason + " in " + docs + "use/troubleshooting-images.md; to retry at once: kubectl scanner rescan " + scan.Name + " -n " + scan.Namespace
	default:
		e.Message += ", since " + minute(ready.LastTransitionTime.Time)
	}
	return e
}

// whyNotAnnounced explains for each receiver of the image's scanner which findings of the image are not announced to it.
func whyNotAnnounced(ctx context.Context, cluster client.Client, scan *v1alpha1.ImageScan) ([]explanation, error) {
	if !hasResult(scan) {
		return nil, nil
	}
	scanner, receivers, err := scannerOf(ctx, cluster, scan)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return []explanation{{Subject: string(scan.Spec.ScannerRef.Kind) + " " + scan.Spec.ScannerRef.Name, State: "Unknown", Message: err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	var all []explanation
	if len(receivers) == 0 {
		all = append(all, explanation{
			Subject: string(scan.Spec.ScannerRef.Kind) + " " + scan.Spec.ScannerRef.Name, State: "NotAnnounced", Reason: v1alpha1.ReasonNoReceivers,
			Message: "it has no receivers, so nothing is announced", Do: "add one to spec.notifications",
		})
	}
	for _, receiver := range receivers {
		all = append(all, whyNotToReceiver(scan, scanner, receiver))
	}
	if condition := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReceiverNotAllowed); condition != nil {
		all = append(all, explanation{Subject: "ImageScan " + scan.Namespace + "/" + scan.Name, State: "NotAnnounced", Reason: condition.Reason, Message: condition.Message})
	}
	return all, nil
}

// scannerOf returns the scanner of an ImageScan and its receivers.
func scannerOf(ctx context.Context, cluster client.Client, scan *v1alpha1.ImageScan) (*v1alpha1.ScannerStatus, []v1alpha1.Receiver, error) {
	if scan.Spec.ScannerRef.Kind == v1alpha1.KindClusterScanner {
		var scanner v1alpha1.ClusterScanner
		if err := cluster.Get(ctx, client.ObjectKey{Name: scan.Spec.ScannerRef.Name}, &scanner); err != nil {
			return nil, nil, err
		}
		var receivers []v1alpha1.Receiver
		for _, r := range scanner.Spec.Notifications {
			receivers = append(receivers, r.Receiver)
		}
		return &scanner.Status.ScannerStatus, receivers, nil
	}
	var list v1alpha1.ScannerList
	if err := cluster.List(ctx, &list, client.InNamespace(scan.Namespace)); err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == scan.Spec.ScannerRef.Name {
			return &list.Items[i].Status, list.Items[i].Spec.Notifications, nil
		}
	}
	return nil, nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("scanners").GroupResource(), scan.Spec.ScannerRef.Name)
}

// whyNotToReceiver explains what the filter of a receiver leaves out, and the state of its deliveries.
func whyNotToReceiver(scan *v1alpha1.ImageScan, scanner *v1alpha1.ScannerStatus, receiver v1alpha1.Receiver) explanation {
	e := explanation{Subject: "receiver " + receiver.Name}
	i := slices.IndexFunc(scanner.Receivers, func(r v1alpha1.ReceiverStatus) bool { return r.Name == receiver.Name })
	counts := *scan.Status.Findings
	announced := announcedCount(counts, receiver.MinSeverity)
	var parts []string
	switch {
	case total(&counts) == 0:
		parts = append(parts, "the image has no findings that need action")
	case announced == 0 && counts.KnownExploited == 0:
		parts = append(parts, fmt.Sprintf("minSeverity is %s, and none of the image's findings is so severe or known exploited", receiver.MinSeverity))
	default:
		parts = append(parts, fmt.Sprintf("%s of severity %s or worse", count(announced, "finding is", "findings are"), receiver.MinSeverity))
	}
	if receiver.OnlyFixable != nil && *receiver.OnlyFixable {
		parts = append(parts, fmt.Sprintf("onlyFixable leaves out those without a fix; %d of all have one", counts.Fixable))
	}
	if counts.Suppressed > 0 {
		parts = append(parts, count(int(counts.Suppressed), "more is suppressed by an exception", "more are suppressed by exceptions"))
	}
	if receiver.Workloads == v1alpha1.WorkloadsOwn {
		parts = append(parts, "the receiver gets only workloads that name it with the annotation "+v1alpha1.AnnotationReceiver)
	}
	switch {
	case i < 0 || scanner.Receivers[i].LastDeliveryTime == nil:
		e.State = "Waiting"
		parts = append(parts, "no message was delivered to it yet")
	case scanner.Receivers[i].Pending > 0:
		e.State = "Waiting"
		parts = append(parts, fmt.Sprintf("%d findings wait for the next message; the last one was delivered %s", scanner.Receivers[i].Pending, minute(scanner.Receivers[i].LastDeliveryTime.Time)))
	default:
		e.State = "UpToDate"
		parts = append(parts, fmt.Sprintf("everything that passes its filter was announced or is part of its baseline; the last message was delivered %s: %s",
			minute(scanner.Receivers[i].LastDeliveryTime.Time), scanner.Receivers[i].LastMessage))
	}
	if i >= 0 && scanner.Receivers[i].LastError != "" {
		e.State, e.Reason = "NotDelivered", v1alpha1.ReasonDeliveryFailed
		parts = append(parts, "the last delivery failed: "+scanner.Receivers[i].LastError)
		e.Do = docs + "use/troubleshooting-messages.md"
	}
	e.Message = strings.Join(parts, "; ")
	return e
}

// announcedCount counts the findings from a severity on.
func announcedCount(c v1alpha1.FindingCounts, from v1alpha1.SeverityThreshold) int {
	n, least := 0, finding.ParseSeverity(string(from))
	for severity, number := range map[finding.Severity]int32{
		finding.Critical: c.Critical, finding.High: c.High, finding.Medium: c.Medium, finding.Low: c.Low, finding.Negligible: c.Negligible,
	} {
		if severity >= least {
			n += int(number)
		}
	}
	return n
}

// whyNoScan explains for the pods with an image why there is no ImageScan.
func (s *session) whyNoScan(ctx context.Context, cluster client.Client, namespace, word string) ([]explanation, error) {
	var pods corev1.PodList
	var scanners v1alpha1.ScannerList
	if err := errors.Join(cluster.List(ctx, &pods, client.InNamespace(namespace)), cluster.List(ctx, &scanners, client.InNamespace(namespace))); err != nil {
		return nil, fmt.Errorf("no ImageScan has the name, digest, reference or workload %q, and why is not known: %w", word, err)
	}
	var all []explanation
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if !strings.Contains(container.Image, word) {
				continue
			}
			if len(scanners.Items) == 0 {
				all = append(all, explanation{
					Subject: "pod " + pod.Name, State: "NotScanned", Message: "the namespace has no Scanner; whether a ClusterScanner covers it is in kubectl scanner status",
					Do: "create a Scanner: " + docs + "use/one-namespace.md",
				})
			}
			for n := range scanners.Items {
				all = append(all, s.whyNotCovered(&scanners.Items[n], pod, container))
			}
		}
	}
	return all, nil
}

// whyNotCovered explains why a Scanner has no ImageScan of a container's image.
func (s *session) whyNotCovered(scanner *v1alpha1.Scanner, pod *corev1.Pod, container corev1.Container) explanation {
	e := explanation{Subject: "pod " + pod.Name + ", container " + container.Name + " (" + container.Image + "), Scanner " + scanner.Name, State: "Excluded"}
	settings := scanner.Spec.ScanSettings
	reference, err := image.ParseReference(container.Image)
	selector, selectorErr := metav1.LabelSelectorAsSelector(settings.PodSelector)
	excluding := slices.IndexFunc(settings.Images.Exclude, func(glob string) bool { return err == nil && image.Match(glob, reference) })
	switch {
	case settings.IgnoreLabel != "" && pod.Labels[settings.IgnoreLabel] == "true":
		e.Reason, e.Message, e.Do = "ignoreLabel", "the pod has the label "+settings.IgnoreLabel+"=true", "remove the label from the pod's template"
	case settings.PodSelector != nil && selectorErr == nil && !selector.Matches(labels.Set(pod.Labels)):
		e.Reason, e.Message = "podSelector", "spec.podSelector of the Scanner does not select the pod"
	case excluding >= 0:
		e.Reason, e.Message = "images.exclude", "the Scanner's spec.images.exclude has "+settings.Images.Exclude[excluding]
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		e.State, e.Message = "NotScanned", "the pod has ended"
	default:
		e.State = "Pending"
		e.Message = "no node has reported the image's digest: " + containerState(pod, container.Name)
		e.Do = "kubectl -n " + pod.Namespace + " describe pod " + pod.Name
		if settings.Suspend != nil && *settings.Suspend {
			e.Reason, e.Message, e.Do = v1alpha1.ReasonSuspended, "the Scanner is suspended", "set spec.suspend to false"
		} else if age := s.Clock.Since(pod.CreationTimestamp.Time); age < time.Minute {
			e.Message, e.Do = fmt.Sprintf("the pod is new (%d s): try again in a moment", int(age.Seconds())), ""
		}
	}
	return e
}

// containerState returns why a container does not run.
func containerState(pod *corev1.Pod, name string) string {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.Name == name && status.State.Waiting != nil {
			return status.State.Waiting.Reason + " " + status.State.Waiting.Message
		}
		if status.Name == name && status.ImageID != "" {
			return "it reported " + status.ImageID + ", which the operator has not handled yet"
		}
	}
	return "the pod is " + string(pod.Status.Phase)
}
