package backend

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestFailureMemo checks that each failure is remembered for its time, that this time can only be shortened, and that Set drops what is over.
func TestFailureMemo(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))
	m := FailureMemo[string]{Clock: clock}
	first, second := &Failure{Reason: "First"}, &Failure{Reason: "Second"}
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	want := func(what, key string, failure *Failure) {
		t.Helper()
		if got := m.Get(key); got != failure {
			t.Errorf("%s: got %v, want %v", what, got, failure)
		}
	}
	m.Shorten("a", time.Minute)
	want("before it was set", "a", nil)
	m.Set("a", first, time.Hour)
	m.Set("b", second, time.Minute)
	want("another key", "b", second)
	pass(time.Minute)
	want("when its time is over", "b", nil)
	m.Shorten("a", 2*time.Hour)
	m.Shorten("a", time.Minute)
	want("when its time was shortened", "a", first)
	pass(time.Minute)
	want("after the shorter time", "a", nil)
	m.Set("a", second, time.Minute)
	want("set again", "a", second)
	if len(m.known) != 1 {
		t.Errorf("%d failures are kept, want the one whose time is not over", len(m.known))
	}
}
