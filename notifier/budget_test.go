package notifier_test

import (
	"context"
	"errors"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/notifier"
)

// TestBudget: one post a second; who would have to wait for more than 5 seconds is told how long, and uses nothing up.
func TestBudget(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	var waited []time.Duration
	budget := notifier.NewBudget(clock, func(_ context.Context, d time.Duration) error {
		waited = append(waited, d) // time stands still, as for requests that come together
		return nil
	})
	ctx := context.Background()
	for range 6 {
		if later, err := budget.Take(ctx, "a"); later != 0 || err != nil {
			t.Fatalf("later %s, error %v, want neither", later, err)
		}
	}
	for i, d := range waited {
		if want := time.Duration(i+1) * time.Second; d != want {
			t.Errorf("post %d waited %s, want %s", i+2, d, want)
		}
	}
	for range 2 {
		if later, _ := budget.Take(ctx, "a"); later != 6*time.Second {
			t.Errorf("told to come back after %s, want 6s", later)
		}
	}
	if later, _ := budget.Take(ctx, "b"); later != 0 || len(waited) != 5 {
		t.Errorf("another webhook has to wait %s, want not at all", later)
	}
	clock.SetTime(noon.Add(6 * time.Second))
	if later, err := budget.Take(ctx, "a"); later != 0 || err != nil || len(waited) != 5 {
		t.Errorf("later %s, error %v after the time told, want neither and no waiting", later, err)
	}
}

// TestBudgetPause: a pause holds for all posts to an address; a shorter one does not end it.
func TestBudgetPause(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	var waited time.Duration
	budget := notifier.NewBudget(clock, func(_ context.Context, d time.Duration) error { waited = d; return nil })
	ctx := context.Background()
	budget.Pause("a", time.Minute)
	budget.Pause("a", time.Second)
	if later, _ := budget.Take(ctx, "a"); later != time.Minute {
		t.Errorf("told to come back after %s, want 1m", later)
	}
	clock.SetTime(noon.Add(57 * time.Second))
	if later, _ := budget.Take(ctx, "a"); later != 0 || waited != 3*time.Second {
		t.Errorf("later %s, waited %s, want to wait the last 3s", later, waited)
	}
}

// TestBudgetEndsWithTheRequest: whoever has no time left takes no post.
func TestBudgetEndsWithTheRequest(t *testing.T) {
	budget := notifier.NewBudget(testingclock.NewFakePassiveClock(noon), notifier.Sleep)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := budget.Take(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if _, err := budget.Take(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v while waiting, want that of the context", err)
	}
}
