package announce

import (
	"context"
	"fmt"
	"time"
)

// testGap is the least time between two test messages to a receiver.
const testGap = 10 * time.Second

// TestMessage is the last test message that was requested for a receiver. It is no record of an announcement: nothing of it decides about what is
// announced, or when.
type TestMessage struct {
	// Request is what requested the message. Only another value requests another one.
	Request string `json:"request"`
	// ID is the message's. It stays the same until the outcome is known, so that the notifier does not send it twice.
	ID string `json:"id"`
	// At is the time of the last attempt.
	At time.Time `json:"at"`
	// Outcome is that of the last attempt; nil before the first one has ended.
	Outcome *Outcome `json:"outcome,omitempty"`
}

// IsDone reports whether the outcome of the message is known. A failed message is not sent again.
func (t TestMessage) IsDone() bool {
	return t.Outcome != nil && !t.Outcome.IsInProgress()
}

// IsInProgress reports whether the receiver has not answered yet.
func (o Outcome) IsInProgress() bool {
	return o.Result == UnknownOutcome && o.Reason == ReasonInProgress
}

// DispatchTest sends the test message that a request asks for, unless that was done, even in quiet hours and while the receiver is stopped. There is one
// attempt. At least testGap passes between two test messages: until then, DispatchResult.Next is when to call DispatchTest again. The error is that of
// the store, the stored state or Random.
func (c Dispatcher) DispatchTest(ctx context.Context, scanner string, settings Settings, request string) (DispatchResult, error) {
	d, err := c.load(ctx, scanner, settings, Coverage{})
	if err != nil {
		return DispatchResult{}, err
	}
	before := d.state
	if err = d.sendTest(ctx, request); err != nil {
		err = fmt.Errorf("receiver %s: %w", settings.Receiver, err)
	}
	return DispatchResult{Next: d.next, Before: before, After: d.state, Outcome: d.outcome}, err
}

func (d *dispatch) sendTest(ctx context.Context, request string) error {
	now, last := d.Now(), TestMessage{}
	if d.state.Test != nil {
		last = *d.state.Test
	}
	if last.Request == request && last.IsDone() {
		return nil
	}
	wait := testGap
	if last.Request == request && last.Outcome != nil {
		wait = max(last.Outcome.RetryAfter, attemptGap)
	}
	if next := last.At.Add(wait); now.Before(next) && !last.At.After(now) { // a clock that was set back delays nothing
		d.next = next
		return nil
	}
	message, err := (&planning{now: now, settings: d.settings, random: d.Random}).newMessage(KindTest)
	if err != nil {
		return err
	}
	if last.Request == request {
		message.ID = last.ID
	}
	test := TestMessage{Request: request, ID: message.ID, At: now}
	if err := d.saveTest(ctx, test); err != nil {
		return err
	}
	outcome := d.Sender.Send(ctx, Delivery{Receiver: d.settings.Address, Message: message})
	test.Outcome = &outcome
	if !test.IsDone() {
		d.next = d.Now().Add(max(outcome.RetryAfter, attemptGap))
	} else {
		d.outcome = &outcome
	}
	return d.saveTest(ctx, test)
}

func (d *dispatch) saveTest(ctx context.Context, test TestMessage) error {
	state := d.state
	state.Test = &test
	return d.save(ctx, state)
}
