package announce

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// State is what the store keeps of one receiver between two plans. It does not hold what was announced: the store records that for each
// finding.
type State struct {
	Baseline Baseline `json:"baseline"`
	// Engine is the engine whose findings are announced since the baseline; empty if it was never known.
	Engine string `json:"engine,omitempty"`
	// EarlierEngine are the repositories whose records are of an engine before Engine, sorted. Nothing in them counts as fixed until each of
	// their images in use has a result by Engine.
	EarlierEngine []string `json:"earlierEngine,omitempty"`
	// EarlierEngineUntil is when Engine replaced the engine of these records, or the time of the latest of them if that is later. After the
	// clock was set back, it may be in the future: records of Engine from before it then count as those of the earlier engine.
	EarlierEngineUntil time.Time `json:"earlierEngineUntil,omitzero"`
	// Tool is Engine with its version.
	Tool string `json:"tool,omitempty"`
	// Filter is the breadth of the receiver's filter at the last plan.
	Filter *Breadth `json:"filter,omitempty"`
	// RestoredFrom is Settings.RestoredFrom of the last restore that was handled.
	RestoredFrom time.Time `json:"restoredFrom,omitzero"`
	// Notices are those that were announced, by ID, until their end is announced.
	Notices map[string]AnnouncedNotice `json:"notices,omitempty"`
	// PendingSince is when the first change, new image or notice was noticed that is not announced yet; zero if there is none.
	PendingSince time.Time `json:"pendingSince,omitzero"`
	// Pending is the number of findings that wait to be announced, including those in the outbox.
	Pending int `json:"pending,omitempty"`
	// LastAttempt is when a message was last sent to the notifier. LastDelivery is when a message was last delivered.
	LastAttempt  time.Time `json:"lastAttempt,omitzero"`
	LastDelivery time.Time `json:"lastDelivery,omitzero"`
	// LastMessage is the title of the message that was delivered last.
	LastMessage string `json:"lastMessage,omitempty"`
	// NextAttempt is the earliest time of the next attempt; zero if there is nothing to wait for.
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// Failures is the number of failed attempts in a row. A rate limited attempt is no failure.
	Failures int `json:"failures,omitempty"`
	// Unanswered is the number of attempts since the last delivery that got no answer: the receiver may have the message of each. An
	// attempt is counted before it is made, so that a crash counts as unanswered. A refusal uncounts its own attempt.
	Unanswered int `json:"unanswered,omitempty"`
	// Unconfirmed describes the messages that were given up since the last delivery; nil if there are none.
	Unconfirmed *Unconfirmed `json:"unconfirmed,omitempty"`
	// Outbox holds the message that is to be delivered; nil if there is none. It is stored before the message is sent.
	Outbox *Outbox `json:"outbox,omitempty"`
	// Stopped is set while delivery cannot succeed before the user changes something.
	Stopped *Stopped `json:"stopped,omitempty"`
	// LastError describes the last attempt if it delivered nothing; nil after a delivery.
	LastError *DeliveryError `json:"lastError,omitempty"`
}

// Breadth describes how much a filter lets pass, regardless of the kinds of changes.
type Breadth struct {
	MinSeverity finding.Severity    `json:"minSeverity"`
	Unknown     store.UnknownPolicy `json:"unknown"`
	OnlyFixable bool                `json:"onlyFixable,omitempty"`
	// Reach is greater the more workloads are routed to the receiver: those that name it, also those that name none, or all.
	Reach int `json:"reach"`
}

