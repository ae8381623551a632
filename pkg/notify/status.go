package notify

import (
	"fmt"
	"time"
)

// ReceiverStatus is what is shown of a receiver.
type ReceiverStatus struct {
	// Begun says that the receiver was seen with this store: its baseline is open or done. A Scanner may
	// remember a new store's id only when all its receivers have begun, or the loss would go unsaid.
	Begun bool
	// BaselineDone says that the receiver knows, or was spared, what was there at the beginning.
	BaselineDone bool
	// LastDelivery is when the receiver last took a message; zero if never.
	LastDelivery time.Time
	// LastMessage is the title of that message.
	LastMessage string
	// Pending is the number of findings that wait to be told.
	Pending int
	// Sending says that a message is on its way.
	Sending bool
	// LastErrorReason (one word) and LastError (for people, at most MaxMessageBytes) are about the last
	// attempt; empty after a success.
	LastErrorReason, LastError string
	// Stopped says that nothing but a change by the user helps.
	Stopped      bool
	StoppedSince time.Time
	// Unconfirmed describes messages that were given up since the last delivery; nil if there are none. LastError says so as well.
	Unconfirmed *Unconfirmed
}

// Status reads a receiver's stored state. The state of a receiver that was never seen is empty.
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

// addUnconfirmed puts the messages that were given up before the error of the last attempt. A reason that the user has to act on stays
// the reason.
func (s *ReceiverStatus) addUnconfirmed() {
	if s.LastErrorReason == "" || s.LastErrorReason == ReasonAnswerLost {
		s.LastErrorReason = ReasonUnconfirmed
	}
	text := s.Unconfirmed.Describe()
	if s.LastError != "" {
		text += "; " + s.LastError
	}
	s.LastError = clip(text, MaxMessageBytes)
}

// Describe says what happened, and what to do.
func (u Unconfirmed) Describe() string {
	return fmt.Sprintf("%s sent since %s and never confirmed, the last one %q: they may be missing in the channel, or be there many times; "+
		"check the proxy between the notifier and the receiver. What they say counts as announced and is in the log of messages",
		countOf(u.Count, "message"), u.Since.UTC().Format(time.RFC3339), clip(u.Title, MaxTitleBytes))
}
