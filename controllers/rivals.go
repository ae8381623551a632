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

// rivalInterval is the requeue delay of a Scanner whose status has got the ID of another store. Without a delay, two operators would
// overwrite each other's status as fast as they can.
const rivalInterval = time.Minute

// rivalMemory is how long another operator is reported after it was last detected. It is several times rivalInterval, the interval at which
// both write.
const rivalMemory = 5 * rivalInterval

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

// itself returns the request of the object itself.
func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// rivals detects another operator in the cluster that works on the same Scanners: both write the ID of their store into the same status. No
// other sign is trusted: whoever controls a namespace can run pods that look like an operator, but cannot write a Scanner's status. The
// zero value is ready for use. It is safe for concurrent use.
type rivals struct {
	mu sync.Mutex
	// met has the time when another store's ID last replaced ours; zero if never. Scanners without an entry never had ours.
	met map[types.NamespacedName]time.Time
}

// wrote records that a Scanner's status has our store's ID.
func (r *rivals) wrote(scanner types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.met == nil {
		r.met = map[types.NamespacedName]time.Time{}
	}
	if _, known := r.met[scanner]; !known {
		r.met[scanner] = time.Time{}
	}
}

// forget drops a deleted Scanner.
func (r *rivals) forget(scanner types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.met, scanner)
}

// look reports whether another operator works on the Scanner. reader must not be a cache, which may still show the status from before our
// write.
func (r *rivals) look(ctx context.Context, clock clock.PassiveClock, reader client.Reader, scanner *v1alpha1.Scanner, ours string) (bool, error) {
	name := client.ObjectKeyFromObject(scanner)
	r.mu.Lock()
	last, written := r.met[name]
	r.mu.Unlock()
	if written && ofAnotherStore(scanner, ours) {
		var fresh v1alpha1.Scanner
		if err := reader.Get(ctx, name, &fresh); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if fresh.UID == scanner.UID && ofAnotherStore(&fresh, ours) {
			last = clock.Now()
			r.mu.Lock()
			r.met[name] = last
			r.mu.Unlock()
		}
	}
	return !last.IsZero() && clock.Since(last) < rivalMemory, nil
}

func ofAnotherStore(scanner *v1alpha1.Scanner, ours string) bool {
	return scanner.Status.StoreID != "" && scanner.Status.StoreID != ours
}
