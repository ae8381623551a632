package backoff_test

import (
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backoff"
)

// TestAfter: the delay doubles with each attempt up to its bound, for any number of attempts.
func TestAfter(t *testing.T) {
	for attempts, want := range map[int]time.Duration{
		-1: 0, 0: 0, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 5 * time.Second, 5: 5 * time.Second, 1 << 62: 5 * time.Second,
	} {
		if got := backoff.After(attempts, time.Second, 5*time.Second); got != want {
			t.Errorf("after %d attempts the delay is %s, want %s", attempts, got, want)
		}
	}
}

// TestNext: the delay doubles within its bounds, also after a delay outside of them.
func TestNext(t *testing.T) {
	for previous, want := range map[time.Duration]time.Duration{
		-time.Minute: time.Second, 0: time.Second, time.Second: 2 * time.Second, 4 * time.Second: 5 * time.Second, time.Hour: 5 * time.Second,
	} {
		if got := backoff.Next(previous, time.Second, 5*time.Second); got != want {
			t.Errorf("after %s the delay is %s, want %s", previous, got, want)
		}
	}
}
