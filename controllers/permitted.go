package controllers

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/rights"
)

// rightsPause is when to look again at what cannot be read. At the start it is not known for a moment.
const rightsPause = 3 * time.Second

// permitted lets the objects of a namespace wait while something there cannot be read: what the cache does not have would count
// as gone, and be forgotten.
type permitted struct {
	reconcile.Reconciler
	rights *rights.Checker
}

// Reconcile implements reconcile.Reconciler.
func (p permitted) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !p.rights.Readable(req.Namespace) {
		return ctrl.Result{RequeueAfter: rightsPause}, nil
	}
	return watchful(p).Reconcile(ctx, req)
}

// watchful has the rights in a namespace looked at when something was forbidden there.
type watchful struct {
	reconcile.Reconciler
	rights *rights.Checker
}

// Reconcile implements reconcile.Reconciler.
func (s watchful) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := s.Reconciler.Reconcile(ctx, req)
	if apierrors.IsForbidden(err) {
		s.rights.Suspect(req.Namespace)
	}
	return result, err
}

// awaitRights says on a Scanner which rights are missing, while nothing can be said of what it scans.
func (r *ScannerReconciler) awaitRights(ctx context.Context, scanner *v1alpha1.Scanner) (ctrl.Result, error) {
	s := &scannerScope{scanner: scanner, backend: r.Backends.For(scanner), missingRights: r.Rights.Missing(scanner.Namespace)}
	if s.missingRights == "" {
		return ctrl.Result{RequeueAfter: rightsPause}, nil
	}
	before := scanner.DeepCopy()
	r.setReady(s)
	r.Metrics.covers(s)
	return ctrl.Result{RequeueAfter: rightsPause}, r.patchStatus(ctx, before, s)
}

// stillThere reads from the API server which Scanners there are, and not from a cache that may lack a namespace. Where it may not
// be read, complete is false: then none has gone.
func (r *ScannerReconciler) stillThere(ctx context.Context) (uids map[types.UID]bool, complete bool, err error) {
	uids = map[types.UID]bool{}
	for _, namespace := range r.Rights.Namespaces() {
		var scanners v1alpha1.ScannerList
		err := r.Reader.List(ctx, &scanners, client.InNamespace(namespace))
		if apierrors.IsForbidden(err) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		for _, s := range scanners.Items {
			uids[s.UID] = s.DeletionTimestamp.IsZero()
		}
	}
	return uids, true, nil
}
