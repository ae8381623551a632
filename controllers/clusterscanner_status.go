package controllers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxClusterStatusBytes bounds the status of a ClusterScanner, as JSON.
const maxClusterStatusBytes = 4096

// Bounds of what a ClusterScanner's status and its conditions name.
const (
	maxTopNamespaces   = 5
	maxNamedNamespaces = 5
)

// setClusterStatus sets what only the status of a ClusterScanner has: its namespaces, and the conditions about them.
func (s *scannerScope) setClusterStatus() {
	scanner, ok := s.scanner.(*v1alpha1.ClusterScanner)
	if !ok || !s.covered {
		return
	}
	status, all := &scanner.Status, s.coverage.Namespaces
	status.Namespaces = countNamespaces(all)
	if s.namespaceTotals != nil {
		status.TopNamespaces = topNamespaces(s.namespaceTotals)
	}
	set := func(kind, reason, message string) {
		setWhileTrue(&status.Conditions, kind, message != "", reason, truncate(message, v1alpha1.MaxMessageBytes), scanner.Generation)
	}
	set(v1alpha1.ConditionOverlap, v1alpha1.ReasonOverlap, describeOverlaps(all.Overlaps))
	set(v1alpha1.ConditionNamespacesNotWatched, v1alpha1.ReasonNamespacesNotWatched, describeNotWatched(all.NotWatched))
	set(v1alpha1.ConditionNamespacesUnknown, v1alpha1.ReasonExcludedNamespaceUnknown, describeUnknownExcluded(all.UnknownExcluded))
}

func countNamespaces(all inventory.Namespaces) v1alpha1.NamespaceCounts {
	return v1alpha1.NamespaceCounts{
		Selected: clamp(len(all.Covered) + len(all.Own) + len(all.Excluded) + len(all.Terminating) + len(all.NotWatched)),
		Covered:  clamp(len(all.Covered)), Own: clamp(len(all.Own)), Excluded: clamp(len(all.Excluded)),
		Terminating: clamp(len(all.Terminating)), NotWatched: clamp(len(all.NotWatched)),
	}
}

// topNamespaces returns the namespaces with most to act on. A namespace without a known exploited, critical or high finding is not among them.
func topNamespaces(totals map[string]store.Totals) (top []v1alpha1.NamespaceFindings) {
	for namespace, total := range totals {
		counts := total.Counts
		one := v1alpha1.NamespaceFindings{
			Name: namespace, KnownExploited: clamp(counts.KnownExploited), Critical: clamp(counts.Of(finding.Critical)),
			High: clamp(counts.Of(finding.High)), Fixable: clamp(counts.Fixable),
		}
		if one.KnownExploited+one.Critical+one.High > 0 {
			top = append(top, one)
		}
	}
	slices.SortFunc(top, func(a, b v1alpha1.NamespaceFindings) int {
		return cmp.Or(cmp.Compare(b.KnownExploited, a.KnownExploited), cmp.Compare(b.Critical, a.Critical), cmp.Compare(b.High, a.High), cmp.Compare(a.Name, b.Name))
	})
	return top[:min(len(top), maxTopNamespaces)]
}

func describeOverlaps(overlaps map[string]int) string {
	if len(overlaps) == 0 {
		return ""
	}
	names, parts := slices.Sorted(maps.Keys(overlaps)), []string(nil)
	for _, name := range names[:min(len(names), maxNamedNamespaces)] {
		parts = append(parts, fmt.Sprintf("%s (%d)", name, overlaps[name]))
	}
	return "other ClusterScanners with the same engine cover namespaces of this one, so that their receivers get messages about the same findings: " +
		andMore(parts, len(names)) + ". Let one of them exclude these namespaces, by namespaceSelector or excludeNamespaces"
}

func describeNotWatched(namespaces []string) string {
	if len(namespaces) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of the namespaces that spec.namespaceSelector selects are not among those that the operator may read: %s. "+
		"Add them to the operator's namespaces, grant it its role there, or select fewer", len(namespaces), namedFirst(namespaces))
}

func describeUnknownExcluded(namespaces []string) string {
	if len(namespaces) == 0 {
		return ""
	}
	return "spec.excludeNamespaces has names of namespaces that do not exist: " + namedFirst(namespaces) + ". Entries are complete names, not patterns"
}

// namedFirst names the first few of some namespaces.
func namedFirst(namespaces []string) string {
	return andMore(namespaces[:min(len(namespaces), maxNamedNamespaces)], len(namespaces))
}

