package controllers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func countImages(images []inventory.CoveredImage) v1alpha1.ImageCounts {
	counts := v1alpha1.ImageCounts{Total: clamp(len(images))}
	for _, img := range images {
		switch img.State {
		case image.Scanned:
			counts.Scanned++
		case image.Failed:
			counts.Failed++
		case image.Excluded:
			counts.Excluded++
		default:
			counts.Pending++
		}
	}
	return counts
}

// setStatus sets the counts, the conditions BackendAvailable and NotificationsDelivered, and the status of each receiver, as far as their
// facts were read.
func (s *scannerScope) setStatus(storeID string) {
	status := s.scanner.ScannerStatus()
	if s.covered {
		status.Images = countImages(s.coverage.Running)
		status.Images.RecentlyUsed = clamp(len(s.coverage.Recent))
		status.LastHandledRequestedAt = s.handledRequest
	}
	if s.totals != nil {
		status.Findings = countsOf(s.totals.Counts, s.totals.Suppressed)
	}
	s.setClusterStatus()
	if s.complete {
		s.setBackend()
		s.setReceivers(storeID)
		s.setTestMessage()
		s.setExports()
	}
}

// setBackend sets the condition BackendAvailable and the vulnerability data in use. The data stays if the operator runs without the engine.
func (s *scannerScope) setBackend() {
	status := s.scanner.ScannerStatus()
	switch {
	case s.data != nil:
		status.VulnerabilityData = &v1alpha1.VulnerabilityData{BuildTime: seconds(s.data.Built), Tool: s.data.Tool}
	case s.backend != nil:
		status.VulnerabilityData = nil
	}
	condition := s.engine
	if s.anomaly != nil {
		condition.Reason, condition.Message = v1alpha1.ReasonDataAnomaly, health.DescribeAnomaly(s.anomaly)
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}

// seconds truncates a time to the precision of the API, so that it equals what was written before.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// maxTitleBytes bounds the title of a message, as the API does.
const maxTitleBytes = 256

// setReceivers sets the condition NotificationsDelivered and the status of each receiver. It sets the store ID only once each receiver has a
// state in that store: until then, the old ID makes the NotificationReconciler treat the store as new.
func (s *scannerScope) setReceivers(storeID string) {
	scanner := s.scanner
	condition := metav1.Condition{
		Type: v1alpha1.ConditionNotificationsDelivered, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonDelivered, ObservedGeneration: scanner.GetGeneration(),
	}
	var failed, reasons []string
	pending, begun := 0, true
	scanner.ScannerStatus().Receivers = nil
	for _, to := range destinationsOf(scanner, s.coverage.Namespaces) {
		state := s.receivers[to.name()]
		status, reason := receiverStatus(to.Name, state)
		if receivers := &scanner.ScannerStatus().Receivers; to.channel == "" {
			*receivers = append(*receivers, status)
		} else {
			mergeReceiverStatus(&(*receivers)[len(*receivers)-1], status, to.channel)
		}
		pending += state.Pending
		begun = begun && state.Begun()
		if reason != "" {
			failed, reasons = append(failed, to.name()+": "+status.LastError), append(reasons, reason)
		}
	}
	if begun {
		scanner.ScannerStatus().StoreID = storeID
	}
	invalid := invalidTimes(scanner)
	switch {
	case len(scanner.Receivers()) == 0:
		condition.Reason, condition.Message = v1alpha1.ReasonNoReceivers, "spec.notifications is empty: findings are not announced"
	case len(failed) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonDeliveryFailed
		if len(slices.Compact(reasons)) == 1 {
			condition.Reason = reasons[0]
		}
		condition.Message = truncate(strings.Join(failed, "; "), 4*v1alpha1.MaxMessageBytes)
	case invalid != "":
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalidTime, invalid
	case pending > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonDeliveryPending, "waiting for the next message: "+announce.Pluralize(pending, "finding")
	}
	if unknown := describeUnknown(s.coverage.UnknownReceivers); unknown != "" {
		if condition.Reason == v1alpha1.ReasonDelivered {
			condition.Reason = v1alpha1.ReasonUnknownReceiver
		}
		condition.Message = strings.TrimPrefix(condition.Message+"; "+unknown, "; ")
	}
	meta.SetStatusCondition(&scanner.ScannerStatus().Conditions, condition)
}

// receiverStatus returns the status of one receiver, and the reason of its problem; empty if it has none. A reason that is not valid in a
// condition becomes DeliveryFailed.
func receiverStatus(name string, state announce.State) (v1alpha1.ReceiverStatus, string) {
	delivered, title := state.LastDelivered()
	status := v1alpha1.ReceiverStatus{Name: name, Pending: clamp(state.Pending), LastMessage: truncate(title, maxTitleBytes)}
	if !delivered.IsZero() {
		status.LastDeliveryTime = ptr.To(seconds(delivered))
	}
	reason, message := state.Problem()
	if message == "" {
		return status, ""
	}
	if !reasonPattern.MatchString(reason) {
		reason = v1alpha1.ReasonDeliveryFailed
	}
	// The error begins with the reason, which users search for.
	status.LastError = truncate(reason+": "+message, 1024)
	return status, reason
}

// mergeReceiverStatus adds the status of one further channel to that of its receiver.
func mergeReceiverStatus(receiver *v1alpha1.ReceiverStatus, more v1alpha1.ReceiverStatus, channel string) {
	receiver.Pending += more.Pending
	if last := more.LastDeliveryTime; last != nil && (receiver.LastDeliveryTime == nil || receiver.LastDeliveryTime.Before(last)) {
		receiver.LastDeliveryTime, receiver.LastMessage = last, more.LastMessage
	}
	if receiver.LastError == "" && more.LastError != "" {
		receiver.LastError = truncate("channel "+channel+": "+more.LastError, 1024)
	}
}

// storeReasons maps problems of the store to condition reasons.
var storeReasons = map[error]string{
	store.ErrVolumeFull: v1alpha1.ReasonVolumeFull, store.ErrVolumeReadOnly: v1alpha1.ReasonVolumeReadOnly,
	store.ErrVolumeFailed: v1alpha1.ReasonVolumeFailed, store.ErrCorrupt: v1alpha1.ReasonStoreCorrupt,
	store.ErrMovedAway: v1alpha1.ReasonStoreMovedAway, store.ErrUnavailable: v1alpha1.ReasonStoreUnavailable,
	store.ErrServerFull: v1alpha1.ReasonStoreFull, store.ErrTooManyConnections: v1alpha1.ReasonTooManyConnections,
	store.ErrServerReadOnly: v1alpha1.ReasonStoreReadOnly, store.ErrServerPermission: v1alpha1.ReasonStorePermission,
	store.ErrServerTooOld: v1alpha1.ReasonStoreTooOld, store.ErrWrongCollation: v1alpha1.ReasonStoreWrongCollation,
	store.ErrPacketTooSmall: v1alpha1.ReasonStorePacketTooSmall,
}

// setStore sets the condition StoreDurable. It uses the store's in-memory health, so that it works whatever the state of the file.
func (r *ScannerReconciler) setStore(s *scannerScope) {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionStoreDurable, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonVolumeMounted, ObservedGeneration: s.scanner.GetGeneration(),
	}
	if r.StoreOnServer {
		condition.Reason = v1alpha1.ReasonDatabaseServer
	}
	if !r.StoreDurable {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonEphemeralVolume, r.StoreAdvice
	}
	if err := r.Store.Health(); err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, storeReasons[store.StorageFault(err)]
		condition.Message = truncate(err.Error(), v1alpha1.MaxMessageBytes)
		s.storeProblem = condition.Reason
	}
	meta.SetStatusCondition(&s.scanner.ScannerStatus().Conditions, condition)
}

