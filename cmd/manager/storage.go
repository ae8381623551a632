package main

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// lockInterval is how often to try to open a store that another manager still holds.
	lockInterval = time.Second
	// healthInterval is how often watchStore checks the store's file and volume. watchStore enqueues all Scanners when a fault begins, changes
	// or ends. They must report it within two minutes, as docs/store.md says.
	healthInterval = 30 * time.Second
)

// openingMessage is the reason why the process is not ready while it opens the store. A large store takes minutes to be restored or migrated.
const openingMessage = "the store is being opened, restored or migrated"

// openStore opens the store. If another manager holds it, openStore waits without a limit: two managers never write at the same time.
// Meanwhile the process is alive and not ready. Otherwise the kubelet would kill it in the middle of a migration, again and again. Any
// other error ends the process.
func openStore(ctx context.Context, path, probeAddress string) (*store.Store, error) {
	stop, err := preflight.ServeNotReady(ctx, probeAddress, openingMessage)
	if err != nil {
		return nil, err
	}
	opened, err := tryOpenStore(ctx, path)
	stop()
	if !errors.Is(err, store.ErrLocked) {
		return opened, err
	}
	if stop, err = preflight.ServeNotReady(ctx, probeAddress, err.Error()); err != nil {
		return nil, err
	}
	defer stop()
	for {
		opened, err := tryOpenStore(ctx, path)
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

// tryOpenStore opens the store, and logs whether it was restored.
func tryOpenStore(ctx context.Context, path string) (*store.Store, error) {
	opened, err := store.OpenSQLite(ctx, path, time.Now)
	if err != nil {
		return nil, err
	}
	if opened.Replaced() {
		ctrl.Log.Info("Took the restored store", "backupOf", opened.RestoredFrom(), "id", opened.ID(), "before", path+store.PreviousSuffix)
	}
	return opened, nil
}

// detectRollback detects a store whose volume was rolled back to an earlier state, and has it treated as restored. It must run before
// anything else uses the store. Without permission to use the ConfigMap, it only logs: the operator works, and a rollback stays undetected.
func (op *operator) detectRollback(ctx context.Context) error {
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

// checkStoreIntegrity checks the whole file of the store, once. This takes long for a large file. The result is part of the store's health from
// then on.
func (op *operator) checkStoreIntegrity(ctx context.Context) error {
	if err := op.store.CheckIntegrity(ctx); err != nil && ctx.Err() == nil {
		ctrl.Log.Error(err, "Looking through the store")
	}
	return nil
}

// watchStore checks the store's file and volume until the context ends. It returns an error if the file at the store's path is not the one
// that is open: the process then ends and restarts.
func (op *operator) watchStore(ctx context.Context) error {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	var lastFault error
	for {
		err := op.loops.Run("store", func() error { return op.store.CheckHealth(ctx) })
		switch fault := store.StorageFault(err); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrMovedAway):
			return err
		case err != nil && (fault == nil || fault != lastFault): //nolint:errorlint // which one it was, not what it wraps
			ctrl.Log.Error(err, "The store has a fault")
			op.enqueueScanners(ctx)
		case err == nil && lastFault != nil:
			ctrl.Log.Info("The store works again")
			op.enqueueScanners(ctx)
		}
		lastFault = store.StorageFault(err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
