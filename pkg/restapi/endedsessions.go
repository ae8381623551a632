package restapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
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
	// endSessionTimeout bounds how long a session is being recorded.
	endSessionTimeout = 5 * time.Second
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
	// unsaved are sessions that were signed out here while the store was unavailable, by their hashes: no more than maxEndedSessions.
	unsaved map[string]store.EndedSession
}

func hashOfCookies(sealed []byte) string {
	sum := sha256.Sum256(sealed)
	return hex.EncodeToString(sum[:])
}

// add ends a session, also after its request was aborted. With an error, only this replica knows of it until the store has it.
func (e *endedSessions) add(ctx context.Context, sealed []byte, tenant string, expires time.Time) error {
	session := store.EndedSession{Hash: hashOfCookies(sealed), Tenant: tenant, ExpiresAt: expires}
	err := e.save(ctx, session)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readAt = time.Time{}
	e.added++
	if err != nil && len(e.unsaved) < maxEndedSessions {
		if e.unsaved == nil {
			e.unsaved = make(map[string]store.EndedSession)
		}
		e.unsaved[session.Hash] = session
	}
	return err
}

func (e *endedSessions) save(ctx context.Context, session store.EndedSession) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endSessionTimeout)
	defer cancel()
	return e.store.EndSession(ctx, session, maxEndedSessionsOfTenant, maxEndedSessions)
}

// saveUnsaved records what could not be recorded before, up to the first error.
func (e *endedSessions) saveUnsaved(ctx context.Context, unsaved map[string]store.EndedSession) error {
	for hash, session := range unsaved {
		if e.clock.Now().Before(session.ExpiresAt) {
			if err := e.save(ctx, session); err != nil {
				return err
			}
		}
		e.mu.Lock()
		delete(e.unsaved, hash)
		e.mu.Unlock()
	}
	return nil
}

func (e *endedSessions) has(ctx context.Context, sealed []byte) (bool, error) {
	hash := hashOfCookies(sealed)
	e.mu.Lock()
	known, isNew, added := e.known, e.clock.Since(e.readAt) < endedSessionsTTL, e.added
	unsaved := maps.Clone(e.unsaved)
	e.mu.Unlock()
	_, ended := unsaved[hash]
	if !isNew {
		now := e.clock.Now()
		err := e.saveUnsaved(ctx, unsaved)
		var hashes []string
		if err == nil {
			hashes, err = e.store.EndedSessions(ctx)
		}
		if ended {
			return true, nil
		}
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
	if !ended {
		_, ended = known[hash]
	}
	return ended, nil
}
