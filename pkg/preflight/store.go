package preflight

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// lockInterval is how often to try to open a store that another manager still holds.
const lockInterval = time.Second

// OpeningStore is the reason why the process is not ready while it opens the store. A large store takes minutes to be restored or migrated.
const OpeningStore = "the store is being opened, restored or migrated"

// OpenStore opens the store. If another manager holds it, OpenStore waits without a limit: two managers never write at the same time.
// Meanwhile the process is alive and not ready. Otherwise the kubelet would kill it in the middle of a migration, again and again. Any
// other error ends the process.
func OpenStore(ctx context.Context, path, probeAddress string, log logr.Logger) (*store.Store, error) {
	stop, err := ServeNotReady(ctx, probeAddress, OpeningStore)
	if err != nil {
		return nil, err
	}
	opened, err := tryOpenStore(ctx, path, log)
	stop()
	if !errors.Is(err, store.ErrLocked) {
		return opened, err
	}
	if stop, err = ServeNotReady(ctx, probeAddress, err.Error()); err != nil {
		return nil, err
	}
	defer stop()
	for {
		opened, err := tryOpenStore(ctx, path, log)
		if !errors.Is(err, store.ErrLocked) {
			return opened, err
		}
		log.Info("Waiting for the store", "reason", err.Error())
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockInterval):
		}
	}
}

// tryOpenStore opens the store, and logs whether it was restored.
func tryOpenStore(ctx context.Context, path string, log logr.Logger) (*store.Store, error) {
	opened, err := store.OpenSQLite(ctx, path, time.Now)
	if err != nil {
		return nil, err
	}
	if opened.Replaced() {
		log.Info("Took the restored store", "backupOf", opened.RestoredFrom(), "id", opened.ID(), "before", path+store.PreviousSuffix)
	}
	return opened, nil
}
