package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// The wait between attempts starts with firstWait and doubles up to lastWait.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 20 * time.Second
)

// temporary marks an error that a retry may resolve.
type temporary struct {
	err error
	// after is the wait that the server asked for; 0 if it did not ask for one.
	after time.Duration
}

// Error and Unwrap return the text and the cause of the marked error.
func (t *temporary) Error() string { return t.err.Error() }
func (t *temporary) Unwrap() error { return t.err }

// ErrUnreachable is wrapped by the error of a call whose deadline has passed, unless the server had no room for the upload.
var ErrUnreachable = errors.New("the ingest API could not be reached")

// call retries the request until it succeeds, is refused, or the deadline has passed.
func (c *Client) call(ctx context.Context, call call) error {
	start, wait := c.config.Clock.Now(), firstWait
	var noRoom error
	for {
		err := c.attempt(ctx, call)
		if HasStatus(err, http.StatusInsufficientStorage) {
			noRoom = err
		}
		var again *temporary
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &again):
			return fmt.Errorf("%s %s: %w", call.method, call.path, err)
		}
		// Checked after the attempt, so that a call is tried at least once.
		if elapsed := c.config.Clock.Now().Sub(start); elapsed >= Deadline {
			return deadlineError(fmt.Errorf("for %s: %s %s: %w", elapsed.Round(time.Second), call.method, call.path, err), noRoom)
		}
		// The server may ask for a longer wait, of up to a minute.
		pause := max(c.config.Clock.Jitter(wait), min(again.after, time.Minute))
		c.config.Log.Warn("the ingest API is not available, retrying", "call", call.method+" "+call.path,
			"in", pause.Round(time.Millisecond), "error", failure.Line(err.Error()))
		if err := c.config.Clock.Sleep(ctx, pause); err != nil {
			return err
		}
		wait = min(2*wait, lastWait)
	}
}

// deadlineError returns the error of a call whose deadline has passed. noRoom is the latest answer of the call that says that the server has
// no room for the upload; nil if there was none. The reason is SpoolBudgetExceeded then, even if the last attempt lost its connection,
// since the server was reachable.
func deadlineError(err, noRoom error) error {
	switch {
	case HasStatus(err, http.StatusInsufficientStorage):
		return failure.New(workerapi.ReasonSpoolBudget, fmt.Errorf("the operator had no space for the upload %w", err))
	case noRoom != nil:
		return failure.New(workerapi.ReasonSpoolBudget, fmt.Errorf("the operator had no space for the upload: %w; the last attempt failed %w", noRoom, err))
	}
	return failure.New(workerapi.ReasonIngestUnreachable, fmt.Errorf("%w %w", ErrUnreachable, err))
}

// retryAfter parses a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3).
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return max(time.Duration(seconds)*time.Second, 0)
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}
