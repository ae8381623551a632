package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// scannerFacts are what a Scanner's status is computed from. Those that come after a failed read are missing.
type scannerFacts struct {
	// covered is true if coverage was read, and complete if all facts were.
	covered, complete bool
	coverage          inventory.Coverage
	// handledRequest is the last rescan request that all ImageScans of images in use have handled.
	handledRequest string
	// exceptions are those in force. totals are the findings, counted with these exceptions; nil if they were not read.
	exceptions exception.Set
	totals     *store.Totals
	// namespaceTotals are the findings of each namespace of a ClusterScanner; nil for a Scanner, or if they were not read.
	namespaceTotals map[string]store.Totals
	// receivers has the state of each destination by name.
	receivers map[string]announce.State
	// exports has the state of each export by name.
	exports map[string]export.State
	// engine is the condition BackendAvailable, without a time except one that is kept. data is the engine's vulnerability data; nil while the
	// engine is unavailable.
	engine metav1.Condition
	data   *store.DataVersion
	// anomaly is that of the data; nil if there is none.
	anomaly *store.DataAnomaly
}

// readFacts reads the facts of a Scanner. With an error, it returns those that were read before.
func (r *ScannerReconciler) readFacts(ctx context.Context, scanner v1alpha1.GenericScanner, engine backend.Backend) (f scannerFacts, err error) {
	if f.coverage, err = r.Inventory.Coverage(ctx, scanner, engineOf(engine)); err != nil {
		return f, err
	}
	f.covered = true
	if f.handledRequest, err = r.handledRequest(ctx, scanner); err != nil {
		return f, err
	}
	if f.exceptions, _, err = r.Exceptions.InForceIn(ctx, f.coverage.Namespaces.Covered); err != nil {
		return f, err
	}
	// Findings of sources that are announced count too.
	if err := r.Store.SetAnnouncedSources(ctx, string(scanner.GetUID()), scanner.Settings().AnnouncedSources()); err != nil {
		return f, err
	}
	totals, namespaceTotals, err := countFindings(ctx, r.Store, scanner, f.exceptions)
	if err != nil {
		return f, err
	}
	f.totals, f.namespaceTotals = &totals, namespaceTotals
	if f.receivers, err = receiverStates(ctx, r.Store, scanner, destinationsOf(scanner, f.coverage.Namespaces)); err != nil {
		return f, err
	}
	if f.exports, err = exportStates(ctx, r.Store, scanner); err != nil {
		return f, err
	}
	if f.engine, f.data, err = engineCondition(ctx, scanner, engine); err == nil && f.data != nil {
		f.anomaly, err = r.Store.DataAnomaly(ctx, string(scanner.GetUID()), engine.Engine())
	}
	f.complete = err == nil
	return f, err
}

// totalsStore is the part of the store that counts findings.
type totalsStore interface {
	ScannerTotals(ctx context.Context, scanner string, exceptions exception.Set) (store.Totals, error)
	NamespaceTotals(ctx context.Context, scanner string, exceptions exception.Set) (store.Totals, map[string]store.Totals, error)
}

// countFindings counts the findings of a scanner, and of each namespace of a ClusterScanner; byNamespace is nil for a Scanner.
func countFindings(
	ctx context.Context, from totalsStore, scanner v1alpha1.GenericScanner, exceptions exception.Set,
) (totals store.Totals, byNamespace map[string]store.Totals, err error) {
	if scanner.ScannerKind() != v1alpha1.KindClusterScanner {
		totals, err = from.ScannerTotals(ctx, string(scanner.GetUID()), exceptions)
		return totals, nil, err
	}
	return from.NamespaceTotals(ctx, string(scanner.GetUID()), exceptions)
}
