package preflight

import (
	"context"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// This file owns the meaning of status.storeID, the ID of the store that has a Scanner's results. Only the ScannerReconciler writes the
// field. Unlike the rest of a status it is read again, since it is the only memory that outlives a lost store, and the only object that two
// operators both write:
//
//   - A Scanner with the ID of another store had its results in a store that was lost (HasOtherStore). The ScannerReconciler keeps the old
//     ID until each receiver has a state in the new store, which it reads from the store.
//   - A Scanner whose ID is replaced again and again is reconciled by another operator as well (InstanceConflicts).
//   - Before anything is written, a store on an ephemeral volume waits while a Scanner has the ID of one on a durable volume
//     (scannerOfOtherDurableStore).

// HasOtherStore reports whether a Scanner's results are in another store than that with the given ID.
func HasOtherStore(scanner v1alpha1.GenericScanner, storeID string) bool {
	return scanner.ScannerStatus().StoreID != "" && scanner.ScannerStatus().StoreID != storeID
}

// StoreIDReplaced passes updates that replace the store ID in a Scanner's status.
var StoreIDReplaced = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(v1alpha1.GenericScanner).ScannerStatus(), e.ObjectNew.(v1alpha1.GenericScanner).ScannerStatus()
		return before.StoreID != "" && before.StoreID != after.StoreID
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// ConflictInterval is the requeue delay of a Scanner whose status has got the ID of another store. Without a delay, two operators would
// overwrite each other's status as fast as they can.
const ConflictInterval = time.Minute

// ConflictTimeout is how long another operator is reported after it was last detected. It is several times ConflictInterval, the interval
// at which both write.
const ConflictTimeout = 5 * ConflictInterval

// InstanceConflicts detects another operator in the cluster that works on the same Scanners: both write the ID of their store into the same
// status. No other sign is trusted: whoever controls a namespace can run pods that look like an operator, but cannot write a Scanner's
// status. The zero value is ready for use. It is safe for concurrent use.
type InstanceConflicts struct {
	mu sync.Mutex
	// lastConflict has the time when another store's ID last replaced ours; zero if never. Scanners without an entry never had ours.
	lastConflict map[types.NamespacedName]time.Time
}

// RecordWrite records a status that is in the API server: the Scanner may have the given store's ID.
func (c *InstanceConflicts) RecordWrite(scanner v1alpha1.GenericScanner, storeID string) {
	if scanner.ScannerStatus().StoreID != storeID {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastConflict == nil {
		c.lastConflict = map[types.NamespacedName]time.Time{}
	}
	name := client.ObjectKeyFromObject(scanner)
	if _, known := c.lastConflict[name]; !known {
		c.lastConflict[name] = time.Time{}
	}
}

// Remove drops a deleted Scanner.
func (c *InstanceConflicts) Remove(scanner types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lastConflict, scanner)
}

// Detect reports whether another operator than that with the given store works on the Scanner. reader must not be a cache, which may still
// show the status from before our write.
func (c *InstanceConflicts) Detect(ctx context.Context, now time.Time, reader client.Reader, scanner v1alpha1.GenericScanner, storeID string) (bool, error) {
	name := client.ObjectKeyFromObject(scanner)
	c.mu.Lock()
	last, written := c.lastConflict[name]
	c.mu.Unlock()
	if written && HasOtherStore(scanner, storeID) {
		fresh := scanner.DeepCopyObject().(v1alpha1.GenericScanner)
		if err := reader.Get(ctx, name, fresh); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if fresh.GetUID() == scanner.GetUID() && HasOtherStore(fresh, storeID) {
			last = now
			c.mu.Lock()
			c.lastConflict[name] = last
			c.mu.Unlock()
		}
	}
	return !last.IsZero() && now.Sub(last) < ConflictTimeout, nil
}

// scannerOfOtherDurableStore returns the name of a Scanner whose results are in another store, on a volume that outlives pods; empty if
// there is none. A namespace that may not be read is left out.
func scannerOfOtherDurableStore(ctx context.Context, reader client.Reader, namespaces []string, storeID string) (string, error) {
	var all []v1alpha1.GenericScanner
	for _, namespace := range namespaces {
		var scanners v1alpha1.ScannerList
		err := reader.List(ctx, &scanners, client.InNamespace(namespace))
		if err != nil && !apierrors.IsForbidden(err) {
			return "", err
		}
		for i := range scanners.Items {
			all = append(all, &scanners.Items[i])
		}
	}
	var clusterWide v1alpha1.ClusterScannerList
	if err := reader.List(ctx, &clusterWide); err != nil && !apierrors.IsForbidden(err) {
		return "", err
	}
	for i := range clusterWide.Items {
		all = append(all, &clusterWide.Items[i])
	}
	for _, scanner := range all {
		status := scanner.ScannerStatus()
		if status.StoreID != storeID && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStoreDurable) {
			return strings.TrimPrefix(client.ObjectKeyFromObject(scanner).String(), "/"), nil
		}
	}
	return "", nil
}
