package client

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// FuzzAnswer: whatever answers for the notifier, a message counts as delivered only with the notifier's own outcome and its status. An answer that does not
// say what happened to the message is never taken for one that says so.
func FuzzAnswer(f *testing.F) {
	f.Add(uint16(200), []byte(`{"result":"Delivered","timestamp":"1.2","inThread":true}`))
	f.Add(uint16(429), []byte(`{"result":"RateLimited","reason":"ReceiverLimited","retryAfter":1000000000}`))
	f.Add(uint16(502), []byte(`{"result":"Delivered"}`))
	f.Add(uint16(200), []byte(`{"result":"RateLimited","retryAfter":-1}`))
	f.Add(uint16(409), []byte(`{"reason":"Deposed","epoch":7}`))
	f.Add(uint16(409), []byte(`{"reason":"Deposed","epoch":"7"}`))
	f.Add(uint16(503), []byte(strings.Repeat("no ", 1000)))
	f.Add(uint16(200), []byte("<html>"))
	known := []announce.Result{announce.Delivered, announce.RateLimited, announce.Permanent, announce.Temporary, announce.UnknownOutcome}
	unsent := []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable,
	}
	f.Fuzz(func(t *testing.T, status uint16, body []byte) {
		a := answer{sent: true, status: int(status), body: body}
		o := a.outcome(3)
		if !slices.Contains(known, o.Result) {
			t.Fatalf("%d %q is taken for %+v", status, body, o)
		}
		switch {
		case o.Result == announce.Delivered && status != http.StatusOK:
			t.Errorf("%d %q is taken for a delivered message", status, body)
		case slices.Contains(unsent, a.status) && o.Result != announce.Temporary:
			t.Errorf("%d %q, which says that the message was not sent, is taken for %s", status, body, o.Result)
		case o.Reason == announce.ReasonDeposed && announce.StatusCodes[o.Result] != a.status && a.deposed(3) == nil:
			t.Errorf("%d %q is taken for the refusal of a manager that does not lead any more", status, body)
		}
		if deposed := a.deposed(3); deposed != nil && a.status != http.StatusConflict {
			t.Errorf("%d %q: %v", status, body, deposed)
		}
	})
}
