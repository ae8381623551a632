package controllers

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestClusterStatusFits: the status of a ClusterScanner takes at most 4 KiB, however long its texts are. No count, condition or receiver is lost.
func TestClusterStatusFits(t *testing.T) {
	scanner := &v1alpha1.ClusterScanner{}
	status := &scanner.Status
	for n := range 16 {
		status.Receivers = append(status.Receivers, v1alpha1.ReceiverStatus{
			Name: fmt.Sprintf("%063d", n), LastMessage: repeatToLength("m", 256), LastError: repeatToLength("e", 1024), Pending: 1 << 30,
			LastDeliveryTime: ptr.To(metav1.NewTime(noon)),
		})
	}
	for n := range 9 {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: fmt.Sprintf("NotificationsDelivered%d", n), Status: metav1.ConditionFalse, Reason: "ExcludedNamespaceUnknown", Message: repeatToLength("w", 512),
			LastTransitionTime: metav1.NewTime(noon), ObservedGeneration: 1 << 30,
		})
	}
	for n := range maxTopNamespaces {
		status.TopNamespaces = append(status.TopNamespaces, v1alpha1.NamespaceFindings{
			Name: fmt.Sprintf("%063d", n), KnownExploited: 1 << 30, Critical: 1 << 30, High: 1 << 30, Fixable: 1 << 30,
		})
	}
	full := status.DeepCopy()
	shrinkStatusToFit(scanner)
	if size := sizeOfStatus(status); size > maxClusterStatusBytes {
		t.Errorf("the status takes %d bytes, want at most %d", size, maxClusterStatusBytes)
	}
	if len(status.Receivers) != len(full.Receivers) || len(status.Conditions) != len(full.Conditions) || status.Receivers[15].LastError == "" {
		t.Errorf("%d receivers and %d conditions are left, the last error is %q; want all of them, with an error",
			len(status.Receivers), len(status.Conditions), status.Receivers[15].LastError)
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
