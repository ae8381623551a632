package restapi

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Bounds of endedSessions: about 100 bytes each.
const (
	maxEndedSessions         = 4096
	maxEndedSessionsOfTenant = 64
)

// endedSessions are the sessions that were signed out and have not expired, by the hash of what their cookies encode: a text in base64 has several
// forms. They are those of one replica, since it started. A tenant that signs out of more than maxEndedSessionsOfTenant sessions makes room with its
// own, and beyond maxEndedSessions the tenant with the most does. The zero value is ready, and its methods are safe for concurrent use.
type endedSessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]endedSession
}

type endedSession struct {
	tenant      string
	at, expires time.Time
}

func (e *endedSessions) add(sealed []byte, tenant string, now, expires time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := sha256.Sum256(sealed)
	if _, known := e.all[key]; known {
		return
	}
	of := map[string]int{}
	for key, session := range e.all {
		if !now.Before(session.expires) {
			delete(e.all, key)
			continue
		}
		of[session.tenant]++
	}
	if of[tenant] >= maxEndedSessionsOfTenant {
		e.removeOldest(tenant)
	} else if len(e.all) >= maxEndedSessions {
		most := tenant
		for other, n := range of {
			if n > of[most] {
				most = other
			}
		}
		e.removeOldest(most)
	}
	if e.all == nil {
		e.all = map[[sha256.Size]byte]endedSession{}
	}
	e.all[key] = endedSession{tenant, now, expires}
}

// removeOldest removes the session of the tenant that ended first. The caller holds the lock.
func (e *endedSessions) removeOldest(tenant string) {
	var oldest [sha256.Size]byte
	var at time.Time
	for key, session := range e.all {
		if session.tenant == tenant && (at.IsZero() || session.at.Before(at)) {
			oldest, at = key, session.at
		}
	}
	delete(e.all, oldest)
}

func (e *endedSessions) has(sealed []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.all[sha256.Sum256(sealed)]
	return ended
}
