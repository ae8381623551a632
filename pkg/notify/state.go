package notify

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// State is what is remembered about one receiver between two looks at it. What it was told is not here: the
// store knows that for each finding.
type State struct {
	Baseline Baseline `json:"baseline"`
	// Engine whose findings the receiver is told of since its baseline; empty if that was never known.
	Engine string `json:"engine,omitempty"`
	// Tool is that engine with its version.
	Tool string `json:"tool,omitempty"`
	// Filter is what the receiver heard of when it was last looked at.
	Filter *Breadth `json:"filter,omitempty"`
	// RestoredFrom is that of the settings when they were last followed.
	RestoredFrom time.Time `json:"restoredFrom,omitzero"`
	// Notices that the receiver was told of, by id, until it was told that they are over.
	Notices map[string]ToldNotice `json:"notices,omitempty"`
	// PendingSince is when the first thing was noticed that the receiver has not heard of; zero if there is none.
	PendingSince time.Time `json:"pendingSince,omitzero"`
	// Pending is the number of findings that wait to be told, those in the outbox included.
	Pending int `json:"pending,omitempty"`
	// LastAttempt and LastDelivery are when a message was last handed to the notifier, and last taken.
	LastAttempt  time.Time `json:"lastAttempt,omitzero"`
	LastDelivery time.Time `json:"lastDelivery,omitzero"`
	// LastMessage is the title of the message that was last taken.
	LastMessage string `json:"lastMessage,omitempty"`
	// NextAttempt is the earliest time to hand anything to the notifier; zero if there is no reason to wait.
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// Failures is the number of attempts in a row that failed. Being asked to come back later is no failure.
	Failures int `json:"failures,omitempty"`
	// Unanswered is the number of attempts since the last delivery that nobody answered: the receiver may have each of these messages.
	// An attempt counts before it is made, so that a crash counts as well. A refusal takes its own attempt back.
	Unanswered int `json:"unanswered,omitempty"`
	// Unconfirmed describes the messages that were given up since the last delivery; nil if there are none.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
	// Outbox is the message on its way; nil if there is none. It is stored before it is sent.
	Outbox *Outbox `json:"outbox,omitempty"`
	// Stopped is set while nothing but a change by the user helps.
	Stopped *Stopped `json:"stopped,omitempty"`
	// LastError is why the last attempt failed; nil after a success.
	LastError *Trouble `json:"lastError,omitempty"`
}

// Breadth is what a filter lets pass, apart from changes.
type Breadth struct {
	MinSeverity finding.Severity    `json:"minSeverity"`
	Unknown     store.UnknownPolicy `json:"unknown"`
	OnlyFixable bool                `json:"onlyFixable,omitempty"`
	// Reach rises with the workloads that concern the receiver: those that name it, those too that name none, all.
	Reach int `json:"reach"`
}

// breadthOf describes a filter.
func breadthOf(f store.NewsFilter) Breadth {
	b := Breadth{MinSeverity: f.MinSeverity, Unknown: f.Unknown, OnlyFixable: f.OnlyFixable, Reach: reachAll}
	if f.Route != nil {
		b.Reach = reachOwn
		if f.Route.Unassigned {
			b.Reach = reachUnassigned
		}
	}
	return b
}

// Values of Breadth.Reach.
const (
	reachOwn = iota
	reachUnassigned
	reachAll
)

// unknowns says how much each policy for unknown severities lets pass.
var unknowns = map[store.UnknownPolicy]int{store.UnknownNever: 0, "": 1, store.UnknownIfFixable: 1, store.UnknownAlways: 2}

// widerThan says whether something passes that did not pass before.
func (b Breadth) widerThan(before Breadth) bool {
	return b.MinSeverity < before.MinSeverity || unknowns[b.Unknown] > unknowns[before.Unknown] ||
		!b.OnlyFixable && before.OnlyFixable || b.Reach > before.Reach
}

// ToldNotice is a notice that a receiver was told of.
type ToldNotice struct {
	Notice Notice `json:"notice"`
	// AbsentSince is when it was first seen not to be true any more; zero while it is.
	AbsentSince time.Time `json:"absentSince,omitzero"`
}

// Phase says how far a baseline is.
type Phase string

// Phases of a baseline.
const (
	// BaselineNone is the zero value: the receiver has not been seen yet.
	BaselineNone Phase = ""
	// BaselineOpen still takes images into the snapshot, or waits for their results.
	BaselineOpen Phase = "Open"
	// BaselineDone is reached when the receiver knows, or is spared, what was there: from here on differences count.
	BaselineDone Phase = "Done"
)

