package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Sender sends a message to a receiver. It always returns an outcome, within its own deadline. The implementation for the notifier is in
// package client.
type Sender interface {
	Send(ctx context.Context, d Delivery) Outcome
}

// Store keeps what each receiver was notified of. A receiver is named by its Scanner's UID and its own name. store.Store implements Store.
type Store interface {
	// PendingChanges returns at most limit changes that were not announced, ordered by repository, and the number without the limit.
	PendingChanges(ctx context.Context, scanner, receiver string, f store.ChangeFilter, limit int) ([]store.FindingChange, int, error)
	// PendingChangesOf returns those of some findings that PendingChanges would list without a limit.
	PendingChangesOf(ctx context.Context, scanner, receiver string, f store.ChangeFilter, keys []store.AnnouncementKey) ([]store.FindingChange, error)
	// Present reads everything that is present in one snapshot, with the worst findings that were not announced.
	Present(ctx context.Context, scanner, receiver string, f store.ChangeFilter, worst int) (store.Present, error)
	// CountSummary counts what is present, and what differs from the findings that an earlier message counted. inUse are the repositories with images in
	// use, with a result or without.
	CountSummary(ctx context.Context, scanner, receiver string, f store.ChangeFilter, earlier string, inUse map[string]bool) (store.SummaryCounts, error)
	// WorkloadEvidence returns what is known about some findings in workloads, in their order, in one snapshot.
	WorkloadEvidence(ctx context.Context, scanner, engine string, route *store.Route, subjects []store.WorkloadSubject) ([]store.WorkloadFacts, error)
	// OldestExploited returns the present finding that is known to be exploited for the longest time; nil if there is none.
	OldestExploited(ctx context.Context, scanner string, f store.ChangeFilter) (*store.FindingChange, error)
	// KnownRepositories returns the repositories that were announced to the receiver, or recorded as known.
	KnownRepositories(ctx context.Context, scanner, receiver string) ([]string, error)
	// RecordedRepositories returns the repositories of which at least one finding is recorded for the receiver, sorted.
	RecordedRepositories(ctx context.Context, scanner, receiver string) ([]string, error)
	// LatestRecord returns the latest time of a record for the receiver; zero without records.
	LatestRecord(ctx context.Context, scanner, receiver string) (time.Time, error)
	// RecordsFull reports whether the records of all receivers in the Scanner's namespace use their whole budget.
	RecordsFull(ctx context.Context, scanner string) (bool, error)
	// Threads returns the threads of the messages that announced findings to the receiver. Findings without a thread are missing.
	Threads(ctx context.Context, scanner, receiver string, keys []store.AnnouncementKey) (map[store.AnnouncementKey]store.Thread, error)
	UpdateAnnouncements(ctx context.Context, scanner, receiver string, f store.ChangeFilter, extent store.UpdateExtent) error
	ReceiverState(ctx context.Context, scanner, receiver string) ([]byte, error)
	SaveReceiverState(ctx context.Context, scanner, receiver string, state []byte) error
	BeginDelivery(ctx context.Context, scanner, receiver string, state []byte) (int64, error)
	RecordAnnouncement(ctx context.Context, scanner, receiver string, a store.Announcement) error
	DecideAndRecord(ctx context.Context, scanner, receiver string, decide func(context.Context) (store.Announcement, error)) error
}

// Dispatcher decides what to do about a receiver and does it, for one receiver at a time.
//
// It stores each change of a receiver's state before it acts on it. After a crash, the next process therefore finds either the message that
// is still to be sent, or the record that it was announced.
type Dispatcher struct {
	Store  Store
	Sender Sender
	Now    func() time.Time
	// Random is the source of message IDs and jitter; crypto/rand.Reader outside of tests.
	Random io.Reader
	// RecordNumber is called with the number of each delivery, after the number is stored and before the message is sent; nil to do nothing. It
	// saves the number outside the store, where an older copy of the store cannot reset it. The message is sent even if that fails.
	RecordNumber func(ctx context.Context, number int64)
}

// DispatchResult is the result of Dispatcher.Dispatch.
type DispatchResult struct {
	// Next is when to call Dispatch again if nothing changes before; zero for never.
	Next time.Time
	// Before and After are the receiver's stored state at the beginning and at the end of Dispatch.
	Before, After State
	// Outcome is that of the delivery attempt; nil if there was none.
	Outcome *Outcome
}

