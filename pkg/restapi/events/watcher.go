package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// pollInterval and replicaPollInterval are how often a watcher looks for a new revision of the store. That costs nothing if no other process
// writes to it, and else one read of one row.
const (
	pollInterval        = 250 * time.Millisecond
	replicaPollInterval = time.Second
)

// Store is the part of the operator's store that a Watcher reads.
type Store interface {
	ChangePosition(ctx context.Context) (store.ChangePosition, error)
	ChangesSince(ctx context.Context, after store.ChangePosition) (store.Changes, error)
}

// Watcher adds changes to a log: those of the store, whichever process has made them, and those of the objects in a cache of the API server.
type Watcher struct {
	Log   *Log
	Store Store
	// Reader reads Scanners and ClusterScanners from the same cache as the API.
	Reader client.Reader
	// Informers are those of that cache; nil for none. A change of an object is added when the cache has it.
	Informers cache.Informers
	Clock     clock.WithTicker
	Logger    logr.Logger
	// EveryReplica means that a replica serves the API also while it does not lead.
	EveryReplica bool
}

// watched are the kinds of objects that responses depend on.
var watched = map[restv1.HintKind]client.Object{
	restv1.HintImageScan:                     &v1alpha1.ImageScan{},
	restv1.HintScanner:                       &v1alpha1.Scanner{},
	restv1.HintClusterScanner:                &v1alpha1.ClusterScanner{},
	restv1.HintVulnerabilityException:        &v1alpha1.VulnerabilityException{},
	restv1.HintClusterVulnerabilityException: &v1alpha1.ClusterVulnerabilityException{},
}

// Start runs the watcher until the context ends. It implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	if w.Informers != nil {
		for kind, object := range watched {
			informer, err := w.Informers.GetInformer(ctx, object)
			if err != nil {
				return fmt.Errorf("watching kind %s: %w", kind, err)
			}
			registration, err := informer.AddEventHandler(w.handlerOf(kind))
			if err != nil {
				return fmt.Errorf("watching kind %s: %w", kind, err)
			}
			defer func() { _ = informer.RemoveEventHandler(registration) }()
		}
	}
	w.pollStore(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. A replica watches while it serves the API. Another one needs no cache of the
// objects.
func (w *Watcher) NeedLeaderElection() bool { return !w.EveryReplica }

// handlerOf returns the handler that adds the changes of a kind.
func (w *Watcher) handlerOf(kind restv1.HintKind) toolscache.ResourceEventHandler {
	add := func(object any) {
		if deleted, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = deleted.Obj
		}
		if o, ok := object.(client.Object); ok {
			w.Log.Add(Change{Kind: kind, Namespace: o.GetNamespace()})
		}
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if !isInInitialList {
				add(object)
			}
		},
		UpdateFunc: func(before, after any) {
			b, isObject := before.(client.Object)
			// A resync brings the same objects again.
			if a, ok := after.(client.Object); ok && isObject && a.GetResourceVersion() == b.GetResourceVersion() {
				return
			}
			add(after)
		},
		DeleteFunc: add,
	}
}

// pollStore adds the changes of the store until the context ends. While the store does not answer, nothing is lost: the watcher continues at its
// position.
func (w *Watcher) pollStore(ctx context.Context) {
	interval := pollInterval
	if w.EveryReplica {
		interval = replicaPollInterval
	}
	ticker := w.Clock.NewTicker(interval)
	defer ticker.Stop()
	var position *store.ChangePosition
	failing := false
	for ctx.Err() == nil {
		next, err := w.poll(ctx, position)
		switch {
		case err == nil:
			position, failing = next, false
		case !failing && ctx.Err() == nil && !errors.Is(err, store.ErrClosed):
			failing = true
			w.Logger.Error(err, "Looking for changes in the store; the watcher tries again until it succeeds")
		}
		select {
		case <-ctx.Done():
		case <-ticker.C():
		}
	}
}

// poll adds what has changed after a position, and returns the next one. Without a position, anything may have changed.
func (w *Watcher) poll(ctx context.Context, after *store.ChangePosition) (*store.ChangePosition, error) {
	if after == nil {
		position, err := w.Store.ChangePosition(ctx)
		if err == nil {
			w.Log.Reset()
		}
		return &position, err
	}
	changes, err := w.Store.ChangesSince(ctx, *after)
	if err != nil {
		return nil, err
	}
	var added []Change
	for _, namespace := range changes.Namespaces {
		added = append(added, Change{Kind: restv1.HintFindings, Namespace: namespace})
	}
	messaged, err := w.scannersOf(ctx, changes.Scanners)
	if err != nil {
		return nil, err
	}
	w.Log.Add(append(added, messaged...)...)
	return &changes.Position, nil
}

// scannersOf returns changes of the Scanners and ClusterScanners with these UIDs. Those that do not exist any more have no messages.
func (w *Watcher) scannersOf(ctx context.Context, uids []string) (changes []Change, err error) {
	if len(uids) == 0 {
		return nil, nil
	}
	with := map[string]bool{}
	for _, uid := range uids {
		with[uid] = true
	}
	var scanners v1alpha1.ScannerList
	if err := w.Reader.List(ctx, &scanners, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Scanners: %w", err)
	}
	for i := range scanners.Items {
		if with[string(scanners.Items[i].UID)] {
			changes = append(changes, Change{Kind: restv1.HintScanner, Namespace: scanners.Items[i].Namespace})
		}
	}
	var clusterScanners v1alpha1.ClusterScannerList
	if err := w.Reader.List(ctx, &clusterScanners, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ClusterScanners: %w", err)
	}
	for i := range clusterScanners.Items {
		if with[string(clusterScanners.Items[i].UID)] {
			changes = append(changes, Change{Kind: restv1.HintClusterScanner})
		}
	}
	return changes, nil
}
