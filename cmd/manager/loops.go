package main

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/scanner-operator/scanner-operator/pkg/history"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	certificateInterval = time.Hour
	// recordRetention is how long the store keeps records that no Scanner uses any more.
	recordRetention = 24 * time.Hour
	// historyInterval is how often the counts of today are recorded.
	historyInterval = time.Hour
	// healthInterval is how often watchStore checks the store's file and volume. watchStore enqueues all Scanners when a fault begins, changes
	// or ends. They must report it within two minutes, as docs/operate/store.md says.
	healthInterval = 30 * time.Second
)

// addLoops adds the loops that run beside the controllers while this process leads, and those that run on every replica.
func (op *operator) addLoops(context.Context) error {
	loops := []manager.RunnableFunc{
		op.grype.RunJobs,
		op.clairs.Run,
		op.checkStoreIntegrity,
		op.crds.Run,
		op.periodic(op.options.SweepInterval, "sweep", "Sweeping the store", op.sweep),
		op.periodic(historyInterval, "history", "Recording the counts of today", op.recorder().Record),
	}
	if op.servesWhileFollowing() {
		loops = append(loops, op.relay.Run)
	}
	for _, loop := range loops {
		if err := op.manager.Add(loop); err != nil {
			return err
		}
	}
	for _, loop := range []manager.RunnableFunc{
		op.grype.RunListingPolls, // a replica that serves workers says which database they need
		op.watchStore,
		op.periodic(certificateInterval, "certificates", "Refreshing certificates", op.refreshCertificates),
	} {
		if err := op.manager.Add(everywhere(loop)); err != nil {
			return err
		}
	}
	return nil
}

// recorder returns what records the counts of each day.
func (op *operator) recorder() history.Recorder {
	return history.Recorder{Reader: op.manager.GetClient(), Exceptions: op.exceptions(), Inventory: op.inventory(op.permissions.IsCacheComplete), Store: op.store}
}

// sweep deletes from the store what is no longer needed.
func (op *operator) sweep(ctx context.Context) error {
	now := op.clock.Now()
	_, err := op.store.Sweep(ctx, now.Add(-recordRetention))
	_, messagesErr := op.store.SweepMessages(ctx, now.Add(-op.config.Notifications.LogRetention.Duration))
	return errors.Join(err, messagesErr)
}

// periodic returns a loop that calls work at once and then at each interval until the context ends. An error is logged with the message name,
// and the loop goes on. loop is the label of the loop's metrics.
func (op *operator) periodic(interval time.Duration, loop, name string, work func(context.Context) error) manager.RunnableFunc {
	return func(ctx context.Context) error {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			if err := op.loops.Run(loop, func() error { return work(ctx) }); err != nil && ctx.Err() == nil {
				ctrl.Log.Error(err, name)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	}
}

// checkStoreIntegrity checks the whole file of the store, once. This takes long for a large file. The result is part of the store's health from
// then on.
func (op *operator) checkStoreIntegrity(ctx context.Context) error {
	if err := op.store.CheckIntegrity(ctx); err != nil && ctx.Err() == nil {
		ctrl.Log.Error(err, "Looking through the store")
	}
	return nil
}

// storeChanged has the Scanners report whether the store has a fault. Each replica finds that out, and the leader reports it.
func (op *operator) storeChanged(ctx context.Context) {
	if op.leadership.leads() {
		op.enqueueScanners(ctx)
	}
}

// watchStore checks the store's file and volume until the context ends. It returns an error if the file at the store's path is not the one
// that is open, or if another process has begun to lead: the process then ends and restarts.
func (op *operator) watchStore(ctx context.Context) error {
	ticker := time.NewTicker(healthInterval)
	defer ticker.Stop()
	var lastFault error
	for {
		err := op.loops.Run("store", func() error { return op.store.CheckHealth(ctx) })
		switch fault := store.StorageFault(err); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrMovedAway), errors.Is(err, store.ErrNotLeading):
			return err
		case err != nil && (fault == nil || fault != lastFault): //nolint:errorlint // which one it was, not what it wraps
			ctrl.Log.Error(err, "The store has a fault")
			op.storeChanged(ctx)
		case err == nil && lastFault != nil:
			ctrl.Log.Info("The store works again")
			op.storeChanged(ctx)
		}
		lastFault = store.StorageFault(err)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
