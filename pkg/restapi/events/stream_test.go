package events

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

func findings(namespace string) Change {
	return Change{Kind: restv1.HintFindings, Namespace: namespace}
}

// testClient is a client in memory. While it is stuck, it takes no message.
type testClient struct {
	mu       sync.Mutex
	stuck    bool
	received []restv1.Event
	times    []time.Time
}

func (c *testClient) send(ctx context.Context, event restv1.Event, _ []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck {
		return context.DeadlineExceeded
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.received, c.times = append(c.received, event), append(c.times, time.Now())
	return nil
}

// take returns what was received since the last time, without what keeps the stream alive.
func (c *testClient) take() (events []restv1.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.received {
		if e.Type != restv1.EventKeepAlive {
			events = append(events, e)
		}
	}
	c.received = nil
	return events
}

func allowAll(context.Context, Change) (bool, error) { return true, nil }
func accept(context.Context) error                   { return nil }

// open runs a stream until the test ends or stop is called.
func open(t *testing.T, log *Log, s Stream) (c *testClient, stop func()) {
	t.Helper()
	if s.Allowed == nil {
		s.Allowed = allowAll
	}
	if s.Check == nil {
		s.Check = accept
	}
	c = &testClient{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx, log, c, restv1.Event{})
	}()
	return c, func() { cancel(); <-done }
}

func types(events []restv1.Event) (all []restv1.EventType) {
	for _, e := range events {
		all = append(all, e.Type)
	}
	return all
}

func requireTypes(t *testing.T, what string, events []restv1.Event, want ...restv1.EventType) {
	t.Helper()
	if got := types(events); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestBurst checks that many changes at once become few messages, and more than fit in one become a reset.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewLog()
		c, stop := open(t, log, Stream{})
		synctest.Wait()
		c.take()
		for range 1000 {
			log.Add(findings("shop"))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := len(c.take()); n < 2 || n > 6 {
			t.Errorf("a namespace that changes 1,000 times in a second causes %d messages, want about 4", n)
		}
		for i := range 10_000 {
			log.Add(findings(fmt.Sprint("n", i)))
		}
		time.Sleep(time.Second)
		// The first message can come before the last of the changes.
		events := c.take()
		if len(events) == 0 || len(events) > 2 || events[len(events)-1].Type != restv1.EventReset {
			t.Errorf("10,000 namespaces that change cause %v, want a reset as the first message or the second", types(events))
		}
		stop()
		requireTypes(t, "the end", c.take(), restv1.EventBye)
	})
}

// TestBurstOfOthers checks that changes which a client may not know of cost no more than those that it gets.
func TestBurstOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, reviews := NewLog(), 0
		c, stop := open(t, log, Stream{Allowed: func(context.Context, Change) (bool, error) {
			reviews++
			return false, nil
		}})
		for range 1000 {
			log.Add(findings("shop"))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		stop()
		if reviews > 6 {
			t.Errorf("1,000 changes in a second cause %d reviews, want about 4", reviews)
		}
		requireTypes(t, "messages", c.take(), restv1.EventHello, restv1.EventBye)
	})
}

// TestLogIsBounded checks that a log keeps a bounded number of changes, and that a stream which needs an older one is reset.
func TestLogIsBounded(t *testing.T) {
	log := NewLog()
	log.Add(findings("first"))
	position := log.End()
	for i := range maxLogged + 10 {
		log.Add(findings(fmt.Sprint("n", i)))
	}
	if len(log.byKey) != maxLogged || log.entries.Len() != maxLogged {
		t.Errorf("the log has %d entries, want %d", log.entries.Len(), maxLogged)
	}
	all := func(Change) bool { return true }
	if _, _, complete := log.Since(position, maxLogged, all); complete {
		t.Error("a position before what the log has forgotten counts as complete")
	}
	if _, _, complete := log.Since(log.End()-5, 10, all); !complete {
		t.Error("the latest position counts as incomplete")
	}
}

// TestStreamEnds checks why and when streams end.
func TestStreamEnds(t *testing.T) {
	for name, test := range map[string]struct {
		stream   Stream
		after    time.Duration
		within   time.Duration
		reason   restv1.EndReason
		shutdown bool
	}{
		"its time is over":      {after: maxAge, within: maxAgeJitter, reason: restv1.EndMaxAge},
		"the token expires":     {stream: Stream{Ends: time.Date(2000, 1, 1, 0, 3, 0, 0, time.UTC)}, after: 3 * time.Minute, reason: restv1.EndUnauthorized},
		"the token is refused":  {stream: Stream{Check: func(context.Context) error { return ErrUnauthorized }}, after: checkInterval, reason: restv1.EndUnauthorized},
		"the manager stops":     {after: 0, shutdown: true, reason: restv1.EndShutdown},
		"the review is refused": {stream: Stream{Check: func(context.Context) error { return errors.New("no answer") }}, after: maxAge, within: maxAgeJitter, reason: restv1.EndMaxAge},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c, stop := open(t, NewLog(), test.stream)
				synctest.Wait()
				if test.shutdown {
					stop()
				} else {
					time.Sleep(test.after + test.within + time.Second)
				}
				events := c.take()
				requireTypes(t, "messages", events, restv1.EventHello, restv1.EventBye)
				bye := events[len(events)-1]
				if bye.Reason != test.reason || bye.RetryAfterMs < 1000 || bye.RetryAfterMs > 10_000 {
					t.Errorf("the last message is %+v, want the reason %s and a retry after 1 to 10 s", bye, test.reason)
				}
				if took := c.times[len(c.times)-1].Sub(began); took < test.after || took > test.after+test.within {
					t.Errorf("the stream ended after %s, want %s to %s", took, test.after, test.after+test.within)
				}
				stop()
			})
		})
	}
}

// TestKeepAlive checks that a message comes before a proxy ends the connection.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := open(t, NewLog(), Stream{})
		time.Sleep(5*time.Minute + time.Second)
		stop()
		for i := 1; i < len(c.times); i++ {
			if gap := c.times[i].Sub(c.times[i-1]); gap > keepAlive+time.Second {
				t.Errorf("nothing was sent for %s, want at most %s", gap, keepAlive)
			}
		}
		if len(c.times) < 15 {
			t.Errorf("%d messages in five minutes, want one each %s", len(c.times), keepAlive)
		}
	})
}

// TestStuckClient checks that a client which takes nothing ends its stream, and holds up neither the log nor others.
func TestStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewLog()
		stuck, stop := open(t, log, Stream{})
		other, stopOther := open(t, log, Stream{})
		synctest.Wait()
		stuck.mu.Lock()
		stuck.stuck = true
		stuck.mu.Unlock()
		other.take()
		log.Add(findings("shop"))
		synctest.Wait()
		requireTypes(t, "the other client", other.take(), restv1.EventChanged)
		stop() // returns although the client is stuck
		stopOther()
	})
}

// TestUnknownPermission checks that a change is sent late rather than without a review, and is not lost.
func TestUnknownPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewLog()
		var mu sync.Mutex
		failing := true
		c, stop := open(t, log, Stream{Allowed: func(context.Context, Change) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if failing {
				return false, errors.New("the API server does not answer")
			}
			return true, nil
		}})
		synctest.Wait()
		log.Add(findings("shop"))
		time.Sleep(time.Minute)
		requireTypes(t, "without a review", c.take(), restv1.EventHello)
		mu.Lock()
		failing = false
		mu.Unlock()
		time.Sleep(retryPause + time.Second)
		requireTypes(t, "after the review", c.take(), restv1.EventChanged)
		stop()
	})
}
