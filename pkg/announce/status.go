package announce

import (
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// ReceiverStatus is the part of a receiver's state that users see.
type ReceiverStatus struct {
	// Begun is true once the receiver's baseline in this store is open or done. A Scanner may record a new store's ID only when all its
	// receivers have begun. Otherwise the loss of the old store would not be announced.
	Begun bool
	// BaselineDone is true once the baseline was announced to the receiver, or was recorded without a message.
	BaselineDone bool
	// LastDelivery is the time of the last delivered message; zero if there is none.
	LastDelivery time.Time
	// LastMessage is the title of that message.
	LastMessage string
	// Pending is the number of findings that wait to be announced.
	Pending int
	// Sending is true while a message is in the outbox.
	Sending bool
	// LastErrorReason (one word) and LastError (for people, at most MaxMessageBytes) describe the last attempt and unconfirmed messages.
	// Both are empty after a delivery.
	LastErrorReason, LastError string
	// Stopped is true while delivery cannot succeed before the user changes something.
	Stopped      bool
	StoppedSince time.Time
	// Unconfirmed describes the messages given up since the last delivery; nil if there are none. LastError mentions them too.
	Unconfirmed *Unconfirmed
}

// Status decodes a receiver's stored state. A receiver without stored state has the zero ReceiverStatus.
func Status(state []byte) (ReceiverStatus, error) {
	s, err := ParseState(state)
	if err != nil {
		return ReceiverStatus{}, err
	}
	status := ReceiverStatus{
		Begun:        s.Baseline.Phase != BaselineNone,
		BaselineDone: s.Baseline.Phase == BaselineDone,
		LastDelivery: s.LastDelivery,
		LastMessage:  s.LastMessage,
		Pending:      s.Pending,
		Sending:      s.Outbox != nil,
	}
	if s.LastError != nil {
		status.LastErrorReason, status.LastError = s.LastError.Reason, s.LastError.Message
	}
	if s.Unconfirmed != nil {
		status.Unconfirmed = s.Unconfirmed
		status.addUnconfirmed()
	}
	if s.Stopped != nil {
		status.Stopped, status.StoppedSince = true, s.Stopped.Since
	}
	return status, nil
}

// addUnconfirmed puts the messages that were given up in front of the last attempt's error. A reason that needs action by the user stays
// the reason.
func (s *ReceiverStatus) addUnconfirmed() {
	if s.LastErrorReason == "" || s.LastErrorReason == ReasonAnswerLost {
		s.LastErrorReason = ReasonUnconfirmed
	}
	described := s.Unconfirmed.Describe()
	if s.LastError != "" {
		described += "; " + s.LastError
	}
	s.LastError = text.Truncate(described, MaxMessageBytes)
}

// Describe returns a sentence for users: which messages were never confirmed, and what to check.
func (u Unconfirmed) Describe() string {
	return fmt.Sprintf("%s sent since %s and never confirmed, the last one %q: they may be missing in the channel, or be there many times; "+
		"check the proxy between the notifier and the receiver. What they say counts as announced and is in the log of messages",
		pluralize(u.Count, "message"), u.Since.UTC().Format(time.RFC3339), text.Truncate(u.Title, MaxTitleBytes))
}
