package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Sender sends a message to a receiver. It always returns an outcome, within its own deadline. The implementation for the notifier is in
// package client.
type Sender interface {
	Send(ctx context.Context, d Delivery) Outcome
}

// Store keeps what each receiver was notified of. store.Store implements it.
type Store interface {
	PendingChanges(ctx context.Context, scanner, receiver string, f store.ChangeFilter, limit int) ([]store.FindingChange, int, error)
	Present(ctx context.Context, scanner, receiver string, f store.ChangeFilter, worst int) (store.Present, error)
	KnownRepositories(ctx context.Context, scanner, receiver string) ([]string, error)
	RecordedRepositories(ctx context.Context, scanner, receiver string) ([]string, error)
	LatestRecord(ctx context.Context, scanner, receiver string) (time.Time, error)
	RecordsFull(ctx context.Context, scanner string) (bool, error)
	UpdateAnnouncements(ctx context.Context, scanner, receiver string, f store.ChangeFilter, extent store.UpdateExtent) error
	ReceiverState(ctx context.Context, scanner, receiver string) ([]byte, error)
	SaveReceiverState(ctx context.Context, scanner, receiver string, state []byte) error
	BeginDelivery(ctx context.Context, scanner, receiver string, state []byte) (int64, error)
	RecordAnnouncement(ctx context.Context, scanner, receiver string, a store.Announcement) error
	DecideAndRecord(ctx context.Context, scanner, receiver string, decide func(context.Context) (store.Announcement, error)) error
}

// Dispatcher carries out the Planner's decisions, for one receiver at a time.
//
// It stores each change of a receiver's state before it acts on it. After a crash, the next process therefore finds either the message that
// is still to be sent, or the record that it was announced.
type Dispatcher struct {
	Store   Store
	Sender  Sender
	Planner Planner
	Now     func() time.Time
	// RecordNumber is called with the number of each delivery, after the number is stored and before the message is sent; nil to do nothing. It
	// saves the number outside the store, where an older copy of the store cannot reset it. The message is sent even if that fails.
	RecordNumber func(ctx context.Context, number int64)
}

// DispatchResult is the result of Dispatcher.Dispatch.
type DispatchResult struct {
	// Next is when to call Dispatch again if nothing changes before; zero for never.
	Next time.Time
	// Before and After are the receiver's state at the beginning and at the end of Dispatch.
	Before, After State
	// Outcome is that of the delivery attempt; nil if there was none.
	Outcome *Outcome
}

// maxPlans bounds the plans of one Dispatch. The longest useful sequence is: discard an old message, delete the records of an earlier engine, record
// what the summary announces, send it, record repositories without findings, check for changes.
const maxPlans = 6

// Dispatch does everything that is due for a receiver, and sends at most one message. The scanner is the Scanner's UID. The
// coverage decides about settings.Filter.AbsentIsFixedIn. Errors come from the store, the stored state or the Planner. Nothing is lost by an error:
// call Dispatch again.
func (c Dispatcher) Dispatch(ctx context.Context, scanner string, settings Settings, coverage Coverage) (DispatchResult, error) {
	stored, err := c.Store.ReceiverState(ctx, scanner, settings.Receiver)
	if err != nil {
		return DispatchResult{}, fmt.Errorf("read the state of receiver %s: %w", settings.Receiver, err)
	}
	state, err := ParseState(stored)
	if err != nil {
		return DispatchResult{}, fmt.Errorf("receiver %s: %w", settings.Receiver, err)
	}
	v := &dispatch{Dispatcher: c, scanner: scanner, settings: settings, stored: stored, state: state}
	v.progress = DispatchResult{Before: state, After: state}
	if err := v.run(ctx, coverage); err != nil {
		return v.progress, fmt.Errorf("receiver %s: %w", settings.Receiver, err)
	}
	return v.progress, nil
}

// dispatch is one call of Dispatcher.Dispatch.
type dispatch struct {
	Dispatcher
	scanner  string
	settings Settings
	// stored is the state as last read from or written to the store.
	stored   []byte
	state    State
	progress DispatchResult
}