// setReportsNotWritten sets the condition about Reports for other tools.
func (r *ScannerReconciler) setReportsNotWritten(s *scannerScope) {
	reason, message := "", ""
	if r.ReportsProblem != nil {
		reason, message = r.ReportsProblem()
	}
	setWhileTrue(&s.scanner.ScannerStatus().Conditions, v1alpha1.ConditionReportsNotWritten, reason != "", reason, message, s.scanner.GetGeneration())
}

// setReady sets the conditions Ready, Reconciling and Stalled. A Scanner is ready when each image was handled, with or without success.
// Failed images are in the message and in the counts.
func (r *ScannerReconciler) setReady(s *scannerScope) {
	counts, images, status := s.scanner.ScannerStatus().Images, s.coverage.Running, s.scanner.ScannerStatus()
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: s.scanner.GetGeneration()}
	reconciling, stalled := false, false
	stall := func(reason, message string) {
		ready.Status, ready.Reason, ready.Message, stalled = metav1.ConditionFalse, reason, message, true
	}
	namespaces, namespacesProblem := s.namespaceSelectorProblem()
	selector, tooMany, budget := selectorProblem(s.scanner), imageLimitMessage(r.Inventory.Limits, images), storeBudgetMessage(images)
	switch {
	case s.refused:
		stall(v1alpha1.ReasonTooManyScanners, scannerLimitMessage(r.Inventory.Limits))
	case s.missingPermissions != "":
		stall(v1alpha1.ReasonMissingPermissions, s.missingPermissions)
	case s.backend == nil:
		stall(v1alpha1.ReasonBackendDisabled, disabledMessage(s.scanner))
	case isSuspended(s.scanner):
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonSuspended, "spec.suspend is true: nothing new is scanned or announced"
	case s.conflict:
		stall(v1alpha1.ReasonAnotherOperator, "another Scanner Operator in this cluster works on this Scanner as well, so that everything is scanned and announced twice: "+
			"keep one of them (kubectl get deployments -A -l app.kubernetes.io/name=scanner-operator)")
	case s.storeProblem != "":
		stall(s.storeProblem, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStoreDurable).Message)
	case namespaces != "":
		stall(namespaces, namespacesProblem)
	case selector != "":
		stall(v1alpha1.ReasonInvalidPodSelector, selector)
	case tooMany != "":
		stall(v1alpha1.ReasonTooManyImages, tooMany)
	case budget != "":
		stall(v1alpha1.ReasonStoreBudgetExceeded, budget)
	case counts.Total == 0:
		ready.Reason, ready.Message = v1alpha1.ReasonNoImages, "no running pod is selected"
	case counts.Pending > 0:
		ready.Status, ready.Reason, ready.Message, reconciling = metav1.ConditionFalse, v1alpha1.ReasonScanning, health.DescribePending(images), true
	case counts.Failed > 0:
		ready.Reason, ready.Message = v1alpha1.ReasonSomeFailed, health.DescribeFailures(images)
	default:
		ready.Reason, ready.Message = v1alpha1.ReasonScanned, describeScanned(s)
	}
	ready.Message = truncate(ready.Message, v1alpha1.MaxMessageBytes)
	meta.SetStatusCondition(&status.Conditions, ready)
	setWhileTrue(&status.Conditions, v1alpha1.ConditionReconciling, reconciling, ready.Reason, ready.Message, s.scanner.GetGeneration())
	setWhileTrue(&status.Conditions, v1alpha1.ConditionStalled, stalled, ready.Reason, ready.Message, s.scanner.GetGeneration())
}

// selectorProblem describes an invalid pod selector that the API server accepted. Such a Scanner selects no pod. Empty if the selector is
// valid.
func selectorProblem(scanner v1alpha1.GenericScanner) string {
	if _, err := metav1.LabelSelectorAsSelector(scanner.Settings().PodSelector); err != nil {
		return fmt.Sprintf("spec.podSelector: %v; no pod is selected until it is corrected", err)
	}
	return ""
}

// conditionChanged reports whether a condition has another status or reason than before.
func conditionChanged(before []metav1.Condition, now metav1.Condition) bool {
	old := meta.FindStatusCondition(before, now.Type)
	return old == nil || old.Status != now.Status || old.Reason != now.Reason
}

func eventType(c metav1.Condition) string {
	if c.Reason == v1alpha1.ReasonDataAnomaly || c.Reason == v1alpha1.ReasonDataOutdated {
		return corev1.EventTypeWarning
	}
	if c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonSomeFailed {
		return corev1.EventTypeNormal
	}
	if c.Reason == v1alpha1.ReasonScanning || c.Reason == v1alpha1.ReasonSuspended || c.Reason == v1alpha1.ReasonNoVulnerabilityData {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
