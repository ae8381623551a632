package controllers

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// storePause is when to look again while the store's file or volume is in trouble.
const storePause = 30 * time.Second

// patient comes back after a fixed time when the store is in trouble. As errors, the same would be tried often at
// first, and after an hour of trouble only a quarter of an hour after it is over.
type patient struct{ reconcile.Reconciler }

// Reconcile implements reconcile.Reconciler.
func (p patient) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := p.Reconciler.Reconcile(ctx, req)
	if store.Trouble(err) == nil {
		return result, err
	}
	if log := ctrl.LoggerFrom(ctx); onlyTrouble(err) {
		log.V(1).Info("Waiting for the store", "reason", err.Error())
	} else {
		// The store's trouble is said elsewhere. What failed besides would be said nowhere.
		log.Error(err, "Reconciling, and waiting for the store")
	}
	return ctrl.Result{RequeueAfter: storePause}, nil
}

// onlyTrouble says whether nothing but the store's trouble is the cause of an error.
func onlyTrouble(err error) bool {
	trouble := store.Trouble(err)
	if trouble == nil {
		return false
	}
	switch wrapper := err.(type) { //nolint:errorlint // it is the tree of errors that is walked here
	case interface{ Unwrap() error }:
		return onlyTrouble(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range wrapper.Unwrap() {
			// The store has the trouble and what SQLite said of it side by side.
			if one == trouble { //nolint:errorlint // see above
				return true
			}
		}
		for _, one := range wrapper.Unwrap() {
			if !onlyTrouble(one) {
				return false
			}
		}
	}
	return true
}

// awaitStore lets nothing begin whose result could not be kept.
func (r *ImageScanReconciler) awaitStore(_ context.Context, s *imageScanScope) (time.Duration, error) {
	trouble := r.Store.Health()
	if trouble == nil {
		return 0, nil
	}
	// What was said of a result or of a failure stays true.
	if s.scan.Status.Findings == nil && s.scan.Status.Phase != v1alpha1.PhaseFailed {
		s.progress = &backend.Progress{Reason: storeReasons[store.Trouble(trouble)], Message: trouble.Error()}
	}
	return storePause, nil
}
