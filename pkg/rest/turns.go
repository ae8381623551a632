package rest

import (
	"context"
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

func (s semaphore) release() { <-s }

// turnTime is how long a caller waits for a turn of what lasts. Who waits has a connection, of which there are few.
const turnTime = 5 * time.Second

// turns are for what lasts. A user has one of them at most, so that nobody keeps all others out.
type turns struct {
	slots semaphore
	mu    sync.Mutex
	users map[string]chan struct{} // closed when the user's turn ends
}

func newTurns(n int) *turns {
	return &turns{slots: make(semaphore, n), users: map[string]chan struct{}{}}
}

// acquire waits for a turn, until which one that the user has must end; busy if it does not come soon. The turn lasts until
// release is called, once.
func (t *turns) acquire(ctx context.Context, user string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	for {
		before := t.enter(user)
		if before == nil {
			break
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, busy(user + " downloads something else, and only one thing at a time can be; come back when it is done")
		}
	}
	if err := t.slots.acquire(ctx); err != nil {
		t.leave(user)
		return nil, err
	}
	return func() {
		t.slots.release()
		t.leave(user)
	}, nil
}

// enter notes that the user waits or has a turn. If that is so already, it returns what is closed at its end.
func (t *turns) enter(user string) (before chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users[user] == nil {
		t.users[user] = make(chan struct{})
		return nil
	}
	return t.users[user]
}

func (t *turns) leave(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.users[user])
	delete(t.users, user)
}
