package grype

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

// roomMemory is how long it counts what a namespace had stored: hundreds of its images may ask at once, and adding up takes a while.
const roomMemory = 5 * time.Second

// roomMemo remembers how many bytes are stored on behalf of each namespace.
type roomMemo struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	known map[string]storedThen
}

type storedThen struct {
	bytes int64
	at    time.Time
}

// stored is what count says of a namespace, or said a moment ago. No other namespace waits while it is counted.
func (m *roomMemo) stored(namespace string, count func() (int64, error)) (int64, error) {
	if known, found := m.recent(namespace); found {
		return known, nil
	}
	now := m.clock.Now()
	bytes, err := count()
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, then := range m.known {
		if !then.counts(now) {
			delete(m.known, other)
		}
	}
	if m.known == nil {
		m.known = map[string]storedThen{}
	}
	m.known[namespace] = storedThen{bytes: bytes, at: now}
	return bytes, nil
}

func (m *roomMemo) recent(namespace string) (bytes int64, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	then, found := m.known[namespace]
	return then.bytes, found && then.counts(m.clock.Now())
}

// counts says that it was a moment ago, by a clock that has not been put back since.
func (s storedThen) counts(now time.Time) bool {
	age := now.Sub(s.at)
	return age >= 0 && age < roomMemory
}

// noRoom is the failure of an image of a namespace that has used up its room in the store: what a Job would bring is refused. It is nil if
// there is room.
func (b *Backend) noRoom(ctx context.Context, img backend.Image) (*backend.Failure, error) {
	budget := b.Config.Ingest.StoreSizePerNamespace
	used, err := b.room.stored(img.Namespace, func() (int64, error) { return b.Store.StoredBytes(ctx, img.Namespace) })
	if err != nil || used < budget.Value() {
		return nil, err
	}
	return &backend.Failure{Reason: v1alpha1.ReasonStoreBudgetExceeded, Message: fmt.Sprintf("the SBOMs and findings of this namespace's images take %s of the %s that they may have in the operator's store: "+
		"exclude images, have fewer of them, or raise ingest.storeSizePerNamespace in the operator's configuration", inBytes(used), budget.String())}, nil
}