// andMore joins names, and says how many of all are left out.
func andMore(named []string, all int) string {
	text := strings.Join(named, ", ")
	if more := all - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// namespaceSelectorProblem describes a namespace selector that is invalid or selects nothing, or a receiver's that is invalid; empty for any
// other, and for a Scanner.
func (s *scannerScope) namespaceSelectorProblem() (reason, message string) {
	scanner, ok := s.scanner.(*v1alpha1.ClusterScanner)
	if !ok {
		return "", ""
	}
	if _, err := metav1.LabelSelectorAsSelector(scanner.Spec.NamespaceSelector); err != nil {
		return v1alpha1.ReasonInvalidNamespaceSelector, fmt.Sprintf("spec.namespaceSelector: %v; no namespace is selected until it is corrected", err)
	}
	if s.covered && scanner.Status.Namespaces.Selected == 0 {
		return v1alpha1.ReasonNoNamespaces, "spec.namespaceSelector: no namespace has these labels (kubectl get namespaces --show-labels)"
	}
	if notWatched := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionNamespacesNotWatched); notWatched != nil {
		return notWatched.Reason, notWatched.Message
	}
	for n, receiver := range scanner.Spec.Notifications {
		if _, err := metav1.LabelSelectorAsSelector(receiver.FromNamespaces); err != nil {
			return v1alpha1.ReasonInvalidNamespaceSelector,
				fmt.Sprintf("spec.notifications[%d].fromNamespaces: %v; no namespace may name receiver %s until it is corrected", n, err, receiver.Name)
		}
	}
	return "", ""
}

// shrinkStatusToFit shortens the status of a ClusterScanner until it is within maxClusterStatusBytes. Counts and the states of conditions stay.
// Texts are shortened first, and dropped only if that is not enough: in JSON, a character may take six bytes.
func shrinkStatusToFit(o v1alpha1.GenericScanner) {
	scanner, ok := o.(*v1alpha1.ClusterScanner)
	if !ok {
		return
	}
	status := &scanner.Status
	for _, limit := range []int{256, 128, 64, 32, 8} {
		if sizeOfStatus(status) <= maxClusterStatusBytes {
			return
		}
		for i := range status.Receivers {
			receiver := &status.Receivers[i]
			receiver.LastMessage, receiver.LastError = truncate(receiver.LastMessage, limit), truncate(receiver.LastError, limit)
		}
		if status.TestMessage != nil {
			status.TestMessage.Message = truncate(status.TestMessage.Message, limit)
		}
		for i := range status.Exports {
			status.Exports[i].LastError = truncate(status.Exports[i].LastError, limit)
		}
		shortenMessages(status.Conditions, limit)
	}
	for sizeOfStatus(status) > maxClusterStatusBytes && dropLast(&status.TopNamespaces, 0) {
		continue
	}
	dropWhile := func(drop func(i int), n int) {
		for i := 0; i < n && sizeOfStatus(status) > maxClusterStatusBytes; i++ {
			drop(i)
		}
	}
	receivers, conditions := len(status.Receivers), len(status.Conditions)
	dropWhile(func(i int) { status.Receivers[i].LastMessage, status.Receivers[i].LastDeliveryTime = "", nil }, receivers)
	dropWhile(func(i int) {
		if kind := status.Conditions[i].Type; kind == v1alpha1.ConditionReconciling || kind == v1alpha1.ConditionStalled {
			status.Conditions[i].Message = "" // it repeats the one of Ready
		}
	}, conditions)
	dropWhile(func(i int) { status.Receivers[receivers-1-i].LastError = "" }, receivers)
	dropWhile(func(i int) { status.Exports[len(status.Exports)-1-i].LastError = "" }, len(status.Exports))
	dropWhile(func(i int) { status.Conditions[conditions-1-i].Message = "" }, conditions)
	for sizeOfStatus(status) > maxClusterStatusBytes && dropLast(&status.Exports, 0) { // the condition Exported stays
		continue
	}
	dropWhile(func(i int) { status.Conditions[conditions-1-i].ObservedGeneration = 0 }, conditions) // the status has it, too
	dropWhile(func(int) { status.TestMessage = nil }, 1)
}

func sizeOfStatus(status *v1alpha1.ClusterScannerStatus) int {
	text, err := json.Marshal(status)
	if err != nil {
		return math.MaxInt // unreachable: the type can always be marshalled
	}
	return len(text)
}
