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

// semaphore bounds how many do something at once.
type semaphore chan struct{}

// acquire waits for its turn; busy if that does not come in time.
func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return busy("too much is asked at once; come back later")
	}
}

// acquireSoon waits no longer than turnTime: who waits has a slot for downloads already.
func (s semaphore) acquireSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	return s.acquire(ctx)
}

func (s semaphore) release() { <-s }

const (
	// turnTime is how long a caller waits for a turn of what lasts. Who waits has a connection, of which there are few.
	turnTime = 5 * time.Second
	// slowTime is how long a reader may take less than fairRate, in bytes per second, while others wait for a slot. It ends within
	// their turnTime, so that twice as many slow readers as there are slots keep nobody out.
	slowTime = 2 * time.Second
	fairRate = 256 << 10
	// fairTime is how long an answer may be sent while others wait for the slot, however fast its reader is.
	fairTime = 30 * time.Second
	// writeTime is how long a reader may take nothing at all, whether others wait or not.
	writeTime = 30 * time.Second
	// roomInterval is how often who waits for a slot tries to make room.
	roomInterval = time.Second
)

// turns are for what lasts. A tenant has one of them at most, and when all slots are taken, a slow reader makes way, as does who has been
// sending for longer than fairTime: nobody keeps all others out.
type turns struct {
	slots    semaphore
	slowTime time.Duration
	mu       sync.Mutex
	held     map[string]*turn // by tenant
}

// turn is what one tenant waits for or has.
type turn struct {
	turns  *turns
	tenant string
	over   chan struct{} // closed at its end
	// end is when the request must have its answer; zero for never.
	end time.Time
	// due is from when on it makes way for who waits, unless its reader takes more before, and latest is the last such time. Both are zero
	// while its answer is not sent.
	due, latest time.Time
	setDeadline func(time.Time) error
	brokenOff   bool
}

func newTurns(n int) *turns {
	return &turns{slots: make(semaphore, n), held: map[string]*turn{}, slowTime: slowTime}
}

// tenantOf is who counts as one caller: a user, or all ServiceAccounts of a namespace, since whoever may make one may make many.
func tenantOf(user string) string {
	account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	namespace, _, named := strings.Cut(account, ":")
	if !isAccount || !named {
		return user
	}
	return "the ServiceAccounts of the namespace " + namespace
}

// acquire waits for a turn, until which one that the user's tenant has must end; busy if it does not come soon. The turn lasts until
// release is called, once.
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

// takeSlot waits for a slot, in the order of arrival. If all are taken, slow readers make way meanwhile.
func (t *turns) takeSlot(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	default:
	}
	t.makeRoom(time.Now())
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	// Beside the wait: whoever interrupts it goes back to the end of the queue.
	go t.keepMakingRoom(waiting)
	return t.slots.acquire(ctx)
}

// keepMakingRoom tries again and again until the context ends.
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

// makeRoom breaks off the answer that was first due to make way.
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

// enter notes that a tenant waits or has a turn. If that is so already, it returns that turn.
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

// sends returns what the turn's answer is written to from now on, until release.
func (t *turn) sends(w http.ResponseWriter) io.Writer {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	now := time.Now()
	t.due, t.latest = now.Add(t.turns.slowTime), now.Add(fairTime)
	t.setDeadline = http.NewResponseController(w).SetWriteDeadline
	return sending{w, t}
}

// sending writes an answer for as long as its turn lasts.
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

// writes gives the next write its time.
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

// took notes what the reader took. Buffers of the network take much at once, which counts for no more than slowTime.
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
