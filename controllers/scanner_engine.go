package controllers

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// engineOf returns the name under which an engine's results are stored. It is empty if the operator runs without the engine.
func engineOf(b backend.Backend) string {
	if b == nil {
		return ""
	}
	return b.Engine()
}

// engineCondition asks a Scanner's engine for its state. It returns the condition BackendAvailable, without a time except one that is kept,
// and the engine's vulnerability data; nil while the engine is unavailable. engine is nil if the operator runs without it. The condition of
// an engine that was unavailable is kept while its availability is unknown.
func engineCondition(ctx context.Context, scanner v1alpha1.GenericScanner, engine backend.Backend) (metav1.Condition, *store.DataVersion, error) {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionBackendAvailable, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonBackendDisabled, ObservedGeneration: scanner.GetGeneration(),
	}
	if engine == nil {
		condition.Message = disabledMessage(scanner)
		return condition, nil, nil
	}
	// This is read before the data version: a request that fails between the two makes the availability known.
	checker, ok := engine.(backend.AvailabilityChecker)
	unknown := ok && !checker.AvailabilityKnown()
	version, err := engine.DataVersion(ctx)
	var failure *backend.Failure
	switch {
	case errors.As(err, &failure):
		condition.Reason, condition.Message = failure.Reason, truncate(failure.Message, v1alpha1.MaxMessageBytes)
		return condition, nil, nil
	case err != nil:
		return metav1.Condition{}, nil, err
	}
	if outage := outageOf(scanner); unknown && outage != nil {
		return *outage, nil, nil // otherwise a restart during an outage would look like its end
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAvailable
	if reporter, ok := engine.(backend.DataReporter); ok {
		if problem := reporter.DataProblem(version); problem != "" {
			condition.Reason = v1alpha1.ReasonDataOutdated
			condition.Message = truncate(problem, v1alpha1.MaxMessageBytes)
		}
	}
	return condition, &version, nil
}

// outageOf returns the condition BackendAvailable of a Scanner whose present engine was unavailable; nil if it was available, disabled or
// another one.
func outageOf(scanner v1alpha1.GenericScanner) *metav1.Condition {
	before := meta.FindStatusCondition(scanner.ScannerStatus().Conditions, v1alpha1.ConditionBackendAvailable)
	if before == nil || before.Status != metav1.ConditionFalse || before.Reason == v1alpha1.ReasonBackendDisabled ||
		before.ObservedGeneration != scanner.GetGeneration() {
		return nil
	}
	return before
}

// disabledMessage describes that the operator runs without a Scanner's engine.
func disabledMessage(scanner v1alpha1.GenericScanner) string {
	return fmt.Sprintf("this operator runs without the backend %s; choose another one in spec.backend.type", scanner.Settings().Backend.Type)
}
