// Package outcometest checks what holds for the outcome of every receiver and tool, whatever a server has answered. Only tests import it.
package outcometest

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Check returns why the notifier may not pass on an outcome; nil if it may. An outcome has a known result and, unless the message was delivered, a
// reason. Its message is one bounded line without markup, and it has a bounded wait exactly if it is rate limited.
func Check(o announce.Outcome) error {
	isLimited := o.Result == announce.RateLimited
	switch {
	case announce.StatusCodes[o.Result] == 0 || o.Reason == "" && (o.Result != announce.Delivered || o.Message != ""):
		return fmt.Errorf("the outcome is %+v", o)
	case len(o.Message) > announce.MaxMessageBytes, !utf8.ValidString(o.Message), strings.ContainsFunc(o.Message, unicode.IsControl), strings.ContainsAny(o.Message, "<>"):
		return fmt.Errorf("the message is %q", o.Message)
	case isLimited != (o.RetryAfter != 0), isLimited && (o.RetryAfter < time.Second || o.RetryAfter > time.Hour):
		return fmt.Errorf("%s with a wait of %s", o.Result, o.RetryAfter)
	}
	return nil
}
