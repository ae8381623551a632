package rest

import (
	"context"
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
	// fairTime is how long an answer may be sent while others wait for the slot. A reader that is slower makes way.
	fairTime = 30 * time.Second
	// roomInterval is how often who waits for a slot tries to make room.
	roomInterval = time.Second
)

// turns are for what lasts. A tenant has one of them at most, and when all slots are taken, who has been sending for longer than
// fairTime makes way: nobody keeps all others out.
type turns struct {
	slots semaphore
	mu    sync.Mutex
	held  map[string]*turn // by tenant
}

// turn is what one tenant waits for or has.
type turn struct {
	turns  *turns
	tenant string
	over   chan struct{} // closed at its end
	// since is when its answer began to be sent, and breakOff ends that; nil before and after.
	since    time.Time
	breakOff func()
}

func newTurns(n int) *turns {
	return &turns{slots: make(semaphore, n), held: map[string]*turn{}}
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
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	mine := &turn{turns: t, tenant: tenantOf(user), over: make(chan struct{})}
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

// takeSlot waits for a slot, and has a slow reader make way if all are taken.
func (t *turns) takeSlot(ctx context.Context) error {
	ticker := time.NewTicker(roomInterval)
	defer ticker.Stop()
	for {
		select {
		case t.slots <- struct{}{}:
			return nil
		default:
			t.makeRoom(time.Now())
		}
		select {
		case t.slots <- struct{}{}:
			return nil
		case <-ticker.C:
		case <-ctx.Done():
			return busy("too much is asked at once; come back later")
		}
	}
}

// makeRoom breaks off what has been sent for the longest time, if that is longer than fairTime.
func (t *turns) makeRoom(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slowest *turn
	for _, held := range t.held {
		if held.breakOff != nil && now.Sub(held.since) >= fairTime && (slowest == nil || held.since.Before(slowest.since)) {
			slowest = held
		}
	}
	if slowest != nil {
		slowest.breakOff()
		slowest.breakOff = nil
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
	mine.breakOff = nil
	delete(t.held, mine.tenant)
}

// sends says that the turn's answer is sent from now on, and how that is broken off: by something that returns at once and may be called
// until release.
func (t *turn) sends(breakOff func()) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.since, t.breakOff = time.Now(), breakOff
}

// release ends the turn.
func (t *turn) release() {
	t.turns.leave(t)
	t.turns.slots.release()
}
