// Package room says which namespaces have used up their room in the store. It is the same for all engines: what they store on behalf of a
// namespace counts together.
package room

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// memory is how long it counts what a namespace had stored: hundreds of its images may ask at once, and adding up takes a while.
const memory = 5 * time.Second

// Counter counts the bytes that are stored on behalf of a namespace.
type Counter interface {
	StoredBytes(ctx context.Context, namespace string) (int64, error)
}

// Budget is what each namespace may have in the store. Its methods may be called at the same time.
type Budget struct {
	store Counter
	clock clock.PassiveClock
	limit resource.Quantity

	mu    sync.Mutex
	known map[string]storedThen
}

// storedThen is what a namespace had stored at a time.
type storedThen struct {
	bytes int64
	at    time.Time
}

// NewBudget returns the budget of each namespace: limit bytes.
func NewBudget(store Counter, clock clock.PassiveClock, limit resource.Quantity) *Budget {
	return &Budget{store: store, clock: clock, limit: limit, known: map[string]storedThen{}}
}

// Exceeded is the failure of a new image of a namespace that has used up its budget; nil if there is room. Errors are the store's.
func (b *Budget) Exceeded(ctx context.Context, namespace string) (*backend.Failure, error) {
	used, err := b.stored(ctx, namespace)
	if err != nil || used < b.limit.Value() {
		return nil, err
	}
	return &backend.Failure{Reason: v1alpha1.ReasonStoreBudgetExceeded, Message: fmt.Sprintf("the SBOMs and findings of this namespace's images take %s of the %s that they may have in the operator's store: "+
		"exclude images, have fewer of them, or raise ingest.storeSizePerNamespace in the operator's configuration",
		resource.NewQuantity(used, resource.BinarySI), b.limit.String())}, nil
}

// stored is what is stored of a namespace, or was a moment ago. No other namespace waits while it is counted.
func (b *Budget) stored(ctx context.Context, namespace string) (int64, error) {
	if known, found := b.recent(namespace); found {
		return known, nil
	}
	now := b.clock.Now()
	bytes, err := b.store.StoredBytes(ctx, namespace)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, then := range b.known {
		if !then.counts(now) {
			delete(b.known, other)
		}
	}
	b.known[namespace] = storedThen{bytes: bytes, at: now}
	return bytes, nil
}

func (b *Budget) recent(namespace string) (bytes int64, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	then, found := b.known[namespace]
	return then.bytes, found && then.counts(b.clock.Now())
}

// counts says that it was a moment ago, by a clock that has not been put back since.
func (s storedThen) counts(now time.Time) bool {
	age := now.Sub(s.at)
	return age >= 0 && age < memory
}
