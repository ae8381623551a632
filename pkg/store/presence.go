package store

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// lastPresent is the name in meta of the time at which a process last had the store open.
const lastPresent = "last present"

// presence tells what was recorded by this process from what an earlier one recorded. While no process had the store open, nobody saw
// workloads end. Safe for concurrent use.
type presence struct {
	// before is when the process before this one was last present; zero if that is not known. It is set when the store is opened.
	before time.Time
	mu     sync.Mutex
	// seen are the ids of images with workloads that this process has recorded or found recorded.
	seen map[int64]bool
}

// readPresence notes when the process before this one was last present.
func (s *SQLite) readPresence(ctx context.Context) error {
	at, err := readMeta(ctx, s.reader, lastPresent)
	if at != 0 {
		s.presence.before = time.UnixMilli(at).UTC()
	}
	return err
}

// markPresent notes that this process is there.
func (s *SQLite) markPresent(ctx context.Context, tx *sql.Tx) error {
	return saveMeta(ctx, tx, lastPresent, s.now().UnixMilli())
}

// lastSeen is when the recorded workloads of an image were last known to run, if they no longer do.
func (s *SQLite) lastSeen(use imageUse) time.Time {
	p := &s.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.seen[use.id] || p.before.IsZero():
		return s.now()
	case p.before.Before(use.recordedAt):
		return use.recordedAt
	}
	return earlierTime(p.before, s.now())
}

// see notes that this process has recorded an image's workloads, or that there are none.
func (p *presence) see(image int64, workloads int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if workloads == 0 {
		delete(p.seen, image)
		return
	}
	if p.seen == nil {
		p.seen = map[int64]bool{}
	}
	p.seen[image] = true
}
