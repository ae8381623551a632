package grype

import (
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// contact is when a worker made its last request. If never is set, the worker made none, and at is when the Job loop first saw its Job.
type contact struct {
	at    time.Time
	never bool
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
	known, _ := b.contacts.LoadOrStore(record.UID, contact{at: b.Clock.Now(), never: true})
	last := known.(contact)
	if last.never {
		limit += slowStartTimeout
	}
	if b.Clock.Since(last.at) <= limit {
		return nil
	}
	return &backend.Failure{Reason: backend.ReasonWorkerSilent, Message: fmt.Sprintf("the worker made no request for %s. It was ended, and another one goes on", limit)}
}