// run plans and carries out actions until nothing is due.
func (v *dispatch) run(ctx context.Context, coverage Coverage) error {
	source := NewStoreSource(v.Store, v.scanner, v.settings.Receiver)
	full, err := v.Store.RecordsFull(ctx, v.scanner)
	if err != nil {
		return fmt.Errorf("count what is recorded: %w", err)
	}
	if !full {
		v.state.hasRoom()
	}
	if err := v.updateRecords(ctx, coverage); err != nil {
		return err
	}
	v.settings.NoRoom = full
	for range maxPlans {
		done, err := v.step(ctx, coverage, source)
		switch {
		case err != nil:
			return err
		case done && v.settings.NoRoom && v.state.Outbox == nil:
			return v.overBudget(ctx)
		case done:
			return nil
		}
		if v.settings.NoRoom, err = v.Store.RecordsFull(ctx, v.scanner); err != nil {
			return fmt.Errorf("count what is recorded: %w", err)
		}
	}
	v.progress.Next = v.Now()
	return nil
}

// step plans and executes one action. If done is true, nothing else is due now.
func (v *dispatch) step(ctx context.Context, coverage Coverage, source Source) (done bool, err error) {
	state, action, err := v.Planner.Plan(ctx, v.Now(), v.settings, v.state, coverage, source)
	if err != nil {
		return false, err
	}
	if action.Send != nil && v.progress.Outcome != nil {
		// A second message waits for the next Dispatch, so that it does not delay other receivers.
		v.progress.Next = v.Now()
		return true, nil
	}
	before := v.state
	v.state, v.progress.Next = state, action.Until
	err = v.execute(ctx, action)
	if action.Mark != nil && errors.Is(err, store.ErrChanged) {
		// A finding was saved between planning and recording, which is common during a large first scan.
		v.state = before
		err = v.planAndRecordExclusively(ctx, coverage, source)
	}
	switch {
	case errors.Is(err, store.ErrOverBudget):
		v.state = before
		return true, v.overBudget(ctx)
	case errors.Is(err, errPlanChanged):
		v.state = before
		return false, nil
	case err != nil:
		return false, err
	}
	v.progress.After = v.state
	if before.Outbox != nil && v.state.Outbox == nil {
		// A summary may come next. It drops the records of IDs that are not found any more, so records follow renamed IDs first.
		if err := v.updateRecords(ctx, coverage); err != nil {
			return false, err
		}
	}
	return action.Send == nil && action.Mark == nil, nil
}

// roomCheck is how often it is checked whether there is room again.
const roomCheck = 10 * time.Minute

// overBudget leaves the receiver as it is until there is room to record announcements: what is announced without a record would be announced again.
func (v *dispatch) overBudget(ctx context.Context) error {
	v.state.Stopped = nil // the message that it was about is gone
	if e := v.state.LastError; e == nil || e.Reason != ReasonStoreBudget {
		v.state.LastError = &DeliveryError{Reason: ReasonStoreBudget, At: v.Now(), Message: "nothing is announced: the records of what was announced to the receivers in this " +
			"namespace use all of their room in the operator's store. Remove receivers or Scanners, or have ingest.storeSizePerNamespace " +
			"raised in the operator's configuration"}
	}
	if err := v.save(ctx); err != nil {
		return err
	}
	v.progress.After, v.progress.Next = v.state, v.Now().Add(roomCheck)
	return nil
}

// hasRoom ends what overBudget began.
func (s *State) hasRoom() {
	if s.LastError != nil && s.LastError.Reason == ReasonStoreBudget {
		s.LastError = nil
	}
}

// updateRecords updates the receiver's records to what is present, as far as its state allows without a message.
func (v *dispatch) updateRecords(ctx context.Context, coverage Coverage) error {
	filter, extent := v.state.changeFilter(v.settings, coverage), v.state.updateExtent(v.settings.Filter.Engine, v.progress.Outcome != nil)
	if err := v.Store.UpdateAnnouncements(ctx, v.scanner, v.settings.Receiver, filter, extent); err != nil {
		return fmt.Errorf("update announcement records: %w", err)
	}
	return nil
}

// errPlanChanged is returned if planning again gives an action without Mark.
var errPlanChanged = errors.New("the plan has changed")

