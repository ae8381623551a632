package announce

import (
	"encoding/json"
	"fmt"
	"time"
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
	// Namespaces are those of a ClusterScanner's coverage that the receiver knows, sorted: they were covered at the end of the baseline, or their
	// joining was announced. Joining are those that joined later and are not known yet, with the time at which a plan first found them.
	Namespaces []string             `json:"namespaces,omitempty"`
	Joining    map[string]time.Time `json:"joining,omitempty"`
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
	// Summary is the state of scheduled summaries; nil without a schedule.
	Summary *SummaryState `json:"summary,omitempty"`
	// Batch are the timestamps of the threads in which replies of the current notification batch are still to be sent, in order. They wait
	// for no further GroupInterval.
	Batch []string `json:"batch,omitempty"`
	// Alerts are those of the last delivery to a receiver that keeps a state, which resolve at AlertsEnd unless they are sent again.
	Alerts    []FiringAlert `json:"alerts,omitempty"`
	AlertsEnd time.Time     `json:"alertsEnd,omitzero"`
	// Stopped is set while delivery cannot succeed before the user changes something.
	Stopped *Stopped `json:"stopped,omitempty"`
	// Test is the last test message; nil if none was requested.
	Test *TestMessage `json:"test,omitempty"`
	// LastError describes the last attempt if it delivered nothing; nil after a delivery.
	LastError *DeliveryError `json:"lastError,omitempty"`
}

// AnnouncedNotice is a notice that was announced to the receiver.
type AnnouncedNotice struct {
	Notice Notice `json:"notice"`
	// AbsentSince is when the notice was first found to hold no more; zero while it holds.
	AbsentSince time.Time `json:"absentSince,omitzero"`
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
