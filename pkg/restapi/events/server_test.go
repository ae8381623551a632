package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// deadlineWriter records the deadline at each write.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	atWrite  []time.Time
}

func (w *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	w.deadline = deadline
	return nil
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	w.atWrite = append(w.atWrite, w.deadline)
	return w.ResponseRecorder.Write(b)
}

// TestDeadlines checks that each write of server-sent events has a deadline, and that none is left for the time between two events. net/http
// ends a stream of HTTP/2 when its deadline passes, also while nothing is written.
func TestDeadlines(t *testing.T) {
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	to := &eventStream{w: w, controller: http.NewResponseController(w)}
	for range 2 {
		if err := write(context.Background(), to, restv1.Event{Type: restv1.EventKeepAlive}); err != nil {
			t.Fatal(err)
		}
		if !w.deadline.IsZero() {
			t.Errorf("after an event the deadline is %s, want none", w.deadline)
		}
	}
	for _, deadline := range w.atWrite {
		if left := time.Until(deadline); left <= 0 || left > writeTimeout {
			t.Errorf("a write has %s, want at most %s", left, writeTimeout)
		}
	}
	if n := strings.Count(w.Body.String(), "data: {\"type\":\"keepAlive\"}\n\n"); n != 2 {
		t.Errorf("the events are %q, want two that keep the stream alive", w.Body)
	}
}

// TestStreamsOfATenant checks that somebody who may create many users does not get all streams.
func TestStreamsOfATenant(t *testing.T) {
	s := &Server{}
	var releases []func()
	for i := range MaxStreamsPerTenant {
		release, err := s.Acquire("shop", fmt.Sprint("account-", i))
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		releases = append(releases, release)
	}
	if _, err := s.Acquire("shop", "one more"); !errors.Is(err, ErrTooManyOfTenant) {
		t.Errorf("one stream more: %v, want %v", err, ErrTooManyOfTenant)
	}
	other, err := s.Acquire("jane", "jane")
	if err != nil {
		t.Fatalf("a stream of somebody else: %v", err)
	}
	for _, release := range append(releases, other) {
		release()
	}
	if s.Open() != 0 {
		t.Errorf("%d streams are open after all have ended", s.Open())
	}
}
