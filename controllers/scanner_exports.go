package controllers

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

// exportStore is the part of the store that has the states of exports.
type exportStore interface {
	ExportState(ctx context.Context, scanner, name string) ([]byte, error)
}

// exportStates reads the state of each export of a scanner, by name.
func exportStates(ctx context.Context, from exportStore, scanner v1alpha1.GenericScanner) (map[string]export.State, error) {
	states := map[string]export.State{}
	for _, one := range scanner.Settings().Exports {
		raw, err := from.ExportState(ctx, string(scanner.GetUID()), one.Name)
		if err != nil {
			return nil, err
		}
		if states[one.Name], err = export.ParseState(raw); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// setExports sets the condition Exported and the status of each export. A Scanner without exports has neither.
func (s *scannerScope) setExports() {
	status, exports := s.scanner.ScannerStatus(), s.scanner.Settings().Exports
	status.Exports = nil
	if len(exports) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionExported)
		return
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionExported, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonExported, ObservedGeneration: s.scanner.GetGeneration(),
	}
	var failed, reasons, importing []string
	pending := 0
	for _, one := range exports {
		state := s.exports[one.Name]
		made, reason := exportStatus(one.Name, state)
		status.Exports = append(status.Exports, made)
		pending += state.Pending
		if state.Importing != "" {
			importing = append(importing, one.Name+": the tool is importing what it got of "+state.Importing+", and the import is not sent again meanwhile")
		}
		if reason != "" {
			failed, reasons = append(failed, one.Name+": "+made.LastError), append(reasons, reason)
		}
	}
	switch {
	case len(failed) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonExportFailed
		if len(slices.Compact(reasons)) == 1 {
			condition.Reason = reasons[0]
		}
		condition.Message = truncate(strings.Join(failed, "; "), 4*v1alpha1.MaxMessageBytes)
	case pending > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonExportPending, announce.Pluralize(pending, "workload")+" with findings or SBOMs that wait to be sent"
		condition.Message = truncate(strings.Join(append([]string{condition.Message}, importing...), "; "), 4*v1alpha1.MaxMessageBytes)
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}

// exportStatus returns the status of one export, and the reason of its problem; empty if it has none.
func exportStatus(name string, state export.State) (v1alpha1.ExportStatus, string) {
	status := v1alpha1.ExportStatus{Name: name, Workloads: clamp(state.Workloads), Pending: clamp(state.Pending), Waiting: clamp(state.Waiting)}
	if !state.LastSuccess.IsZero() {
		status.LastSuccessTime = ptr.To(seconds(state.LastSuccess))
	}
	reason, message := state.Problem()
	if reason == "" {
		return status, ""
	}
	if !reasonPattern.MatchString(reason) {
		reason = v1alpha1.ReasonExportFailed
	}
	// The error begins with the reason, which users search for.
	status.LastError = truncate(reason+": "+message, 1024)
	return status, reason
}
