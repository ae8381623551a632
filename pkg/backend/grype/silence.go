package grype

import (
	"fmt"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// heard remembers when each match worker made its last request, by the UID of its Job. After a restart of the manager it begins anew.
type heard struct {
	mu    sync.Mutex
	known map[string]lastWord
}

// lastWord is when a worker was heard of last or, as long as it never was, when the Tender saw it first.
type lastWord struct {
	at    time.Time
	never bool
}

// Heard notes that a match worker has made a request.
func (b *Backend) Heard(job store.Job) {
	b.heard.mu.Lock()
	defer b.heard.mu.Unlock()
	b.heard.note(job, lastWord{at: b.Clock.Now()})
}

func (h *heard) note(job store.Job, word lastWord) {
	if h.known == nil {
		h.known = map[string]lastWord{}
	}
	h.known[job.UID] = word
}

func (h *heard) of(job store.Job, now time.Time) lastWord {
	h.mu.Lock()
	defer h.mu.Unlock()
	word, found := h.known[job.UID]
	if !found {
		word = lastWord{at: now, never: true}
		h.note(job, word)
	}
	return word
}

func (h *heard) forget(job store.Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, job.UID)
}

// silent is the failure of a match worker of which nothing has been heard for longer than a lease; nil for any other Job. A worker asks for
// work at least once in a minute, unless all that it can do at a time is being matched, which ends within a lease, and it says
// that it lives while it installs a database. One that was never heard of may have been waiting for its node.
func (b *Backend) silent(record store.Job) *backend.Failure {
	if record.Purpose != store.JobMatch {
		return nil
	}
	patience := LeaseTime(b.Config.Grype.Match)
	word := b.heard.of(record, b.Clock.Now())
	if word.never {
		patience += slowPatience
	}
	if b.Clock.Since(word.at) <= patience {
		return nil
	}
	return &backend.Failure{Reason: ReasonWorkerSilent, Message: fmt.Sprintf("nothing was heard of the worker for %s. It was ended, and another one goes on", patience)}
}
