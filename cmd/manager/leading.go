package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// Replicas of the manager decide by a Lease which of them leads: it alone reconciles objects, plans Jobs, sends messages and sweeps the store. If the
// store is on a server, every replica serves the REST API, the web UI and the ingest API. A store in a file belongs to one process, so the others
// wait and serve nothing.

// leadership is whether this process leads.
type leadership struct {
	once sync.Once
	err  error
	// led is closed when the process has begun to lead.
	led chan struct{}
	// ended is set when the process does not lead any more. It then only answers its last requests.
	ended atomic.Bool
}

// holderIdentity returns the identity of this process in the Lease: the name of its pod, or of its machine, and a random part. A manager that
// holds the file lock of a store has the store's identity instead: the manager that had that lock before has ended, however it ended, so this
// one takes over its Lease at once.
func (op *operator) holderIdentity() string {
	if op.config.Store.Type == config.SQLite {
		return "store_" + op.store.ID()
	}
	host, _ := os.Hostname() // without a name, the random part remains
	return cmp.Or(op.options.PodName, host) + "_" + string(uuid.NewUUID())
}

func newLeadership() *leadership { return &leadership{led: make(chan struct{})} }

// leads reports whether this process leads.
func (l *leadership) leads() bool {
	select {
	case <-l.led:
		return !l.ended.Load()
	default:
		return false
	}
}

// beginWith runs begin once, and waits for its end. It returns begin's error at each call.
func (l *leadership) beginWith(begin func() error) error {
	l.once.Do(func() {
		if l.err = begin(); l.err == nil {
			close(l.led)
		}
	})
	return l.err
}

// leadingManager is the controllers' manager. What it starts when this process is elected waits until beginToLead has ended.
type leadingManager struct {
	manager.Manager
	op *operator
}

// Add implements manager.Manager.
func (m leadingManager) Add(r manager.Runnable) error {
	if l, isChoosy := r.(manager.LeaderElectionRunnable); isChoosy && !l.NeedLeaderElection() {
		return m.Manager.Add(r)
	}
	return m.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := m.op.leadership.beginWith(func() error { return m.op.beginToLead(ctx) }); err != nil {
			return err
		}
		return r.Start(ctx)
	}))
}

// beginToLead prepares the store and the cache for the leader. Nothing else that only the leader does has begun yet.
func (op *operator) beginToLead(ctx context.Context) error {
	epoch, err := op.store.Lead(ctx)
	if err != nil {
		return fmt.Errorf("beginning to lead: %w", err)
	}
	ctrl.Log.Info("Leading", "epoch", epoch)
	go op.announceEpoch(ctx, epoch)
	if err := op.detectRollback(ctx); err != nil {
		return fmt.Errorf("comparing the store with what was delivered: %w", err)
	}
	// The indexes make the cache read all pods. Other replicas do without.
	return inventory.SetupIndexes(ctx, op.manager.GetFieldIndexer())
}

// logStandby says that this process waits, unless it leads soon.
func (op *operator) logStandby(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-op.leadership.led:
		return
	case <-time.After(2 * op.lease.RetryPeriod):
	}
	if op.servesWhileFollowing() {
		ctrl.Log.Info("Another manager leads. This one serves requests, and leads when the lease of the other one has ended", "lease", managerName)
		return
	}
	ctrl.Log.Info("Another manager leads. This one stands by and is not ready: the store in a file belongs to one process. For replicas that all serve, put the "+
		"store on a database server (store.type)", "lease", managerName)
}

// announceInterval is the time between two attempts to announce an epoch.
const announceInterval = 15 * time.Second

// announceEpoch announces to the notifier that this process leads, so that it refuses the leader before it also while there is nothing to send.
// Each delivery has the epoch, too, so an error is only logged.
func (op *operator) announceEpoch(ctx context.Context, epoch int64) {
	for client, first := op.notifier(), true; ctx.Err() == nil; first = false {
		err := client.BeginEpoch(ctx, epoch)
		if err == nil || errors.Is(err, announce.ErrDeposed) {
			return
		}
		if first {
			ctrl.Log.Info("The notifier does not know yet that this manager leads; it is tried again, and each message says so, too", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(announceInterval):
		}
	}
}

// everywhere is a loop that runs on every replica.
type everywhere manager.RunnableFunc

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (e everywhere) NeedLeaderElection() bool { return false }
