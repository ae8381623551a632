// Package budget enforces the storage budget of each namespace. All engines share it: whatever they store on behalf of a namespace counts
// together.
package budget

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

// usageTTL is how long a measured usage is cached. Hundreds of images of one namespace may be checked at once, and counting stored bytes is
// slow.
const usageTTL = 5 * time.Second

// Counter counts the bytes that are stored on behalf of a namespace.
type Counter interface {
	StoredBytes(ctx context.Context, namespace string) (int64, error)
}

// Budget is the storage budget that applies to each namespace. It is safe for concurrent use.
type Budget struct {
	store Counter
	clock clock.PassiveClock
	limit resource.Quantity

	mu       sync.Mutex
	measured map[string]measuredUsage
}

// measuredUsage is the measured usage of one namespace.
type measuredUsage struct {
	bytes int64
	at    time.Time
}

// New returns a Budget that allows each namespace limit bytes.
func New(store Counter, clock clock.PassiveClock, limit resource.Quantity) *Budget {
	return &Budget{store: store, clock: clock, limit: limit, measured: map[string]measuredUsage{}}
}

// Exceeded returns the failure for a new image of a namespace that has used up its budget, or nil if space is left. Errors are those of
// the Counter.
func (b *Budget) Exceeded(ctx context.Context, namespace string) (*backend.Failure, error) {
	used, err := b.storedBytes(ctx, namespace)
	if err != nil || used < b.limit.Value() {
		return nil, err
	}
	return &backend.Failure{Reason: v1alpha1.ReasonStoreBudgetExceeded, Message: fmt.Sprintf("the SBOMs and findings of this namespace's images take %s of the %s that they may have in the operator's store: "+
		"exclude images, have fewer of them, or raise ingest.storeSizePerNamespace in the operator's configuration",
		resource.NewQuantity(used, resource.BinarySI), b.limit.String())}, nil
}

// storedBytes returns the bytes stored for a namespace, cached for the time in memory. Counting for one namespace does not block the others.
func (b *Budget) storedBytes(ctx context.Context, namespace string) (int64, error) {
	if known, found := b.cachedBytes(namespace); found {
		return known, nil
	}
	now := b.clock.Now()
	bytes, err := b.store.StoredBytes(ctx, namespace)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, then := range b.measured {
		if !then.isFresh(now) {
			delete(b.measured, other)
		}
	}
	b.measured[namespace] = measuredUsage{bytes: bytes, at: now}
	return bytes, nil
}

func (b *Budget) cachedBytes(namespace string) (bytes int64, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	then, found := b.measured[namespace]
	return then.bytes, found && then.isFresh(b.clock.Now())
}

// isFresh reports whether the measurement is recent enough. A negative age means that the clock was set back: the measurement is then stale.
func (s measuredUsage) isFresh(now time.Time) bool {
	age := now.Sub(s.at)
	return age >= 0 && age < usageTTL
}
