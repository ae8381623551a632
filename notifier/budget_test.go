package notifier_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/notifier"
)

// never returns 0: no jitter.
func never() float64 { return 0 }

// TestBudget: there is one post per second. A caller that would wait for more than 5 seconds gets the time of its slot, and keeps the slot.
func TestBudget(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	var waited []time.Duration
	budget := notifier.NewBudget(clock, func(_ context.Context, d time.Duration) error {
		waited = append(waited, d) // time stands still, as for concurrent requests
		return nil
	}, never)
	ctx := context.Background()
	for i := range 6 {
		if later, err := budget.Take(ctx, "a", fmt.Sprint(i)); later != 0 || err != nil {
			t.Fatalf("later %s, error %v, want neither", later, err)
		}
	}
	for i, d := range waited {
		if want := time.Duration(i+1) * time.Second; d != want {
			t.Errorf("post %d waited %s, want %s", i+2, d, want)
		}
	}
	for range 2 {
		if later, _ := budget.Take(ctx, "a", "x"); later != 6*time.Second {
			t.Errorf("the retry is due after %s, want 6s, however often it is requested", later)
		}
	}
	if later, _ := budget.Take(ctx, "a", "y"); later != 7*time.Second {
		t.Errorf("the next retry is due after %s, want 7s", later)
	}
	if later, _ := budget.Take(ctx, "b", "x"); later != 0 || len(waited) != 5 {
		t.Errorf("another webhook has to wait %s, want not at all", later)
	}
	clock.SetTime(noon.Add(6 * time.Second))
	if later, err := budget.Take(ctx, "a", "x"); later != 0 || err != nil || len(waited) != 5 {
		t.Errorf("later %s, error %v after that time, want neither and no waiting", later, err)
	}
}

// TestBudgetPause: a pause holds for all posts to an address, and a shorter pause does not end it.
func TestBudgetPause(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	var waited time.Duration
	budget := notifier.NewBudget(clock, func(_ context.Context, d time.Duration) error { waited = d; return nil }, never)
	ctx := context.Background()
	budget.Pause("a", time.Minute)
	budget.Pause("a", time.Second)
	if later, _ := budget.Take(ctx, "a", "x"); later != time.Minute {
		t.Errorf("the retry is due after %s, want 1m", later)
	}
	clock.SetTime(noon.Add(57 * time.Second))
	if later, _ := budget.Take(ctx, "a", "x"); later != 0 || waited != 3*time.Second {
		t.Errorf("later %s, waited %s, want to wait the last 3s", later, waited)
	}
}

// TestBudgetEndsWithTheRequest: Take returns the context's error when the context has ended.
func TestBudgetEndsWithTheRequest(t *testing.T) {
	budget := notifier.NewBudget(testingclock.NewFakePassiveClock(noon), notifier.Sleep, never)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := budget.Take(ctx, "a", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if _, err := budget.Take(ctx, "a", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v while waiting, want that of the context", err)
	}
}

// TestManyOnOneWebhook: many Scanners that post at once need about one second each, and few requests each. This holds despite a pause, and
// despite callers that never retry.
func TestManyOnOneWebhook(t *testing.T) {
	const scanners = 1000
	clock := testingclock.NewFakePassiveClock(noon)
	var waited time.Duration
	random := rand.New(rand.NewPCG(1, 1))
	budget := notifier.NewBudget(clock, func(_ context.Context, d time.Duration) error { waited = d; return nil }, random.Float64)
	next, asked := map[int]time.Time{}, map[int]int{}
	for i := range scanners {
		next[i] = noon
	}
	var posts []time.Time
	for len(next) > 0 {
		who, at := -1, time.Time{}
		for i, when := range next {
			if who < 0 || when.Before(at) || when.Equal(at) && i < who {
				who, at = i, when
			}
		}
		clock.SetTime(at)
		waited = 0
		later, err := budget.Take(context.Background(), "a", fmt.Sprint(who))
		if err != nil {
			t.Fatal(err)
		}
		asked[who]++
		switch {
		case later > 0 && who%10 == 9:
			delete(next, who) // this caller never retries
		case later > 0:
			next[who] = at.Add(later)
		default:
			delete(next, who)
			posts = append(posts, at.Add(waited))
			if len(posts) == 100 {
				budget.Pause("a", 30*time.Second)
			}
		}
	}
	slices.SortFunc(posts, time.Time.Compare)
	for i := range posts[1:] {
		// Callers that were waiting in the notifier when the pause began still post during it.
		if gap := posts[i+1].Sub(posts[i]); gap < time.Second {
			t.Fatalf("posts %d and %d are %s apart, want a second at least", i, i+1, gap)
		}
	}
	if took := posts[len(posts)-1].Sub(noon); took > (scanners+60)*time.Second {
		t.Errorf("%d posts took %s, want about a second each", len(posts), took)
	}
	for who, n := range asked {
		if n > 4 {
			t.Errorf("Scanner %d asked %d times, want few", who, n)
		}
	}
}

// TestTooManyOnOneWebhook: a caller whose wait would exceed maxQueue gets no slot, but a random time to retry.
func TestTooManyOnOneWebhook(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	random := rand.New(rand.NewPCG(1, 1))
	budget := notifier.NewBudget(clock, func(context.Context, time.Duration) error { return nil }, random.Float64)
	times := map[time.Duration]int{}
	for i := range 5000 {
		later, err := budget.Take(context.Background(), "a", fmt.Sprint(i))
		if err != nil || later > time.Hour {
			t.Fatalf("the retry is due after %s, error %v; want an hour at most", later, err)
		}
		times[later.Truncate(time.Second)]++
	}
	for later, n := range times {
		if n > 12 {
			t.Errorf("%d retries are due after %s, want them spread", n, later)
		}
	}
}
