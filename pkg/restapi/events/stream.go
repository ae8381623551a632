package events

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// Bounds of a stream.
const (
	// pace is the shortest time between two looks at changes, and so between two messages with changes.
	pace = 250 * time.Millisecond
	// maxChanges is the largest number of changes in a message. More become one reset.
	maxChanges = 256
	// keepAlive is how often a message is sent at least. Proxies end connections on which nothing is sent for a minute.
	keepAlive = 20 * time.Second
	// checkInterval is how often the caller's token is reviewed again.
	checkInterval = time.Minute
	// maxAge is how long a stream lasts at least. It ends up to maxAgeJitter later, so that streams that began together do not end together.
	maxAge       = 30 * time.Minute
	maxAgeJitter = 5 * time.Minute
	// retryPause is the time before a permission that could not be reviewed is reviewed again.
	retryPause = 5 * time.Second
	// writeTimeout is how long a message may take. A client that does not read for longer loses its stream, and resumes it later.
	writeTimeout = 10 * time.Second
	// Clients reconnect after a random time between these, so that they do not all come at once after a restart.
	minRetryAfter = time.Second
	maxRetryAfter = 10 * time.Second
)

// ErrUnauthorized means that the caller's token is not accepted any more.
var ErrUnauthorized = errors.New("the token is not accepted any more")

// connection sends events to a client, each with its JSON text. ctx bounds the time.
type connection interface {
	send(ctx context.Context, event restv1.Event, text []byte) error
}

// Stream is what one client asks for.
type Stream struct {
	// Namespace limits the stream to a namespace and to what is in none; empty for all.
	Namespace string
	// Since is the ID of the last message that the client has. If it is empty, the stream begins with the next change.
	Since string
	// Allowed reports whether the client may know of a change. It is asked before each message.
	Allowed func(context.Context, Change) (bool, error)
	// Check returns ErrUnauthorized if the caller's token is not accepted any more. Other errors are ignored.
	Check func(context.Context) error
	// Ends is when the caller's token expires; zero if that is not known.
	Ends time.Time
}

// wants reports whether the client asks for a change.
func (s *Stream) wants(c Change) bool {
	return s.Namespace == "" || c.Namespace == "" || c.Namespace == s.Namespace
}

// run sends messages until the context or the stream ends, or the client does not take a message. hello is the first message without its ID.
func (s *Stream) run(ctx context.Context, log *Log, to connection, hello restv1.Event) {
	began := time.Now()
	ends := began.Add(maxAge + rand.N(maxAgeJitter)) //nolint:gosec // jitter is no secret
	position, known := log.End(), true
	if s.Since != "" {
		if position, known = log.positionOf(s.Since); !known {
			position = -1
		}
	}
	hello.Type = restv1.EventHello
	if known {
		hello.ID = log.idOf(position)
	}
	if write(ctx, to, hello) != nil {
		return
	}
	nextCheck, nextAlive := began.Add(checkInterval), began.Add(keepAlive)
	for {
		before := position
		sent, err := s.sendChanges(ctx, log, to, &position)
		if errors.Is(err, errNotSent) {
			return
		}
		now := time.Now()
		if sent {
			nextAlive = now.Add(keepAlive)
		}
		switch {
		case ctx.Err() != nil:
			s.end(ctx, to, restv1.EndShutdown)
			return
		case !s.Ends.IsZero() && !now.Before(s.Ends):
			s.end(ctx, to, restv1.EndUnauthorized)
			return
		case !now.Before(ends):
			s.end(ctx, to, restv1.EndMaxAge)
			return
		case !now.Before(nextCheck):
			nextCheck = now.Add(checkInterval)
			if errors.Is(s.Check(ctx), ErrUnauthorized) {
				s.end(ctx, to, restv1.EndUnauthorized)
				return
			}
		case !now.Before(nextAlive):
			nextAlive = now.Add(keepAlive)
			if write(ctx, to, restv1.Event{Type: restv1.EventKeepAlive}) != nil {
				return
			}
		}
		until := earliest(ends, s.Ends, nextCheck, nextAlive)
		switch {
		case err != nil:
			pause(ctx, retryPause)
		case position != before: // also when nothing was sent: changes elsewhere must not keep this stream busy
			pause(ctx, pace)
		default:
			waitUntil(ctx, log, position, until)
		}
	}
}

// errNotSent means that the client did not take a message.
var errNotSent = errors.New("the client did not take a message")

// sendChanges sends what has changed since a position, and moves the position. sent is false if there is nothing to send. After an error, the
// position is as before.
func (s *Stream) sendChanges(ctx context.Context, log *Log, to connection, position *int64) (sent bool, err error) {
	changes, end, complete := log.Since(*position, maxChanges, s.wants)
	event := restv1.Event{Type: restv1.EventReset, ID: log.idOf(end)}
	if complete {
		event.Type = restv1.EventChanged
		for _, c := range changes {
			allowed, err := s.Allowed(ctx, c)
			if err != nil {
				return false, err
			}
			if allowed {
				event.Changes = append(event.Changes, c)
			}
		}
		if len(event.Changes) == 0 {
			*position = end
			return false, nil
		}
	}
	if write(ctx, to, event) != nil {
		return false, errNotSent
	}
	*position = end
	return true, nil
}

// end says why the stream ends. The context may have ended already.
func (s *Stream) end(ctx context.Context, to connection, reason restv1.EndReason) {
	_ = write(context.WithoutCancel(ctx), to, restv1.Event{Type: restv1.EventBye, Reason: reason, RetryAfterMs: int(retryAfter().Milliseconds())})
}

func write(ctx context.Context, to connection, event restv1.Event) error {
	text, err := json.Marshal(event)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return to.send(ctx, event, text)
}

func retryAfter() time.Duration {
	return minRetryAfter + rand.N(maxRetryAfter-minRetryAfter) //nolint:gosec // jitter is no secret
}

// earliest returns the first of some times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// waitUntil waits for a change after a position, until a time.
func waitUntil(ctx context.Context, log *Log, position int64, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	log.Wait(ctx, position)
}