// breadthOf returns the breadth of a filter.
func breadthOf(f store.ChangeFilter) Breadth {
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

// unknownRank ranks the policies for unknown severities by how much they let pass.
var unknownRank = map[store.UnknownPolicy]int{store.UnknownNever: 0, "": 1, store.UnknownIfFixable: 1, store.UnknownAlways: 2}

// widerThan reports whether b lets something pass that before did not.
func (b Breadth) widerThan(before Breadth) bool {
	return b.MinSeverity < before.MinSeverity || unknownRank[b.Unknown] > unknownRank[before.Unknown] ||
		!b.OnlyFixable && before.OnlyFixable || b.Reach > before.Reach
}

// AnnouncedNotice is a notice that was announced to the receiver.
type AnnouncedNotice struct {
	Notice Notice `json:"notice"`
	// AbsentSince is when the notice was first found to hold no more; zero while it holds.
	AbsentSince time.Time `json:"absentSince,omitzero"`
}

// Phase is the progress of a baseline.
type Phase string

// Phases of a baseline.
const (
	// BaselineNone is the zero value: nothing was planned for the receiver yet.
	BaselineNone Phase = ""
	// BaselineOpen means that images still join the snapshot, that their results are awaited, or that the summary is not delivered.
	BaselineOpen Phase = "Open"
	// BaselineDone means that the baseline was announced or recorded silently. From here on, differences are announced.
	BaselineDone Phase = "Done"
)

// Baseline is what is present before anything counts as new.
type Baseline struct {
	Phase Phase `json:"phase,omitempty"`
	// Renewed is true if an earlier store was lost.
	Renewed bool `json:"renewed,omitempty"`
	// EngineBefore is set while the baseline is open because the Scanner's engine was changed. It is the engine whose findings were
	// announced before.
	EngineBefore string `json:"engineBefore,omitempty"`
	// ToolBefore is set while the baseline is open because the engine has another version. It is the previous version. FilterBefore is set
	// while the baseline is open because the receiver's filter was widened. It is the previous breadth.
	ToolBefore   string   `json:"toolBefore,omitempty"`
	FilterBefore *Breadth `json:"filterBefore,omitempty"`
	// RestoredFrom is set while the baseline is open because the store was restored. It is the time of the backup. Any of these reasons may hold
	// together with EngineBefore.
	RestoredFrom time.Time `json:"restoredFrom,omitzero"`
	Started      time.Time `json:"started,omitzero"`
	// Waited is true once the baseline waited because nothing ran. Restarted is true once it has started again with the next image, which it
	// does only once: pods that live for less than GroupWait would keep it open for ever otherwise.
	Waited    bool `json:"waited,omitempty"`
	Restarted bool `json:"restarted,omitempty"`
	// Images are the keys of the images in the snapshot, until the baseline is done.
	Images []string `json:"images,omitempty"`
	// Pulling is true if some images had no key yet at the last plan, because nodes were still pulling them.
	Pulling bool `json:"pulling,omitempty"`
}

// finish marks the baseline as done and clears why it was open.
func (b *Baseline) finish() {
	b.Phase, b.Images, b.Waited, b.Restarted = BaselineDone, nil, false, false
	b.EngineBefore, b.ToolBefore, b.FilterBefore, b.RestoredFrom = "", "", nil, time.Time{}
}

// revertEngine removes the change of the engine from the reasons for the baseline, and finishes a baseline without another reason.
func (b *Baseline) revertEngine(now time.Time) {
	b.EngineBefore = ""
	if b.isFirst() {
		b.finish()
		return
	}
	b.Started, b.Images = now, nil
}

// onlyIfNotAnnounced reports whether the summary is sent only if it contains findings that were not announced before.
func (b *Baseline) onlyIfNotAnnounced() bool {
	return b.EngineBefore == "" && (b.ToolBefore != "" || b.FilterBefore != nil || b.isRestore())
}

// isFirst reports whether nothing was announced to the receiver before this baseline.
func (b *Baseline) isFirst() bool {
	return b.EngineBefore == "" && !b.onlyIfNotAnnounced() && !b.Renewed
}

// isRestore reports whether the store was restored.
func (b *Baseline) isRestore() bool {
	return !b.RestoredFrom.IsZero()
}

// summarizesAll reports whether a summary of everything present is still to be delivered. Until then nothing becomes known without a message.
func (b *Baseline) summarizesAll() bool { return b.Phase != BaselineDone && !b.onlyIfNotAnnounced() }

// Outbox holds a message, and what counts as announced once it is delivered. The findings of a summary are too many to be held here: the
// store records them under the message's ID when the message is composed.
type Outbox struct {
	Message      Message                  `json:"digest"`
	Announced    []store.AnnouncedFinding `json:"said,omitempty"`
	Repositories []string                 `json:"repositories,omitempty"`
	// Findings is the number of findings that count as announced by the message, including those that Announced does not list.
	Findings int `json:"findings,omitempty"`
	// LatestUnanswered is true while the latest attempt has no answer. The receiver may have the message.
	LatestUnanswered bool `json:"inDoubt,omitempty"`
	// EarlierUnanswered is true if an attempt before the latest one has no answer. A refusal of the latest attempt does not change it.
	EarlierUnanswered bool `json:"earlierInDoubt,omitempty"`
	// RefusedSince is the time of the first refusal after the latest unanswered attempt; zero if there is none. It starts anew when the
	// message became too old while no manager ran.
	RefusedSince time.Time `json:"refusedSince,omitzero"`
}

// staleAt returns how long the message stays as composed while its latest attempt was refused, or none was made. A KindChanges message that
// the receiver certainly does not have is out of date soon. A message that the receiver may have must first be refused for maxOutboxAge.
// Otherwise a manager that did not run for that long would give it up after a single attempt.
func (o *Outbox) staleAt() time.Time {
	switch {
	case o.EarlierUnanswered:
		return later(o.Message.CreatedAt, o.RefusedSince).Add(maxOutboxAge)
	case o.Message.Kind == KindChanges:
		return o.Message.CreatedAt.Add(maxChangesAge)
	}
	return o.Message.CreatedAt.Add(maxOutboxAge)
}

// Unconfirmed describes messages that were sent, never answered and given up. The receiver may have them or not.
type Unconfirmed struct {
	// Count is the number of messages. Since is when the first of them was given up.
	Count int       `json:"count"`
	Since time.Time `json:"since"`
	// Title is the title of the latest of these messages.
	Title string `json:"title"`
}

// Stopped describes why delivery is stopped until the user changes something.
type Stopped struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	// Generation is the Scanner's generation at the last attempt.
	Generation int64 `json:"generation"`
}

// DeliveryError describes one failed attempt.
type DeliveryError struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// ParseState decodes a stored state. Empty data gives the zero State.
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

// Encode returns the form in which the state is stored. ParseState decodes it.
func (s State) Encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("state of a receiver: %w", err)
	}
	return data, nil
}
