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
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// permissionRetryDelay is the requeue delay while a namespace cannot be read. Just after the start, it is unknown for a moment whether a namespace
// can be read.
const permissionRetryDelay = 3 * time.Second

// withReadAccess delays the reconciliation of a namespace's objects while something in the namespace cannot be read: objects missing from the
// cache would count as deleted, and their data would be removed.
type withReadAccess struct {
	reconcile.Reconciler
	permissions *preflight.Checker
}

// Reconcile implements reconcile.Reconciler.
func (p withReadAccess) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !p.permissions.IsCacheComplete(req.Namespace) {
		return ctrl.Result{RequeueAfter: permissionRetryDelay}, nil
	}
	return withPermissionCheck(p).Reconcile(ctx, req)
}

// withPermissionCheck requests another check of the permissions in a namespace after a request was forbidden there.
type withPermissionCheck struct {
	reconcile.Reconciler
	permissions *preflight.Checker
}

// Reconcile implements reconcile.Reconciler.
func (s withPermissionCheck) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := s.Reconciler.Reconcile(ctx, req)
	if apierrors.IsForbidden(err) {
		s.permissions.RequestCheck(req.Namespace)
	}
	return result, err
}

// setMissingPermissions sets the missing permissions on a Scanner while the coverage of its namespace cannot be computed.
func (r *ScannerReconciler) setMissingPermissions(ctx context.Context, scanner v1alpha1.GenericScanner) (ctrl.Result, error) {
	s := &scannerScope{scanner: scanner, backend: r.Backends.For(scanner), missingPermissions: r.Permissions.Missing(scanner.GetNamespace())}
	if s.missingPermissions == "" {
		return ctrl.Result{RequeueAfter: permissionRetryDelay}, nil
	}
	before := copyOf(scanner)
	r.setReady(s)
	r.Metrics.setScanner(s)
	return ctrl.Result{RequeueAfter: permissionRetryDelay}, r.patchStatus(ctx, before, s)
}

// listLiveScanners reads the existing scanners from the API server, since the cache may lack a namespace. uids maps each UID to whether the
// Scanner is not being deleted. complete is false if a namespace cannot be read; then no Scanner may be treated as deleted.
func (r *ScannerReconciler) listLiveScanners(ctx context.Context) (uids map[types.UID]bool, complete bool, err error) {
	uids = map[types.UID]bool{}
	for _, namespace := range r.Permissions.Namespaces() {
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
	var clusterWide v1alpha1.ClusterScannerList
	if err := r.Reader.List(ctx, &clusterWide); err != nil {
		return nil, false, err
	}
	for _, s := range clusterWide.Items {
		uids[s.UID] = s.DeletionTimestamp.IsZero()
	}
	return uids, true, nil
}
