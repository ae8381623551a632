package grype

import (
	"fmt"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// contacts remembers the last request of each match worker, by Job UID. It is empty after a restart of the manager.
type contacts struct {
	mu    sync.Mutex
	known map[string]contact
}

// contact is when a worker made its last request. If never is set, the worker made none, and at is when the Job loop first saw its Job.
type contact struct {
	at    time.Time
	never bool
}

// RecordContact records that a match worker made a request.
func (b *Backend) RecordContact(job store.Job) {
	b.contacts.mu.Lock()
	defer b.contacts.mu.Unlock()
	b.contacts.record(job, contact{at: b.Clock.Now()})
}

func (c *contacts) record(job store.Job, last contact) {
	if c.known == nil {
		c.known = map[string]contact{}
	}
	c.known[job.UID] = last
}

func (c *contacts) get(job store.Job, now time.Time) contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, found := c.known[job.UID]
	if !found {
		last = contact{at: now, never: true}
		c.record(job, last)
	}
	return last
}

func (c *contacts) remove(job store.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, job.UID)
}

// silentFailure returns the failure of a match worker that made no request for longer than a lease; nil for any other Job. A healthy worker
// requests leases at least once a minute, unless all its slots are matching, which takes no longer than a lease. While it installs a
// database, it reports that it is alive. A worker that made no request at all gets slowStartTimeout in addition, since it may have waited for
// its node.
func (b *Backend) silentFailure(record store.Job) *backend.Failure {
	if record.Purpose != store.JobMatch {
		return nil
	}
	limit := LeaseTime(b.Config.Grype.Match)
	last := b.contacts.get(record, b.Clock.Now())
	if last.never {
		limit += slowStartTimeout
	}
	if b.Clock.Since(last.at) <= limit {
		return nil
	}
	return &backend.Failure{Reason: backend.ReasonWorkerSilent, Message: fmt.Sprintf("the worker made no request for %s. It was ended, and another one goes on", limit)}
}
