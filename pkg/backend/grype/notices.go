package grype

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Every replica of the manager serves the ingest API, and only the leader looks after Jobs. These are the kinds of notices by which it learns what
// workers reported to another replica. What is essential is in the store already.
const (
	noticeCataloged  = "grype/cataloged"   // subject: the image's digest
	noticeContact    = "grype/contact"     // subject: the UID of a match worker's Job
	noticeOverBudget = "grype/over-budget" // subject: namespace/name of a catalog Job
	noticeDatabase   = "grype/database"    // content: a workerapi.DatabaseStatus without what was installed
)

// contactInterval is how often a contact of one match worker is passed on. It is much shorter than the silence after which a worker is given up.
const contactInterval = 10 * time.Second

// handleNotices sets what the leader does about the notices.
func (b *Backend) handleNotices() {
	b.relay.Handle(noticeCataloged, func(ctx context.Context, digest, _ string) {
		b.Wake(ctx, digest)
		b.requestJobRun()
	})
	b.relay.Handle(noticeContact, func(_ context.Context, uid, _ string) { b.contacts.Store(uid, contact{at: b.Clock.Now()}) })
	b.relay.Handle(noticeOverBudget, func(_ context.Context, job, _ string) { b.requests.recordOverBudget(job) })
	b.relay.Handle(noticeDatabase, func(_ context.Context, _, content string) {
		var status workerapi.DatabaseStatus
		if err := json.Unmarshal([]byte(content), &status); err == nil {
			b.recordRefusal(status)
		}
	})
}

// RecordCatalog has the leader wake the ImageScans of an image that was cataloged, and start match workers.
func (b *Backend) RecordCatalog(ctx context.Context, job store.Job) {
	b.relay.Send(ctx, noticeCataloged, job.Key.Digest, "")
}

// RecordOverBudget has the leader record that the result of a catalog Job did not fit into its namespace's storage budget.
func (b *Backend) RecordOverBudget(ctx context.Context, job store.Job) {
	b.relay.Send(ctx, noticeOverBudget, job.Namespace+"/"+job.Name, "")
}

// RecordContact has the leader record that a match worker made a request.
func (b *Backend) RecordContact(ctx context.Context, job store.Job) {
	if b.relayed.isDue(job.UID, b.Clock.Now()) || b.relay.Leads() {
		b.relay.Send(ctx, noticeContact, job.UID, "")
	}
}

// relayTimes are when the contacts of match workers were last passed on, by Job UID.
type relayTimes struct {
	mu sync.Mutex
	at map[string]time.Time
}

// maxRelayTimes bounds the memory of relayTimes: there are a few match workers at a time. To forget one costs a notice.
const maxRelayTimes = 1000

// isDue reports whether a contact is to be passed on again, and expects that it is.
func (r *relayTimes) isDue(uid string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, known := r.at[uid]; known && now.Sub(last) < contactInterval {
		return false
	}
	if r.at == nil || len(r.at) >= maxRelayTimes {
		r.at = map[string]time.Time{}
	}
	r.at[uid] = now
	return true
}

// recordStatus records whether a match worker could install the newest database: here, since this replica must not offer the same build again, and on
// the leader, which says so to the users.
func (b *Backend) recordStatus(ctx context.Context, status workerapi.DatabaseStatus) {
	changed := b.recordRefusal(status)
	if b.relay.Leads() || !changed && status.Error == "" {
		return
	}
	status.Installed = nil
	content, err := json.Marshal(status)
	if err != nil {
		b.Log.Error(err, "Passing on the status of a match worker's database")
		return
	}
	b.relay.Send(ctx, noticeDatabase, "", string(content))
}
