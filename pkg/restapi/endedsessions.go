package restapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// Bounds of the sessions that were signed out.
	maxEndedSessions         = 4096
	maxEndedSessionsOfTenant = 64
	// endedSessionsTTL is how long a replica accepts a copy of the cookies of a session that another one has signed out.
	endedSessionsTTL = 5 * time.Second
)

// endedSessions are the sessions that were signed out on any replica and have not expired, by the hash of what their cookies encode: a text in base64
// has several forms. They are in the store. Their methods are safe for concurrent use.
type endedSessions struct {
	store interface {
		EndSession(ctx context.Context, e store.EndedSession, maxOfTenant, maxOfAll int) error
		EndedSessions(ctx context.Context) ([]string, error)
	}
	clock clock.PassiveClock

	mu     sync.Mutex
	known  map[string]struct{}
	readAt time.Time
	// added counts the sessions that were signed out here: what was read before one does not have it.
	added int
}

func hashOfCookies(sealed []byte) string {
	sum := sha256.Sum256(sealed)
	return hex.EncodeToString(sum[:])
}

func (e *endedSessions) add(ctx context.Context, sealed []byte, tenant string, expires time.Time) error {
	err := e.store.EndSession(ctx, store.EndedSession{Hash: hashOfCookies(sealed), Tenant: tenant, ExpiresAt: expires}, maxEndedSessionsOfTenant, maxEndedSessions)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readAt = time.Time{}
	e.added++
	return err
}

func (e *endedSessions) has(ctx context.Context, sealed []byte) (bool, error) {
	e.mu.Lock()
	known, isNew, added := e.known, e.clock.Since(e.readAt) < endedSessionsTTL, e.added
	e.mu.Unlock()
	if !isNew {
		now := e.clock.Now()
		hashes, err := e.store.EndedSessions(ctx)
		if err != nil {
			return false, err
		}
		known = make(map[string]struct{}, len(hashes))
		for _, hash := range hashes {
			known[hash] = struct{}{}
		}
		e.mu.Lock()
		if e.added == added {
			e.known, e.readAt = known, now
		}
		e.mu.Unlock()
	}
	_, ended := known[hashOfCookies(sealed)]
	return ended, nil
}
