package preflight

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// openInterval is how often to try to open a store that another manager still holds, or whose server is unavailable.
const openInterval = time.Second

// OpeningStore is the reason why the process is not ready while it opens the store. A large store takes minutes to be restored or migrated.
const OpeningStore = "the store is being opened, restored or migrated"

// OpenStore opens the store. If another manager holds its file, OpenStore waits without a limit: two managers never write at the same time.
// It also waits while the store's server has a fault, such as being unavailable. Meanwhile the process is alive and not ready, and its log and /readyz have the
// reason. Otherwise the kubelet would kill it in the middle of a migration, again and again. Any other error ends the process.
func OpenStore(ctx context.Context, open func(context.Context) (*store.Store, error), probeAddress string, log logr.Logger) (*store.Store, error) {
	reason := OpeningStore
	stop, err := ServeNotReady(ctx, probeAddress, reason)
	if err != nil {
		return nil, err
	}
	defer func() { stop() }()
	for {
		opened, err := open(ctx)
		if !errors.Is(err, store.ErrLocked) && !store.IsServerFault(err) {
			return opened, err
		}
		if err.Error() != reason {
			reason = err.Error()
			log.Info("Waiting for the store", "reason", reason)
			stop()
			// Everybody in the cluster's network can read the answer to a probe. A driver's error has the user's name.
			public := reason
			if store.IsServerFault(err) {
				public = store.StorageFault(err).Error()
			}
			if stop, err = ServeNotReady(ctx, probeAddress, public); err != nil {
				stop = func() {}
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(openInterval):
		}
	}
}