// maxPlans bounds the plans of one Dispatch. The longest useful sequence is: discard an old message, delete the records of an earlier engine, record
// what a schedule begins with, record what the summary announces, send it, record repositories without findings, check for changes.
const maxPlans = 7

// Dispatch does everything that is due for a receiver, and sends at most one message. The scanner is the Scanner's UID. The
// coverage decides about settings.Filter.AbsentIsFixedIn. Errors come from the store, the stored state or Random. Nothing is lost by an error:
// call Dispatch again.
func (c Dispatcher) Dispatch(ctx context.Context, scanner string, settings Settings, coverage Coverage) (DispatchResult, error) {
	d, err := c.load(ctx, scanner, settings, coverage)
	if err != nil {
		return DispatchResult{}, err
	}
	before, do := d.state, d.run
	if settings.Address.hasState() {
		do = d.sendAlerts
	}
	if err = do(ctx); err != nil {
		err = fmt.Errorf("receiver %s: %w", settings.Receiver, err)
	}
	return DispatchResult{Next: d.next, Before: before, After: d.state, Outcome: d.outcome}, err
}

// load reads the state of a receiver.
func (c Dispatcher) load(ctx context.Context, scanner string, settings Settings, coverage Coverage) (*dispatch, error) {
	stored, err := c.Store.ReceiverState(ctx, scanner, settings.Receiver)
	if err != nil {
		return nil, fmt.Errorf("read the state of receiver %s: %w", settings.Receiver, err)
	}
	state, err := ParseState(stored)
	if err != nil {
		return nil, fmt.Errorf("receiver %s: %w", settings.Receiver, err)
	}
	return &dispatch{Dispatcher: c, scanner: scanner, settings: settings, coverage: coverage, stored: stored, state: state}, nil
}

// dispatch is one call of Dispatcher.Dispatch.
type dispatch struct {
	Dispatcher
	scanner  string
	settings Settings
	coverage Coverage
	// state is as last read from or written to the store. stored is its encoded form.
	state  State
	stored []byte
	// full is true while the records of the namespace's receivers use their whole budget. Only what makes room is planned then, and the
	// delivery of a message that is on its way.
	full bool
	// next and outcome become those of the DispatchResult.
	next    time.Time
	outcome *Outcome
}

// run plans and executes actions until nothing is due.
func (d *dispatch) run(ctx context.Context) (err error) {
	if err := d.updateRecords(ctx); err != nil {
		return err
	}
	for range maxPlans {
		if d.full, err = d.Store.RecordsFull(ctx, d.scanner); err != nil {
			return fmt.Errorf("count what is recorded: %w", err)
		}
		done, err := d.step(ctx)
		switch {
		case err != nil:
			return err
		case done && d.full && d.state.Outbox == nil:
			return d.overBudget(ctx)
		case done:
			return nil
		}
	}
	d.next = d.Now()
	return nil
}

// step plans and executes one action. If done is true, nothing else is due now.
func (d *dispatch) step(ctx context.Context) (done bool, err error) {
	state, action, err := d.plan(ctx)
	if err != nil {
		return false, err
	}
	if action.Send != nil && d.outcome != nil {
		// A second message waits for the next Dispatch, so that it does not delay other receivers.
		d.next = d.Now()
		return true, nil
	}
	hadMessage := d.state.Outbox != nil
	d.next = action.Until
	switch err := d.execute(ctx, state, action); {
	case errors.Is(err, store.ErrOverBudget):
		return true, d.overBudget(ctx)
	case errors.Is(err, errPlanChanged):
		return false, nil
	case err != nil:
		return false, err
	}
	if d.state.Outbox == nil && (hadMessage || action.Send != nil || action.Mark != nil) {
		// Which sources know what is recorded now is read before what runs changes. A summary may come next: it drops the records of IDs that are
		// not found any more, so records follow renamed IDs first.
		if err := d.updateRecords(ctx); err != nil {
			return false, err
		}
	}
	return action.Send == nil && action.Mark == nil, nil
}

// updateRecords updates the receiver's records to what is present, as far as its state allows without a message.
func (d *dispatch) updateRecords(ctx context.Context) error {
	filter, extent := d.state.changeFilter(d.settings, d.coverage), d.state.updateExtent(d.settings.Filter.Engine, d.outcome != nil)
	if err := d.Store.UpdateAnnouncements(ctx, d.scanner, d.settings.Receiver, filter, extent); err != nil {
		return fmt.Errorf("update announcement records: %w", err)
	}
	return nil
}

