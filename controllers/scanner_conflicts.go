package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// conflictInterval is the requeue delay of a Scanner whose status has got the ID of another store. Without a delay, two operators would
// overwrite each other's status as fast as they can.
const conflictInterval = time.Minute

// conflictTimeout is how long another operator is reported after it was last detected. It is several times conflictInterval, the interval at which
// both write.
const conflictTimeout = 5 * conflictInterval

// storeChanged passes updates that replace the store ID in a Scanner's status.
var storeChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Scanner), e.ObjectNew.(*v1alpha1.Scanner)
		return before.Status.StoreID != "" && before.Status.StoreID != after.Status.StoreID
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// ownRequest returns the request of the object itself.
func ownRequest(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// instanceConflicts detects another operator in the cluster that works on the same Scanners: both write the ID of their store into the same status. No
// other sign is trusted: whoever controls a namespace can run pods that look like an operator, but cannot write a Scanner's status. The
// zero value is ready for use. It is safe for concurrent use.
type instanceConflicts struct {
	mu sync.Mutex
	// lastConflict has the time when another store's ID last replaced ours; zero if never. Scanners without an entry never had ours.
	lastConflict map[types.NamespacedName]time.Time
}

// recordWrite records that a Scanner's status has our store's ID.
func (r *instanceConflicts) recordWrite(scanner types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastConflict == nil {
		r.lastConflict = map[types.NamespacedName]time.Time{}
	}
	if _, known := r.lastConflict[scanner]; !known {
		r.lastConflict[scanner] = time.Time{}
	}
}

// remove drops a deleted Scanner.
func (r *instanceConflicts) remove(scanner types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lastConflict, scanner)
}

// detect reports whether another operator works on the Scanner. reader must not be a cache, which may still show the status from before our
// write.
func (r *instanceConflicts) detect(ctx context.Context, clock clock.PassiveClock, reader client.Reader, scanner *v1alpha1.Scanner, ours string) (bool, error) {
	name := client.ObjectKeyFromObject(scanner)
	r.mu.Lock()
	last, written := r.lastConflict[name]
	r.mu.Unlock()
	if written && hasOtherStoreID(scanner, ours) {
		var fresh v1alpha1.Scanner
		if err := reader.Get(ctx, name, &fresh); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if fresh.UID == scanner.UID && hasOtherStoreID(&fresh, ours) {
			last = clock.Now()
			r.mu.Lock()
			r.lastConflict[name] = last
			r.mu.Unlock()
		}
	}
	return !last.IsZero() && clock.Since(last) < conflictTimeout, nil
}

func hasOtherStoreID(scanner *v1alpha1.Scanner, ours string) bool {
	return scanner.Status.StoreID != "" && scanner.Status.StoreID != ours
}
