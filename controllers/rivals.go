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

// rivalInterval is when to look again at a Scanner whose status has got the id of another store: at once, two operators would write in turn
// as fast as they can.
const rivalInterval = time.Minute

// rivalMemory is how long another operator is spoken of after it was last noticed: several times rivalInterval, by
// which both write.
const rivalMemory = 5 * rivalInterval

// storeChanged lets pass that the status of a Scanner has the id of another store than before.
var storeChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Scanner), e.ObjectNew.(*v1alpha1.Scanner)
		return before.Status.StoreID != "" && before.Status.StoreID != after.Status.StoreID
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// itself is an object's own request.
func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// rivals notices another operator in the cluster that works on the same Scanners: both write the id of their store
// into the same status. Nothing else is believed, since whoever controls a namespace can have pods there that look
// like an operator, but cannot write a Scanner's status. The zero value is ready for use.
type rivals struct {
	mu sync.Mutex
	// met is when another store's id stood last where ours was; zero if never. Scanners that have no entry never had ours.
	met map[types.NamespacedName]time.Time
}

// wrote notes that a Scanner's status has our store's id now.
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

// forget drops what is known of a Scanner that has gone.
func (r *rivals) forget(scanner types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.met, scanner)
}

// look says whether there is another operator. The reader must not be a cache: that may still show what was there
// before we wrote.
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
