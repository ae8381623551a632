package restapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/kubeauth"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

const (
	// slotWait is how long a request waits for a download slot, or to have a document made. It occupies a connection meanwhile, of which
	// there are few.
	slotWait = 5 * time.Second
	// slowGrace is how long a reader may read slower than minRate, in bytes per second, while others wait for a slot. It is shorter than
	// slotWait: even twice as many slow readers as there are slots keep nobody out.
	slowGrace = 2 * time.Second
	minRate   = 256 << 10
	// fairShareTime is how long a response may be sent while others wait for the slot, however fast its reader is. exportShareTime is the same for
	// lists, which must be read from the store meanwhile.
	fairShareTime   = 30 * time.Second
	exportShareTime = 2 * time.Minute
	// stallTimeout is how long a reader may read nothing at all, whether others wait or not.
	stallTimeout = 30 * time.Second
	// abortInterval is how often a waiting request tries to free a slot.
	abortInterval = time.Second
)

// downloadSlots bounds concurrent downloads. A tenant has at most one. When all slots are taken, a waiting request aborts the download of a slow
// reader, or one that has been sent for longer than fairShare. So no group of readers can keep all others out.
type downloadSlots struct {
	slots                *limits.Pool
	slowGrace, fairShare time.Duration
	mu                   sync.Mutex
	byTenant             map[string]*downloadSlot // by tenant
}

// downloadSlot is one tenant's download. It waits for a slot or has one.
type downloadSlot struct {
	pool     *downloadSlots
	tenant   string
	leave    func()        // ends the slot
	released chan struct{} // closed by unregister
	// deadline is the deadline of the request; zero for none.
	deadline time.Time
	// abortAfter is when the download may be aborted for a waiting request. It moves while the reader reads, up to latestAbort. Both are zero
	// while nothing is being sent.
	abortAfter, latestAbort time.Time
	// idleSince is since when no write waits for the reader, who is not slow then; zero while one does.
	idleSince   time.Time
	setDeadline func(time.Time) error
	aborted     bool
}

func newDownloadSlots(n int, fairShare time.Duration) *downloadSlots {
	return &downloadSlots{slots: limits.NewPool(n), byTenant: map[string]*downloadSlot{}, slowGrace: slowGrace, fairShare: fairShare}
}

// acquire waits until the user's tenant has no other download, and then for a slot. After slotWait it returns a 503 problem (unavailable). The
// caller must release the slot exactly once.
func (t *downloadSlots) acquire(ctx context.Context, user string) (*downloadSlot, error) {
	end, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	mine := &downloadSlot{pool: t, tenant: kubeauth.TenantOf(user), released: make(chan struct{}), deadline: end}
	for {
		before := t.register(mine)
		if before == nil {
			break
		}
		select {
		case <-before.released:
		case <-ctx.Done():
			return nil, unavailable(mine.tenant + " has another download, and only one at a time is allowed; retry when it is complete")
		}
	}
	leave, err := t.takeSlot(ctx, mine.tenant)
	if err != nil {
		t.unregister(mine)
		return nil, err
	}
	mine.leave = leave
	return mine, nil
}

// takeSlot waits for a slot, in the order of arrival. While all slots are taken, it frees those of slow readers.
func (t *downloadSlots) takeSlot(ctx context.Context, tenant string) (leave func(), err error) {
	if t.slots.IsFull() {
		t.abortSlowest(time.Now())
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	// This runs beside the wait: a wait that is interrupted would go back to the end of the queue.
	go t.keepFreeingSlots(waiting)
	return t.slots.Acquire(ctx, tenant)
}

// keepFreeingSlots calls abortSlowest at each abortInterval until the context ends.
func (t *downloadSlots) keepFreeingSlots(waiting context.Context) {
	ticker := time.NewTicker(abortInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if waiting.Err() == nil {
				t.abortSlowest(time.Now())
			}
		case <-waiting.Done():
			return
		}
	}
}

// abortSlowest aborts the download that was due first, if one is due.
func (t *downloadSlots) abortSlowest(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slowest *downloadSlot
	var earliest time.Time
	for _, held := range t.byTenant {
		if held.aborted {
			// The end of a TLS connection is written too, for which crypto/tls sets a new deadline of five seconds.
			_ = held.setDeadline(time.Unix(1, 0))
			continue
		}
		if due := held.due(); !due.IsZero() && !due.After(now) && (slowest == nil || due.Before(earliest)) {
			slowest, earliest = held, due
		}
	}
	if slowest != nil {
		slowest.abortAfter, slowest.aborted = time.Time{}, true
		// A write that waits for its reader fails at once. Writers without a connection have no deadline, and cannot be slow.
		_ = slowest.setDeadline(time.Unix(1, 0))
	}
}

// due returns when the download may be aborted for a waiting request; zero if it may not be.
func (t *downloadSlot) due() time.Time {
	if t.abortAfter.IsZero() || t.idleSince.IsZero() {
		return t.abortAfter
	}
	return t.latestAbort
}

// register registers a tenant's download. If the tenant has one already, register returns that one and changes nothing.
func (t *downloadSlots) register(mine *downloadSlot) (before *downloadSlot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.byTenant[mine.tenant]; before != nil {
		return before
	}
	t.byTenant[mine.tenant] = mine
	return nil
}

func (t *downloadSlots) unregister(mine *downloadSlot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(mine.released)
	mine.abortAfter = time.Time{}
	delete(t.byTenant, mine.tenant)
}

// writer returns the writer for the download's response, for use until release. fairShare starts now, and the time of the reader with each write.
func (t *downloadSlot) writer(w http.ResponseWriter) io.Writer {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	now := time.Now()
	t.abortAfter, t.latestAbort, t.idleSince = now.Add(t.pool.slowGrace), now.Add(t.pool.fairShare), now
	t.setDeadline = http.NewResponseController(w).SetWriteDeadline
	return slotWriter{w, t}
}

// slotWriter writes a response until its download is aborted.
type slotWriter struct {
	to   io.Writer
	slot *downloadSlot
}

// Write implements io.Writer.
func (s slotWriter) Write(p []byte) (int, error) {
	if err := s.slot.beforeWrite(); err != nil {
		return 0, err
	}
	n, err := s.to.Write(p)
	s.slot.afterWrite(n)
	return n, err
}

var errAborted = errors.New("its reader was slow, and others waited")

// beforeWrite sets the deadline of the next write. It returns errAborted if the download was aborted.
func (t *downloadSlot) beforeWrite() error {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if t.aborted {
		return errAborted
	}
	now := time.Now()
	if !t.abortAfter.IsZero() {
		t.abortAfter = earliestOf(t.abortAfter.Add(now.Sub(t.idleSince)), t.latestAbort)
	}
	t.idleSince = time.Time{}
	deadline := now.Add(stallTimeout)
	if !t.deadline.IsZero() && t.deadline.Before(deadline) {
		deadline = t.deadline
	}
	_ = t.setDeadline(deadline)
	return nil
}

// afterWrite records how much the reader has read. Network buffers take much at once, which counts for no more than slowGrace.
func (t *downloadSlot) afterWrite(n int) {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	now := time.Now()
	if !t.abortAfter.IsZero() {
		paid := t.abortAfter.Add(time.Duration(n) * time.Second / minRate)
		t.abortAfter = earliestOf(paid, now.Add(t.pool.slowGrace), t.latestAbort)
	}
	t.idleSince = now
}

func earliestOf(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// release ends the download and frees its slot.
func (t *downloadSlot) release() {
	t.pool.unregister(t)
	t.leave()
}
