package notify

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

// Courier carries out the Planner's decisions, for one receiver at a time.
//
// It stores each change of a receiver's state before it acts on it. After a crash, the next process therefore finds either the message that
// is still to be sent, or the record that it was announced.
type Courier struct {
	Store   store.Announcements
	Sender  Sender
	Planner Planner
	Now     func() time.Time
	// Counted is called with the number of each delivery, after the number is stored and before the message is sent; nil to do nothing. It
	// saves the number outside the store, where an older copy of the store cannot reset it. The message is sent even if that fails.
	Counted func(ctx context.Context, number int64)
}

// Progress is the result of Courier.Visit.
type Progress struct {
	// Next is when to call Visit again if nothing changes before; zero for never.
	Next time.Time
	// Before and After are the receiver's state at the beginning and at the end of Visit.
	Before, After State
	// Outcome is that of the delivery attempt; nil if there was none.
	Outcome *Outcome
}

// maxSteps bounds the plans of one Visit. The longest useful sequence is: discard an old message, record what the summary announces, send
// it, record repositories without findings, check for changes.
const maxSteps = 6

// Visit does everything that is due for a receiver, and sends at most one message. The scanner is the Scanner's UID. If the coverage is
// known, it replaces settings.Filter.Settled. Errors come from the store, the stored state or the Planner. Nothing is lost by an error:
// call Visit again.
func (c Courier) Visit(ctx context.Context, scanner string, settings Settings, coverage Coverage) (Progress, error) {
	stored, err := c.Store.ReceiverState(ctx, scanner, settings.Receiver)
	if err != nil {
		return Progress{}, fmt.Errorf("read the state of receiver %s: %w", settings.Receiver, err)
	}
	state, err := ParseState(stored)
	if err != nil {
		return Progress{}, fmt.Errorf("receiver %s: %w", settings.Receiver, err)
	}
	if coverage.Known {
		settings.Filter.Settled = coverage.settledRepositories()
	}
	v := &visit{Courier: c, scanner: scanner, settings: settings, stored: stored, state: state}
	v.progress = Progress{Before: state, After: state}
	if err := v.run(ctx, coverage); err != nil {
		return v.progress, fmt.Errorf("receiver %s: %w", settings.Receiver, err)
	}
	return v.progress, nil
}

// visit is one call of Courier.Visit.
type visit struct {
	Courier
	scanner  string
	settings Settings
	// stored is the state as last read from or written to the store.
	stored   []byte
	state    State
	progress Progress
}

// run plans and carries out actions until nothing is due.
func (v *visit) run(ctx context.Context, coverage Coverage) error {
	source := FromStore(v.Store, v.scanner, v.settings.Receiver)
	full, err := v.Store.RecordsFull(ctx, v.scanner)
	if err != nil {
		return fmt.Errorf("count what is recorded: %w", err)
	}
	if !full {
		v.state.hasRoom()
		if err := v.followUp(ctx, coverage); err != nil {
			return err
		}
	}
	for range maxSteps {
		if full && v.state.Outbox == nil {
			return v.overBudget(ctx)
		}
		state, action, err := v.Planner.Plan(ctx, v.Now(), v.settings, v.state, coverage, source)
		if err != nil {
			return err
		}
		if action.Send != nil && v.progress.Outcome != nil {
			// A second message waits for the next Visit, so that it does not delay other receivers.
			v.progress.Next = v.Now()
			return nil
		}
		before := v.state
		v.state, v.progress.Next = state, action.Until
		err = v.carryOut(ctx, action)
		if action.Mark != nil && errors.Is(err, store.ErrChanged) {
			// A finding was saved between planning and recording, which is common during a large first scan.
			v.state = before
			err = v.planAndRecord(ctx, coverage, source)
		}
		if errors.Is(err, store.ErrOverBudget) {
			v.state = before
			return v.overBudget(ctx)
		}
		if errors.Is(err, errOtherPlan) {
			v.state = before
			continue
		}
		if err != nil {
			return err
		}
		v.progress.After = v.state
		if before.Outbox != nil && v.state.Outbox == nil && !full {
			// A summary may come next, which forgets what is not found under the id that it was announced by.
			if err := v.followUp(ctx, coverage); err != nil {
				return err
			}
		}
		if action.Send == nil && action.Mark == nil {
			return nil
		}
	}
	v.progress.Next = v.Now()
	return nil
}

// roomCheck is how often it is checked whether there is room again.
const roomCheck = 10 * time.Minute

