package controllers

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// Bounds of texts in tables, in bytes. With a name of 20 characters, kubectl get then prints lines of at most 130 characters, and of at most
// 220 with -o wide.
const (
	maxReasonColumn         = 21
	maxImageColumn          = 30
	maxDetailColumn         = 64
	maxSelectorColumn       = 20
	maxMessageColumn        = 80
	maxClusterMessageColumn = 40
	maxExceptionReason      = 20
)

// setColumns sets the texts that kubectl get prints. What was not read keeps its text.
func (s *scannerScope) setColumns(now time.Time) {
	status := s.scanner.ScannerStatus()
	columns := &status.Columns
	limit := maxMessageColumn
	if scanner, isCluster := s.scanner.(*v1alpha1.ClusterScanner); isCluster {
		limit = maxClusterMessageColumn
		columns.Selector = selectorColumn(scanner.Spec.NamespaceSelector)
		if s.covered {
			columns.Namespaces = number(scanner.Status.Namespaces.Covered)
		}
	}
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready != nil {
		columns.Ready, columns.Message = string(ready.Status), column(ready.Message, limit)
		// A scanner that has handled all images is ready, also with data that is outdated.
		engine := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionBackendAvailable)
		if ready.Status == metav1.ConditionTrue && engine != nil && engine.Reason != v1alpha1.ReasonAvailable {
			columns.Message = column(engine.Message, limit)
		}
	}
	if s.covered {
		columns.Images, columns.Scanned, columns.Failed = number(status.Images.Total), number(status.Images.Scanned), number(status.Images.Failed)
	}
	switch found := status.Findings; {
	case s.totals == nil:
	case s.covered && status.Images.Scanned == 0 && status.Images.Total > 0 && found == v1alpha1.FindingCounts{}:
		// No image has a result: 0 would say that they are clean.
		columns.Critical, columns.High, columns.Exploited, columns.Suppressed = v1alpha1.ColumnUnknown, v1alpha1.ColumnUnknown, v1alpha1.ColumnUnknown, v1alpha1.ColumnUnknown
	default:
		columns.Critical, columns.High, columns.Exploited = number(found.Critical), number(found.High), number(found.KnownExploited)
		columns.Suppressed = number(found.Suppressed)
	}
	columns.Messages = messagesColumn(meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNotificationsDelivered))
	columns.DataAge = dataAge(status.VulnerabilityData, now)
}

// messagesColumn says in one word whether messages arrive.
func messagesColumn(delivered *metav1.Condition) string {
	switch {
	case delivered == nil:
		return v1alpha1.ColumnUnknown
	case delivered.Status == metav1.ConditionFalse:
		return v1alpha1.MessagesFailing
	case delivered.Reason == v1alpha1.ReasonNoReceivers:
		return v1alpha1.MessagesNone
	}
	return v1alpha1.MessagesDelivered
}

// dataAge returns the age of vulnerability data in hours, and from two days on in days. Data from the future is 0h old, or of unknown
// age if it is so far that a clock must be wrong. Smaller units would change each scanner's status every minute.
func dataAge(data *v1alpha1.VulnerabilityData, now time.Time) string {
	if data == nil || data.BuildTime.IsZero() || backend.FutureData(data.BuildTime.Time, now) != "" {
		return v1alpha1.ColumnUnknown
	}
	hours := max(0, int(now.Sub(data.BuildTime.Time)/time.Hour))
	if hours < 48 {
		return strconv.Itoa(hours) + "h"
	}
	return strconv.Itoa(hours/24) + "d"
}

// selectorColumn returns a label selector as kubectl accepts it, within its bound. The empty selector, which selects everything, is "*".
func selectorColumn(selector *metav1.LabelSelector) string {
	text := metav1.FormatLabelSelector(selector)
	if text == "<none>" {
		text = "*"
	}
	return column(text, maxSelectorColumn)
}

// columnsOf returns the texts of an ImageScan. An image without a result has no counts, since 0 would say that it is clean. never is the result of
// EngineGaps.
func columnsOf(status *v1alpha1.ImageScanStatus, never []string) v1alpha1.ImageScanColumns {
	columns := v1alpha1.ImageScanColumns{
		Reason: v1alpha1.ColumnUnknown, Exploited: v1alpha1.ColumnUnknown, Critical: v1alpha1.ColumnUnknown, High: v1alpha1.ColumnUnknown,
		Fixable: v1alpha1.ColumnUnknown, Suppressed: v1alpha1.ColumnUnknown, Detail: column(status.WorstFinding, maxDetailColumn),
	}
	if found := status.Findings; found != nil {
		columns.Exploited, columns.Critical, columns.High = number(found.KnownExploited), number(found.Critical), number(found.High)
		columns.Fixable, columns.Suppressed = number(found.Fixable), number(found.Suppressed)
	}
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	switch {
	case status.Phase == v1alpha1.PhaseScanned && status.UnusedSinceTime != nil:
		columns.Reason = v1alpha1.ReasonUnused
	case status.Phase == v1alpha1.PhaseScanned && len(evidence.ImageGaps(status.NotCovered, never)) > 0:
		columns.Reason = v1alpha1.ColumnPartlyCovered
	case status.Phase != v1alpha1.PhaseScanned && ready != nil:
		columns.Reason, columns.Detail = column(ready.Reason, maxReasonColumn), column(ready.Message, maxDetailColumn)
	}
	return columns
}

// setColumns sets the texts that kubectl get prints.
func (d exceptionObject) setColumns() {
	columns := v1alpha1.ExceptionColumns{
		Findings: v1alpha1.ColumnUnknown, Expires: "never", Ready: v1alpha1.ColumnUnknown, Reason: v1alpha1.ColumnUnknown, Why: column(d.spec.Reason, maxMessageColumn),
	}
	if d.status.Findings != nil {
		columns.Findings = number(*d.status.Findings)
	}
	if d.spec.ExpirationTime != nil {
		columns.Expires = formatTime(d.spec.ExpirationTime)
	}
	if ready := meta.FindStatusCondition(d.status.Conditions, v1alpha1.ConditionReady); ready != nil {
		columns.Ready, columns.Reason = string(ready.Status), column(ready.Reason, maxExceptionReason)
	}
	d.status.Columns = columns
}

// column returns a text for a table in at most limit bytes; ColumnUnknown if it is empty.
func column(text string, limit int) string {
	if text == "" {
		return v1alpha1.ColumnUnknown
	}
	return truncate(text, limit)
}

// maxNumberColumn is the largest number that a table shows.
const maxNumberColumn = 99999

func number(n int32) string {
	if n > maxNumberColumn {
		return strconv.Itoa(maxNumberColumn) + "+"
	}
	return strconv.Itoa(int(n))
}
