package controllers

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// withStoreBackoff requeues with a fixed delay while the store is unavailable. Returning the error instead would use exponential backoff: many
// retries at first and, after an hour, a recovery that is up to 15 minutes late.
type withStoreBackoff struct{ reconcile.Reconciler }

// Reconcile implements reconcile.Reconciler.
func (p withStoreBackoff) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := p.Reconciler.Reconcile(ctx, req)
	if store.StorageFault(err) == nil {
		return result, err
	}
	if log := ctrl.LoggerFrom(ctx); isOnlyStoreProblem(err) {
		log.V(1).Info("Waiting for the store", "reason", err.Error())
	} else {
		// The store's problem is reported elsewhere. Other errors would be lost without this line.
		log.Error(err, "Reconciling, and waiting for the store")
	}
	return ctrl.Result{RequeueAfter: scan.StoreRetry}, nil
}

// isOnlyStoreProblem reports whether a problem of the store is the only cause of an error.
func isOnlyStoreProblem(err error) bool {
	fault := store.StorageFault(err)
	if fault == nil {
		return false
	}
	switch wrapper := err.(type) { //nolint:errorlint // it is the tree of errors that is walked here
	case interface{ Unwrap() error }:
		return isOnlyStoreProblem(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range wrapper.Unwrap() {
			// The store joins the problem and SQLite's error in one list. SQLite's error is no other cause.
			if one == fault { //nolint:errorlint // see above
				return true
			}
		}
		for _, one := range wrapper.Unwrap() {
			if !isOnlyStoreProblem(one) {
				return false
			}
		}
	}
	return true
}
