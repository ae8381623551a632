package controllers

import (
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// fullClusterStatus has each field of a ClusterScanner's status at its maximum, with texts of one character.
func fullClusterStatus(char string) (status v1alpha1.ClusterScannerStatus) {
	for n := range 16 {
		status.Receivers = append(status.Receivers, v1alpha1.ReceiverStatus{
			Name: fmt.Sprintf("%063d", n), LastMessage: repeatToLength(char, 256), LastError: repeatToLength(char, 1024), Pending: math.MaxInt32,
			LastDeliveryTime: ptr.To(metav1.NewTime(noon)),
		})
	}
	for n := range 4 {
		status.Exports = append(status.Exports, v1alpha1.ExportStatus{
			Name: fmt.Sprintf("%063d", n), LastError: repeatToLength(char, 1024), Workloads: math.MaxInt32, Pending: math.MaxInt32, Waiting: math.MaxInt32,
			LastSuccessTime: ptr.To(metav1.NewTime(noon)),
		})
	}
	for _, kind := range []string{ // Reconciling and Stalled exclude each other
		v1alpha1.ConditionReady, v1alpha1.ConditionStalled, v1alpha1.ConditionBackendAvailable, v1alpha1.ConditionStoreDurable,
		v1alpha1.ConditionNotificationsDelivered, v1alpha1.ConditionExported, v1alpha1.ConditionOverlap, v1alpha1.ConditionNamespacesNotWatched,
		v1alpha1.ConditionNamespacesUnknown, v1alpha1.ConditionReportsNotWritten,
	} {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonExcludedNamespaceUnknown, Message: repeatToLength(char, 512),
			LastTransitionTime: metav1.NewTime(noon), ObservedGeneration: math.MaxInt32,
		})
	}
	for n := range maxTopNamespaces {
		status.TopNamespaces = append(status.TopNamespaces, v1alpha1.NamespaceFindings{
			Name: fmt.Sprintf("%063d", n), KnownExploited: math.MaxInt32, Critical: math.MaxInt32, High: math.MaxInt32, Fixable: math.MaxInt32,
		})
	}
	const all = math.MaxInt32
	status.Namespaces = v1alpha1.NamespaceCounts{Selected: all, Covered: all, Own: all, Excluded: all, Terminating: all, NotWatched: all}
	status.Images = v1alpha1.ImageCounts{Total: all, Scanned: all, Pending: all, Failed: all, Excluded: all, RecentlyUsed: all}
	status.Findings = v1alpha1.FindingCounts{
		Critical: all, High: all, Medium: all, Low: all, Negligible: all, Unknown: all, Fixable: all, KnownExploited: all, Suppressed: all,
	}
	status.VulnerabilityData = &v1alpha1.VulnerabilityData{BuildTime: seconds(noon), Tool: repeatToLength("t", 64)}
	status.TestMessage = &v1alpha1.TestMessageStatus{
		Request: repeatToLength(char, v1alpha1.MaxTestMessageBytes), Outcome: v1alpha1.TestMessageDelivered, Time: ptr.To(metav1.NewTime(noon)), Message: repeatToLength(char, 1024),
	}
	status.LastHandledRequestedAt = repeatToLength(char, v1alpha1.MaxRequestBytes)
	status.StoreID, status.ObservedGeneration = repeatToLength("s", 32), math.MaxInt32
	return status
}

// TestClusterStatusFits: the status of a ClusterScanner takes at most 4 KiB, however long its texts are and whatever they take in JSON. No count,
// condition or receiver is lost.
func TestClusterStatusFits(t *testing.T) {
	for _, char := range []string{"m", `"`, "<"} {
		scanner := &v1alpha1.ClusterScanner{Status: fullClusterStatus(char)}
		status := &scanner.Status
		shrinkStatusToFit(scanner)
		if size := sizeOfStatus(status); size > maxClusterStatusBytes {
			t.Errorf("texts of %s: the status takes %d bytes, want at most %d", char, size, maxClusterStatusBytes)
		}
		if full := fullClusterStatus(char); len(status.Receivers) != len(full.Receivers) || len(status.Conditions) != len(full.Conditions) {
			t.Errorf("texts of %s: %d receivers and %d conditions are left, want all", char, len(status.Receivers), len(status.Conditions))
		}
	}
}

// TestTopNamespaces: known exploited findings count most, then critical, then high ones. A namespace without any of them is not named.
func TestTopNamespaces(t *testing.T) {
	totals := map[string]store.Totals{
		"quiet": {Counts: finding.Counts{Medium: 900}}, "exploited": {Counts: finding.Counts{Medium: 1, KnownExploited: 1}},
		"critical": {Counts: finding.Counts{Critical: 2}}, "high": {Counts: finding.Counts{High: 70, Fixable: 3}},
		"both": {Counts: finding.Counts{Critical: 2, High: 1}}, "a": {Counts: finding.Counts{High: 1}}, "b": {Counts: finding.Counts{High: 1}},
	}
	var names []string
	for _, namespace := range topNamespaces(totals) {
		names = append(names, namespace.Name)
	}
	if diff := cmp.Diff([]string{"exploited", "both", "critical", "high", "a"}, names); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}

// TestInvalidFromNamespaces: the problem of a receiver's selector names its field.
func TestInvalidFromNamespaces(t *testing.T) {
	scanner := &v1alpha1.ClusterScanner{}
	scanner.Spec.NamespaceSelector = &metav1.LabelSelector{}
	valid := v1alpha1.ClusterReceiver{FromNamespaces: &metav1.LabelSelector{}}
	invalid := v1alpha1.ClusterReceiver{FromNamespaces: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpIn}},
	}}
	for name, c := range map[string]struct {
		receivers []v1alpha1.ClusterReceiver
		reason    string
	}{
		"none":    {[]v1alpha1.ClusterReceiver{{}}, ""},
		"all":     {[]v1alpha1.ClusterReceiver{valid}, ""},
		"invalid": {[]v1alpha1.ClusterReceiver{valid, invalid}, v1alpha1.ReasonInvalidNamespaceSelector},
	} {
		scanner.Spec.Notifications = c.receivers
		reason, message := (&scannerScope{scanner: scanner}).namespaceSelectorProblem()
		if reason != c.reason || strings.Contains(message, "spec.notifications[1].fromNamespaces: ") != (c.reason != "") {
			t.Errorf("%s: %q, %q; want %q", name, reason, message, c.reason)
		}
	}
}
