package announce

import (
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Begun reports whether the receiver's baseline in this store is open or done. A Scanner may record a new store's ID only when all its
// receivers have begun. Otherwise the loss of the old store would not be announced.
func (s State) Begun() bool { return s.Baseline.Phase != BaselineNone }

// Problem describes the last attempt's error and the unconfirmed messages: one word, and a text for people of at most MaxMessageBytes. Both
// are empty after a delivery. A reason that needs action by the user comes before ReasonUnconfirmed.
func (s State) Problem() (reason, message string) {
	if s.LastError != nil {
		reason, message = s.LastError.Reason, s.LastError.Message
	}
	if s.Unconfirmed == nil {
		return reason, message
	}
	if reason == "" || reason == ReasonAnswerLost {
		reason = ReasonUnconfirmed
	}
	described := s.Unconfirmed.Describe()
	if message != "" {
		described += "; " + message
	}
	return reason, text.Truncate(described, MaxMessageBytes)
}

// Describe returns a sentence for users: which messages were never confirmed, and what to check.
func (u Unconfirmed) Describe() string {
	return fmt.Sprintf("%s sent since %s and never confirmed, the last one %q: they may be missing in the channel, or be there many times; "+
		"check the proxy between the notifier and the receiver. Their findings count as announced, and the log of messages has them",
		Pluralize(u.Count, "message"), u.Since.UTC().Format(time.RFC3339), text.Truncate(u.Title, MaxTitleBytes))
}
