package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// lockInterval is how often to try to get the store of a manager that is about to end.
	lockInterval = time.Second
	// healthInterval is how often to look at the store's file and volume. Scanners look at what was found every minute:
	// both together are less than two.
	healthInterval = 30 * time.Second
)

// opening is what a manager says that is not ready, since a large store takes minutes to be restored or migrated.
const opening = "the store is being opened, restored or migrated"

// openStore waits for another manager to let go of the store, however long it takes: two managers never write at
// once. All the while the process says that it lives and is not ready, or the kubelet would end it in the middle of a
// migration, again and again. Any other error is for the pod's end.
func openStore(ctx context.Context, path, probeAddress string) (store.Store, error) {
	stop, err := serveWaiting(ctx, probeAddress, opening)
	if err != nil {
		return nil, err
	}
	opened, err := openOnce(ctx, path)
	stop()
	if !errors.Is(err, store.ErrLocked) {
		return opened, err
	}
	if stop, err = serveWaiting(ctx, probeAddress, err.Error()); err != nil {
		return nil, err
	}
	defer stop()
	for {
		opened, err := openOnce(ctx, path)
		if !errors.Is(err, store.ErrLocked) {
			return opened, err
		}
		ctrl.Log.Info("Waiting for the store", "reason", err.Error())
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockInterval):
		}
	}
}

// openOnce opens the store, and says when it is one that was restored.
func openOnce(ctx context.Context, path string) (store.Store, error) {
	opened, err := store.OpenSQLite(ctx, path, time.Now)
	if err != nil {
		return nil, err
	}
	if opened.Replaced() {
		ctrl.Log.Info("Took the restored store", "backupOf", opened.RestoredFrom(), "id", opened.ID(), "before", path+store.PreviousSuffix)
	}
	return opened, nil
}

// recogniseRollback has a store whose volume was put back to an earlier state be treated as restored. It has to run before anything
// else uses the store. Without the permission to read the ConfigMap work goes on, and such a store goes unnoticed.
func (op *operator) recogniseRollback(ctx context.Context) error {
	before := op.store.ID()
	rolledBack, err := op.deliveries.Check(ctx)
	if rolledBack {
		ctrl.Log.Info("The store is older than the messages that were sent, or their number is missing: its volume was put back to an earlier state. "+
			"It is treated as restored",
			"configMap", controllers.DeliveriesConfigMap, "contentOf", op.store.RestoredFrom(), "id", op.store.ID(), "before", before)
	}
	if apierrors.IsForbidden(err) {
		ctrl.Log.Error(err, "A rollback of the store's volume would go unnoticed")
		return nil
	}
	return err
}

// serveWaiting answers the kubelet until it is stopped: the process lives, and waits for a reason. Where the manager would
// not answer either, it does not.
func serveWaiting(ctx context.Context, address, reason string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, reason, http.StatusServiceUnavailable)
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	go func() { _ = server.Serve(listener) }() // it ends with an error that says that it was closed
	return func() {
		_ = server.Close()
		_ = listener.Close() // which the server does not know yet if it has only just begun
	}, nil
}

// inspectStore looks at the store's file from end to end, once, which takes long when it is large. What it finds is part of
// the store's health from then on.
func (op *operator) inspectStore(ctx context.Context) error {
	if err := op.store.LookInside(ctx); err != nil && ctx.Err() == nil {
		ctrl.Log.Error(err, "Looking through the store")
	}
	return nil
}

// watchStore looks at the store's file and volume until the context ends. It returns an error, by which the process ends
// and begins anew, when the file is another one than that which is open.
func (op *operator) watchStore(ctx context.Context) error {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	var said error
	for {
		err := op.loops.Run("store", func() error { return op.store.Look(ctx) })
		switch trouble := store.Trouble(err); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrMovedAway):
			return err
		case err != nil && (trouble == nil || trouble != said): //nolint:errorlint // which one it was, not what it wraps
			ctrl.Log.Error(err, "The store is in trouble")
			op.wakeScanners(ctx)
		case err == nil && said != nil:
			ctrl.Log.Info("The store works again")
			op.wakeScanners(ctx)
		}
		said = store.Trouble(err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