// overBudget leaves the receiver as it is until there is room to record what it is told: what was told and not recorded would be told again.
func (v *visit) overBudget(ctx context.Context) error {
	if e := v.state.LastError; v.state.Stopped == nil && (e == nil || e.Reason != ReasonStoreBudget) {
		v.state.LastError = &Trouble{Reason: ReasonStoreBudget, At: v.Now(), Message: "nothing is announced: the records of what the receivers in this namespace " +
			"were told have used up their room in the operator's store. Have fewer receivers or exclude images, or have ingest.storeSizePerNamespace " +
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

// followUp brings what is recorded of the receiver up to date, as far as its state allows.
func (v *visit) followUp(ctx context.Context, coverage Coverage) error {
	if !coverage.Known {
		return nil
	}
	extent := v.state.followUp(v.settings.Filter.Engine)
	if v.progress.Outcome != nil && extent == store.FollowAll {
		// The coverage is from before the message was sent. What runs may have changed since: nothing is known to be fixed until the next visit.
		extent = store.FollowKnown
	}
	if err := v.Store.FollowUp(ctx, v.scanner, v.settings.Receiver, v.settings.Filter, extent); err != nil {
		return fmt.Errorf("follow up what was announced: %w", err)
	}
	return nil
}

// errOtherPlan is returned if planning again gives an action without Mark.
var errOtherPlan = errors.New("the plan has changed")

// planAndRecord plans again and records the plan's Mark while the store blocks all writers.
func (v *visit) planAndRecord(ctx context.Context, coverage Coverage, source Source) error {
	var encoded []byte
	state, action := v.state, Action{}
	err := v.Store.DecideAndMark(ctx, v.scanner, v.settings.Receiver, func(ctx context.Context) (said store.Announced, err error) {
		if state, action, err = v.Planner.Plan(ctx, v.Now(), v.settings, v.state, coverage, source); err != nil {
			return said, err
		}
		if action.Mark == nil {
			return said, errOtherPlan
		}
		said = *action.Mark
		encoded, err = state.Encode()
		said.State = encoded
		return said, err
	})
	if err != nil {
		return fmt.Errorf("record what was said: %w", err)
	}
	v.state, v.stored, v.progress.Next = state, encoded, action.Until
	return nil
}

// carryOut executes one action.
func (v *visit) carryOut(ctx context.Context, action Action) error {
	if action.Mark != nil {
		return v.record(ctx, *action.Mark)
	}
	if action.Send == nil {
		return v.save(ctx)
	}
	if err := v.begin(ctx); err != nil {
		return err
	}
	outcome := v.Sender.Send(ctx, Delivery{Receiver: v.settings.Address, Digest: *action.Send})
	v.progress.Outcome = &outcome
	state, said, err := v.Planner.Settle(v.Now(), v.settings, v.state, outcome)
	if err != nil {
		return err
	}
	v.state = state
	if said != nil {
		return v.record(ctx, *said)
	}
	return v.save(ctx)
}

// record stores what was announced together with the state.
func (v *visit) record(ctx context.Context, said store.Announced) error {
	encoded, err := v.state.Encode()
	if err != nil {
		return err
	}
	said.State = encoded
	if err := v.Store.MarkAnnounced(ctx, v.scanner, v.settings.Receiver, said); err != nil {
		return fmt.Errorf("record what was said: %w", err)
	}
	v.stored = encoded
	return nil
}

// begin stores the state, with the message in the outbox, before the message is sent.
func (v *visit) begin(ctx context.Context) error {
	encoded, err := v.state.Encode()
	if err != nil {
		return err
	}
	number, err := v.Store.BeginDelivery(ctx, v.scanner, v.settings.Receiver, encoded)
	if err != nil {
		return fmt.Errorf("store the message: %w", err)
	}
	v.stored = encoded
	if v.Counted != nil {
		v.Counted(ctx, number)
	}
	return nil
}

// save stores the state if it has changed.
func (v *visit) save(ctx context.Context) error {
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

// FromStore returns the Source of one receiver. The scanner is the Scanner's UID.
func FromStore(s store.Announcements, scanner, receiver string) Source {
	return storeSource{s, scanner, receiver}
}

type storeSource struct {
	store             store.Announcements
	scanner, receiver string
}

func (s storeSource) News(ctx context.Context, f store.NewsFilter, limit int) ([]store.News, int, error) {
	return s.store.News(ctx, s.scanner, s.receiver, f, limit)
}

func (s storeSource) Present(ctx context.Context, f store.NewsFilter, worst int) (store.Present, error) {
	return s.store.Present(ctx, s.scanner, s.receiver, f, worst)
}

func (s storeSource) KnownRepositories(ctx context.Context) ([]string, error) {
	return s.store.KnownRepositories(ctx, s.scanner, s.receiver)
}