// execute executes one action, which leads to the given state.
func (d *dispatch) execute(ctx context.Context, state State, action Action) error {
	switch {
	case action.Mark != nil:
		err := d.record(ctx, state, *action.Mark)
		if errors.Is(err, store.ErrChanged) {
			// A finding was saved between planning and recording, which is common during a large first scan.
			return d.planAndRecordExclusively(ctx)
		}
		return err
	case action.Send == nil:
		return d.save(ctx, state)
	}
	if err := d.beginDelivery(ctx, state); err != nil {
		return err
	}
	outcome := d.Sender.Send(ctx, Delivery{
		Receiver: d.settings.Address, Message: *action.Send, Thread: state.Outbox.replyTo(d.settings.Address),
	})
	d.outcome = &outcome
	state, announcement, err := d.applyOutcome(state, outcome)
	switch {
	case err != nil:
		return err
	case announcement != nil:
		return d.record(ctx, state, *announcement)
	}
	return d.save(ctx, state)
}

// errPlanChanged is returned if planning again gives an action without Mark.
var errPlanChanged = errors.New("the plan has changed")

// planAndRecordExclusively plans again and records the plan's Mark while the store blocks all writers.
func (d *dispatch) planAndRecordExclusively(ctx context.Context) error {
	var state State
	var encoded []byte
	err := d.Store.DecideAndRecord(ctx, d.scanner, d.settings.Receiver, func(ctx context.Context) (store.Announcement, error) {
		planned, action, err := d.plan(ctx)
		if err != nil {
			return store.Announcement{}, err
		}
		if action.Mark == nil {
			return store.Announcement{}, errPlanChanged
		}
		state = planned
		encoded, err = state.Encode()
		action.Mark.State = encoded
		return *action.Mark, err
	})
	if err != nil {
		return fmt.Errorf("record what was announced: %w", err)
	}
	d.state, d.stored = state, encoded
	return nil
}

// record stores what was announced together with the state.
func (d *dispatch) record(ctx context.Context, state State, announcement store.Announcement) error {
	encoded, err := state.Encode()
	if err != nil {
		return err
	}
	announcement.State = encoded
	if err := d.Store.RecordAnnouncement(ctx, d.scanner, d.settings.Receiver, announcement); err != nil {
		return fmt.Errorf("record what was announced: %w", err)
	}
	d.state, d.stored = state, encoded
	return nil
}

// beginDelivery stores the state, with the message in the outbox, before the message is sent.
func (d *dispatch) beginDelivery(ctx context.Context, state State) error {
	encoded, err := state.Encode()
	if err != nil {
		return err
	}
	number, err := d.Store.BeginDelivery(ctx, d.scanner, d.settings.Receiver, encoded)
	if err != nil {
		return fmt.Errorf("store the message: %w", err)
	}
	d.state, d.stored = state, encoded
	if d.RecordNumber != nil {
		d.RecordNumber(ctx, number)
	}
	return nil
}

// save stores the state if it has changed.
func (d *dispatch) save(ctx context.Context, state State) error {
	encoded, err := state.Encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(encoded, d.stored) {
		if err := d.Store.SaveReceiverState(ctx, d.scanner, d.settings.Receiver, encoded); err != nil {
			return fmt.Errorf("store the state: %w", err)
		}
	}
	d.state, d.stored = state, encoded
	return nil
}

// roomCheck is how often it is checked whether there is room again.
const roomCheck = 10 * time.Minute

// overBudget leaves the receiver as it is until there is room to record announcements: what is announced without a record would be announced again.
func (d *dispatch) overBudget(ctx context.Context) error {
	state := d.state
	state.Stopped = nil // the message that it was about is gone
	if e := state.LastError; e == nil || e.Reason != ReasonStoreBudget {
		state.LastError = &DeliveryError{Reason: ReasonStoreBudget, At: d.Now(), Message: "nothing is announced: the records of what was announced to the receivers in this " +
			"namespace use all of their room in the operator's store. Remove receivers or Scanners, or have ingest.storeSizePerNamespace " +
			"raised in the operator's configuration"}
	}
	d.next = d.Now().Add(roomCheck)
	return d.save(ctx, state)
}

// hasRoom ends what overBudget began.
func (s *State) hasRoom() {
	if s.LastError != nil && s.LastError.Reason == ReasonStoreBudget {
		s.LastError = nil
	}
}