// Baseline is what was there before anything could be called new.
type Baseline struct {
	Phase Phase `json:"phase,omitempty"`
	// Renewed says that an earlier store was lost.
	Renewed bool `json:"renewed,omitempty"`
	// EngineBefore is the engine that the receiver was told of until the Scanner got another one, which is why there is
	// this baseline. Empty for any other, and when the baseline is done.
	EngineBefore string `json:"engineBefore,omitempty"`
	// ToolBefore is, in the same way, the version of the engine until the Scanner got another one of the same engine, and
	// FilterBefore what the receiver heard of until it was set to hear of more.
	ToolBefore   string   `json:"toolBefore,omitempty"`
	FilterBefore *Breadth `json:"filterBefore,omitempty"`
	// RestoredFrom is, in the same way, when the backup was made that the store was restored from.
	RestoredFrom time.Time `json:"restoredFrom,omitzero"`
	Started      time.Time `json:"started,omitzero"`
	// Images of the snapshot, by key, until the baseline is done.
	Images []string `json:"images,omitempty"`
	// Pulling says that some images had no key yet when they were last looked at.
	Pulling bool `json:"pulling,omitempty"`
}

// finish ends the baseline.
func (b *Baseline) finish() {
	b.Phase, b.Images = BaselineDone, nil
	b.EngineBefore, b.ToolBefore, b.FilterBefore, b.RestoredFrom = "", "", nil, time.Time{}
}

// onlyIfUntold says that a summary is worth a message only if there is something in it that the receiver was not told.
func (b *Baseline) onlyIfUntold() bool {
	return b.EngineBefore == "" && (b.ToolBefore != "" || b.FilterBefore != nil || b.restored())
}

// first reports whether the receiver has never been sent anything that the baseline could make look new.
func (b *Baseline) first() bool { return b.EngineBefore == "" && !b.onlyIfUntold() && !b.Renewed }

// restored says that the baseline is there since the store was restored.
func (b *Baseline) restored() bool {
	return !b.RestoredFrom.IsZero()
}

// tellsAll says that a summary of all that is there is still to come, or on its way: until then nothing is known silently.
func (b *Baseline) tellsAll() bool { return b.Phase != BaselineDone && !b.onlyIfUntold() }

// followUp is how much of what is recorded of the receiver may be brought up to date now, by what an engine finds. An engine that the
// state does not follow yet fixes nothing.
func (s *State) followUp(engine string) store.Extent {
	switch {
	case s.Outbox != nil:
		return store.FollowExceptions
	case s.Baseline.tellsAll(), s.Engine != "" && engine != "" && engine != s.Engine:
		return store.FollowKnown
	}
	return store.FollowAll
}

// Outbox holds a message, and what the receiver has heard of once it is delivered. What a summary passes over is
// too much for it: the store has that under the message's id from the moment that it is composed.
type Outbox struct {
	Digest       Digest       `json:"digest"`
	Said         []store.Said `json:"said,omitempty"`
	Repositories []string     `json:"repositories,omitempty"`
	// Findings is how many count as told by it, those without a key here included.
	Findings int `json:"findings,omitempty"`
	// InDoubt is true while the latest attempt has no answer: the receiver may have the message.
	InDoubt bool `json:"inDoubt,omitempty"`
	// EarlierInDoubt is true if an attempt before the latest one has no answer. A refusal of the latest attempt does not change that.
	EarlierInDoubt bool `json:"earlierInDoubt,omitempty"`
	// RefusedSince is when the first attempt after the latest one without an answer, or after a time without a manager in which the message
	// became too old, was refused; zero if none was.
	RefusedSince time.Time `json:"refusedSince,omitzero"`
}

// keptUntil is how long the message stays as it was composed while its latest attempt was refused, or none was made. News that the receiver
// certainly does not have is out of date soon. What the receiver may have is refused for a day first: a manager that was away for as long
// would give it up after a single attempt.
func (o *Outbox) keptUntil() time.Time {
	switch {
	case o.EarlierInDoubt:
		return later(o.Digest.CreatedAt, o.RefusedSince).Add(outboxAge)
	case o.Digest.Kind == KindNews:
		return o.Digest.CreatedAt.Add(newsAge)
	}
	return o.Digest.CreatedAt.Add(outboxAge)
}

// Unconfirmed describes messages that were sent, never answered, and given up. The receiver may have them or not.
type Unconfirmed struct {
	// Count is the number of messages, Since the time when the first of them was given up.
	Count int       `json:"count"`
	Since time.Time `json:"since"`
	// Title is that of the latest of them.
	Title string `json:"title"`
}

// Stopped says why nothing is sent until somebody changes something.
type Stopped struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	// Generation of the Scanner that was tried last.
	Generation int64 `json:"generation"`
}

// Trouble is one failed attempt.
type Trouble struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// ParseState reads a stored state; nil or empty is that of a receiver that was never seen.
func ParseState(data []byte) (State, error) {
	var state State
	if len(data) == 0 {
		return state, nil
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return State{}, fmt.Errorf("stored state of a receiver: %w", err)
	}
	return state, nil
}

// Encode returns the form in which a state is stored. ParseState reads it.
func (s State) Encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("state of a receiver: %w", err)
	}
	return data, nil
}
