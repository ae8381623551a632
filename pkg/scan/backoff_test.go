package scan

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBackoffProperties: the delay until the next attempt never decreases, and is between a minute and an hour unless the failure asks for
// more.
func TestBackoffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		attempts := rapid.Int32Range(1, 1<<30).Draw(t, "failed attempts")
		wish := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(7*time.Hour)).Draw(t, "wish"))
		wait := Backoff(attempts, wish, nil)
		if wait < MinRetry || wait > max(MaxRetry, wish) || wait < wish {
			t.Errorf("after %d attempts the next is in %s, with a wish for %s", attempts, wait, wish)
		}
		if next := Backoff(attempts+1, wish, nil); next < wait {
			t.Errorf("the next wait is shorter: %s after %s", next, wait)
		}
	})
}
