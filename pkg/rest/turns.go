package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// semaphore bounds concurrency.
type semaphore chan struct{}

// acquire waits for a slot. It returns busy if the context ends first.
func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return busy("too much is asked at once; come back later")
	}
}

// acquireSoon waits for at most turnTime, since its caller occupies a download slot meanwhile.
func (s semaphore) acquireSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	return s.acquire(ctx)
}

func (s semaphore) release() { <-s }

const (
	// turnTime is how long a request waits for a download slot, or to have a document made. It occupies a connection meanwhile, of which
	// there are few.
	turnTime = 5 * time.Second
	// slowTime is how long a reader may read slower than fairRate, in bytes per second, while others wait for a slot. It is shorter than
	// turnTime: even twice as many slow readers as there are slots keep nobody out.
	slowTime = 2 * time.Second
	fairRate = 256 << 10
	// fairTime is how long a response may be sent while others wait for the slot, however fast its reader is.
	fairTime = 30 * time.Second
	// writeTime is how long a reader may read nothing at all, whether others wait or not.
	writeTime = 30 * time.Second
	// roomInterval is how often a waiting request tries to free a slot.
	roomInterval = time.Second
)

// turns bounds concurrent downloads. A tenant has at most one. When all slots are taken, a waiting request aborts the download of a slow
// reader, or one that has been sent for longer than fairTime. So no group of readers can keep all others out.
type turns struct {
	slots    semaphore
	slowTime time.Duration
	mu       sync.Mutex
	held     map[string]*turn // by tenant
}

// turn is one tenant's download. It waits for a slot or has one.
type turn struct {
	turns  *turns
	tenant string
	over   chan struct{} // closed when the turn ends
	// end is the deadline of the request; zero for none.
	end time.Time
	// due is when the download may be aborted for a waiting request. It moves while the reader reads, up to latest. Both are zero while
	// nothing is being sent.
	due, latest time.Time
	setDeadline func(time.Time) error
	brokenOff   bool
}

func newTurns(n int) *turns {
	return &turns{slots: make(semaphore, n), held: map[string]*turn{}, slowTime: slowTime}
}

// tenantOf returns what counts as one caller: a user, or all ServiceAccounts of a namespace, since whoever may create one may create many.
func tenantOf(user string) string {
	account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	namespace, _, named := strings.Cut(account, ":")
	if !isAccount || !named {
		return user
	}
	return "the ServiceAccounts of the namespace " + namespace
}

// acquire waits for a turn, and before that for the end of another turn of the user's tenant. It returns busy after turnTime. The turn
// lasts until release is called, exactly once.
func (t *turns) acquire(ctx context.Context, user string) (*turn, error) {
	end, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	mine := &turn{turns: t, tenant: tenantOf(user), over: make(chan struct{}), end: end}
	for {
		before := t.enter(mine)
		if before == nil {
			break
		}
		select {
		case <-before.over:
		case <-ctx.Done():
			return nil, busy(mine.tenant + " downloads something else, and only one thing at a time can be; come back when it is done")
		}
	}
	if err := t.takeSlot(ctx); err != nil {
		t.leave(mine)
		return nil, err
	}
	return mine, nil
}

// takeSlot waits for a slot, in the order of arrival. While all slots are taken, it frees those of slow readers.
func (t *turns) takeSlot(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	default:
	}
	t.makeRoom(time.Now())
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	// This runs beside the wait: a wait that is interrupted would go back to the end of the queue.
	go t.keepMakingRoom(waiting)
	return t.slots.acquire(ctx)
}

// keepMakingRoom calls makeRoom at each roomInterval until the context ends.
func (t *turns) keepMakingRoom(waiting context.Context) {
	ticker := time.NewTicker(roomInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if waiting.Err() == nil {
				t.makeRoom(time.Now())
			}
		case <-waiting.Done():
			return
		}
	}
}

// makeRoom aborts the download that was due first, if one is due.
func (t *turns) makeRoom(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slowest *turn
	for _, held := range t.held {
		if !held.due.IsZero() && !held.due.After(now) && (slowest == nil || held.due.Before(slowest.due)) {
			slowest = held
		}
	}
	if slowest != nil {
		slowest.due, slowest.brokenOff = time.Time{}, true
		// A write that waits for its reader fails at once. Writers without a connection have no deadline, and cannot be slow.
		_ = slowest.setDeadline(time.Unix(1, 0))
	}
}

// enter registers a tenant's turn. If the tenant has one already, enter returns that turn and changes nothing.
func (t *turns) enter(mine *turn) (before *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.held[mine.tenant]; before != nil {
		return before
	}
	t.held[mine.tenant] = mine
	return nil
}

func (t *turns) leave(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(mine.over)
	mine.due = time.Time{}
	delete(t.held, mine.tenant)
}

// sends returns the writer for the turn's response, for use until release. The time of the reader starts now.
func (t *turn) sends(w http.ResponseWriter) io.Writer {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	now := time.Now()
	t.due, t.latest = now.Add(t.turns.slowTime), now.Add(fairTime)
	t.setDeadline = http.NewResponseController(w).SetWriteDeadline
	return sending{w, t}
}

// sending writes a response for as long as its turn lasts.
type sending struct {
	to   io.Writer
	turn *turn
}

// Write implements io.Writer.
func (s sending) Write(p []byte) (int, error) {
	if err := s.turn.writes(); err != nil {
		return 0, err
	}
	n, err := s.to.Write(p)
	s.turn.took(n)
	return n, err
}

var errMadeWay = errors.New("its reader was slow, and others waited")

// writes sets the deadline of the next write. It returns errMadeWay if the download was aborted.
func (t *turn) writes() error {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.brokenOff {
		return errMadeWay
	}
	deadline := time.Now().Add(writeTime)
	if !t.end.IsZero() {
		deadline = earliest(deadline, t.end)
	}
	_ = t.setDeadline(deadline)
	return nil
}

// took records how much the reader has read. Network buffers take much at once, which counts for no more than slowTime.
func (t *turn) took(n int) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if !t.due.IsZero() {
		paid := t.due.Add(time.Duration(n) * time.Second / fairRate)
		t.due = earliest(paid, earliest(time.Now().Add(t.turns.slowTime), t.latest))
	}
}

func earliest(x, y time.Time) time.Time {
	if x.Before(y) {
		return x
	}
	return y
}

// release ends the turn.
func (t *turn) release() {
	t.turns.leave(t)
	t.turns.slots.release()
}