// planAndRecordExclusively plans again and records the plan's Mark while the store blocks all writers.
func (v *dispatch) planAndRecordExclusively(ctx context.Context, coverage Coverage, source Source) error {
	var encoded []byte
	state, action := v.state, Action{}
	err := v.Store.DecideAndRecord(ctx, v.scanner, v.settings.Receiver, func(ctx context.Context) (announcement store.Announcement, err error) {
		if state, action, err = v.Planner.Plan(ctx, v.Now(), v.settings, v.state, coverage, source); err != nil {
			return announcement, err
		}
		if action.Mark == nil {
			return announcement, errPlanChanged
		}
		announcement = *action.Mark
		encoded, err = state.Encode()
		announcement.State = encoded
		return announcement, err
	})
	if err != nil {
		return fmt.Errorf("record what was announced: %w", err)
	}
	v.state, v.stored, v.progress.Next = state, encoded, action.Until
	return nil
}

// execute executes one action.
func (v *dispatch) execute(ctx context.Context, action Action) error {
	if action.Mark != nil {
		return v.record(ctx, *action.Mark)
	}
	if action.Send == nil {
		return v.save(ctx)
	}
	if err := v.beginDelivery(ctx); err != nil {
		return err
	}
	outcome := v.Sender.Send(ctx, Delivery{Receiver: v.settings.Address, Message: *action.Send})
	v.progress.Outcome = &outcome
	state, announcement, err := v.Planner.ApplyOutcome(v.Now(), v.settings, v.state, outcome)
	if err != nil {
		return err
	}
	v.state = state
	if announcement != nil {
		return v.record(ctx, *announcement)
	}
	return v.save(ctx)
}

// record stores what was announced together with the state.
func (v *dispatch) record(ctx context.Context, announcement store.Announcement) error {
	encoded, err := v.state.Encode()
	if err != nil {
		return err
	}
	announcement.State = encoded
	if err := v.Store.RecordAnnouncement(ctx, v.scanner, v.settings.Receiver, announcement); err != nil {
		return fmt.Errorf("record what was announced: %w", err)
	}
	v.stored = encoded
	return nil
}

// beginDelivery stores the state, with the message in the outbox, before the message is sent.
func (v *dispatch) beginDelivery(ctx context.Context) error {
	encoded, err := v.state.Encode()
	if err != nil {
		return err
	}
	number, err := v.Store.BeginDelivery(ctx, v.scanner, v.settings.Receiver, encoded)
	if err != nil {
		return fmt.Errorf("store the message: %w", err)
	}
	v.stored = encoded
	if v.RecordNumber != nil {
		v.RecordNumber(ctx, number)
	}
	return nil
}

// save stores the state if it has changed.
func (v *dispatch) save(ctx context.Context) error {
	encoded, err := v.state.Encode()
	if err != nil || bytes.Equal(encoded, v.stored) {
		return err
	}
	if err := v.Store.SaveReceiverState(ctx, v.scanner, v.settings.Receiver, encoded); err != nil {
		return fmt.Errorf("store the state: %w", err)
	}
	v.stored = encoded
	return nil
}

// NewStoreSource returns the Source of one receiver. The scanner is the Scanner's UID.
func NewStoreSource(s Store, scanner, receiver string) Source {
	return storeSource{s, scanner, receiver}
}

type storeSource struct {
	store             Store
	scanner, receiver string
}

func (s storeSource) PendingChanges(ctx context.Context, f store.ChangeFilter, limit int) ([]store.FindingChange, int, error) {
	return s.store.PendingChanges(ctx, s.scanner, s.receiver, f, limit)
}

func (s storeSource) Present(ctx context.Context, f store.ChangeFilter, worst int) (store.Present, error) {
	return s.store.Present(ctx, s.scanner, s.receiver, f, worst)
}

func (s storeSource) KnownRepositories(ctx context.Context) ([]string, error) {
	return s.store.KnownRepositories(ctx, s.scanner, s.receiver)
}

func (s storeSource) RecordedRepositories(ctx context.Context) ([]string, error) {
	return s.store.RecordedRepositories(ctx, s.scanner, s.receiver)
}

// LatestRecord implements Source.
func (s storeSource) LatestRecord(ctx context.Context) (time.Time, error) {
	return s.store.LatestRecord(ctx, s.scanner, s.receiver)
}
