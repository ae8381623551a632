package store

import (
	"context"
	"sync"
	"time"
)

// lastPresent is the key in the meta table of the time at which a process last had the store open.
const lastPresent = "last present"

// presence distinguishes what this process has recorded from what an earlier one recorded. While no process has the store open,
// ends of workloads go unnoticed. It is safe for concurrent use.
type presence struct {
	mu sync.Mutex
	// before is when the previous process last had the store open or led; zero if that is not known.
	before time.Time
	// seen are the row IDs of images with workloads that this process has recorded or confirmed.
	seen map[int64]bool
}

// begin starts the time in which this process records the uses, after the previous one last did.
func (p *presence) begin(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
}

// markPresent records that this process has the store open and leads now.
func (s *Store) markPresent(ctx context.Context, tx *session) error {
	return saveMeta(ctx, tx, lastPresent, s.now().UnixMilli())
}

// lastSeen returns when the recorded workloads of an image were last known to run, in case they no longer do.
func (s *Store) lastSeen(use recordedUsage) time.Time {
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

// confirm records that this process has confirmed an image's workloads, or that the image has none.
func (p *presence) confirm(image int64, workloads int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if workloads == 0 {
		delete(p.seen, image)
		return
	}
	p.seen[image] = true
}
