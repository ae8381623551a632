package controllers

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// notificationScope is what all receivers of a Scanner have in common during one reconciliation.
type notificationScope struct {
	scanner *v1alpha1.Scanner
	// engine is the name of the Scanner's engine; empty if the operator runs without it.
	engine string
	// data is the engine's vulnerability data; zero if it has none.
	data     store.DataVersion
	coverage announce.Coverage
	// unconfirmed are notices about receivers that do not answer.
	unconfirmed []announce.Notice
	// exceptions are those in force. exceptionEnds is when the first of them expires; zero if none does.
	exceptions    exception.Set
	exceptionEnds time.Time
}

// newScope collects the coverage, the exceptions and the health notices of a Scanner. It does not read findings.
func (r *NotificationReconciler) newScope(ctx context.Context, scanner *v1alpha1.Scanner) (*notificationScope, error) {
	engine := r.Backends.For(scanner)
	o := &notificationScope{scanner: scanner, engine: engineOf(engine)}
	coverage, err := r.Inventory.Coverage(ctx, scanner, o.engine)
	if err != nil {
		return nil, err
	}
	if o.data, err = r.Store.DataVersion(ctx, o.engine); err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if o.exceptions, o.exceptionEnds, err = r.Exceptions.InForce(ctx, scanner.Namespace); err != nil {
		return nil, err
	}
	o.coverage = describeCoverage(coverage, engineGaps(engine), dataSince(scanner))
	c := healthInput{
		now: r.Clock.Now(), after: r.NoticeThresholds, images: coverage.Running, data: o.data, exceptions: o.exceptions.All(),
		backend: meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionBackendAvailable),
	}
	if reporter, ok := engine.(backend.DataReporter); ok {
		c.maxAge, c.dataProblem = reporter.MaxDataAge(), reporter.DataProblem(o.data)
	}
	if c.anomaly, err = r.Store.DataAnomaly(ctx, string(scanner.UID), o.engine); err != nil {
		return nil, err
	}
	if !o.exceptionEnds.IsZero() && o.exceptionEnds.Sub(c.now) <= expiryNotice {
		totals, err := r.Store.ScannerTotals(ctx, string(scanner.UID), o.exceptions)
		if err != nil {
			return nil, err
		}
		c.suppressed = totals.ByException
	}
	o.coverage.Notices, o.coverage.Receivers = c.notices(), receiverNames(scanner)
	o.unconfirmed, err = r.unconfirmedNotices(ctx, scanner)
	return o, err
}
