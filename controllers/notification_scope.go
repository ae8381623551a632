package controllers

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// notificationScope is what all receivers of a Scanner have in common during one reconciliation.
type notificationScope struct {
	scanner v1alpha1.GenericScanner
	// engine is the name of the Scanner's engine; empty if the operator runs without it.
	engine string
	// data is the engine's vulnerability data; zero if it has none.
	data store.DataVersion
	// covered is the coverage as the inventory has it. gaps is the result of EngineGaps.
	covered inventory.Coverage
	gaps    []string
	// coverage is the same for announcements, with the health notices.
	coverage announce.Coverage
	// destinations are those of all receivers.
	destinations []destination
	// unconfirmed are notices about receivers that do not answer.
	unconfirmed []announce.Notice
	// exceptions are those in force. exceptionEnds is when the first of them expires; zero if none does.
	exceptions    exception.Set
	exceptionEnds time.Time
}

// newScope reads the facts of a Scanner, and then computes its coverage and health notices from them. It does not read findings.
func (r *NotificationReconciler) newScope(ctx context.Context, scanner v1alpha1.GenericScanner) (*notificationScope, error) {
	engine := r.Backends.For(scanner)
	o := &notificationScope{scanner: scanner, engine: engineOf(engine)}
	coverage, err := r.Inventory.Coverage(ctx, scanner, o.engine)
	if err != nil {
		return nil, err
	}
	if o.data, err = r.Store.DataVersion(ctx, o.engine); err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if o.exceptions, o.exceptionEnds, err = r.Exceptions.InForceIn(ctx, coverage.Namespaces.Covered); err != nil {
		return nil, err
	}
	facts := health.Facts{Now: r.Clock.Now(), After: r.Thresholds, Images: coverage.Running, Data: o.data, Exceptions: o.exceptions.All()}
	condition, data, err := engineCondition(ctx, scanner, engine)
	if err != nil {
		return nil, err
	}
	if facts.Anomaly, err = r.Store.DataAnomaly(ctx, string(scanner.GetUID()), o.engine); err != nil {
		return nil, err
	}
	if !o.exceptionEnds.IsZero() && o.exceptionEnds.Sub(facts.Now) <= health.ExpiryNotice {
		totals, _, err := countFindings(ctx, r.Store, scanner, o.exceptions)
		if err != nil {
			return nil, err
		}
		facts.Suppressed = totals.ByException
	}
	destinations := destinationsOf(scanner, coverage.Namespaces)
	var receivers map[string]announce.State
	if len(destinations) > 1 { // nobody gets notices about the only receiver
		if receivers, err = receiverStates(ctx, r.Store, scanner, destinations); err != nil {
			return nil, err
		}
	}
	facts.Engine = withTime(condition, scanner.ScannerStatus().Conditions, facts.Now)
	if reporter, ok := engine.(backend.DataReporter); ok {
		facts.MaxDataAge, facts.DataProblem = reporter.MaxDataAge(), reporter.DataProblem(o.data)
	}
	o.covered, o.gaps, o.destinations = coverage, EngineGaps(engine), destinations
	o.coverage = describeCoverage(coverage, o.gaps)
	if data != nil {
		o.coverage.DataSince = facts.Engine.LastTransitionTime.Time
	}
	o.coverage.Notices, o.coverage.Receivers = facts.Notices(), destinationNames(destinations)
	o.unconfirmed = unconfirmedNotices(receivers)
	return o, nil
}

// withTime returns a condition with the time since when a Scanner has it in its present status; now if it is not in the Scanner's status yet.
// What the condition is was read elsewhere: the status is only the memory of the time, the one that survives a restart.
func withTime(condition metav1.Condition, status []metav1.Condition, now time.Time) metav1.Condition {
	condition.LastTransitionTime = metav1.NewTime(now)
	if known := meta.FindStatusCondition(status, condition.Type); known != nil && known.Status == condition.Status {
		condition.LastTransitionTime = known.LastTransitionTime
	}
	return condition
}
