package limits

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestQuota: nothing is counted if one bound is reached, and each release counts once.
func TestQuota(t *testing.T) {
	var q Quota
	one, exceeded := q.Take(Bound{Owner: "user", Max: 2}, Bound{Owner: "tenant", Max: 3})
	two, _ := q.Take(Bound{Owner: "user", Max: 2}, Bound{Owner: "tenant", Max: 3})
	if one == nil || two == nil || exceeded != -1 {
		t.Fatal("two within all bounds are refused")
	}
	if release, exceeded := q.Take(Bound{Owner: "user", Max: 2}, Bound{Owner: "tenant", Max: 3}); release != nil || exceeded != 0 {
		t.Errorf("the third of a user exceeds bound %d, want 0", exceeded)
	}
	three, _ := q.Take(Bound{Owner: "other", Max: 2}, Bound{Owner: "tenant", Max: 3})
	if release, exceeded := q.Take(Bound{Owner: "other", Max: 2}, Bound{Owner: "tenant", Max: 3}); three == nil || release != nil || exceeded != 1 {
		t.Errorf("the fourth of a tenant exceeds bound %d, want 1", exceeded)
	}
	one()
	one()
	if q.Used("user") != 1 || q.Used("tenant") != 2 {
		t.Errorf("%d and %d are used, want 1 and 2", q.Used("user"), q.Used("tenant"))
	}
	two()
	three()
	if len(q.used) != 0 {
		t.Errorf("%v is remembered", q.used)
	}
}

// TestQuotaOfWeights: a thing counts as its weight, and one that does not fit leaves room for a smaller one.
func TestQuotaOfWeights(t *testing.T) {
	var q Quota
	large, _ := q.Take(Bound{Owner: "user", Max: 10, Weight: 7})
	if release, exceeded := q.Take(Bound{Owner: "user", Max: 10, Weight: 4}); large == nil || release != nil || exceeded != 0 {
		t.Error("11 of 10 are taken")
	}
	if small, _ := q.Take(Bound{Owner: "user", Max: 10, Weight: 3}); small == nil || q.Used("user") != 10 {
		t.Errorf("%d are used, want 10", q.Used("user"))
	}
	if large(); q.Used("user") != 3 {
		t.Errorf("%d are used after the large one, want 3", q.Used("user"))
	}
}

// TestRates: an owner has a burst, then a rate, and learns how long to wait. Others have their own.
func TestRates(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	r := NewRates(rate.Every(time.Second), 2, clock)
	for range 2 {
		if wait := r.Take("a"); wait != 0 {
			t.Fatalf("the burst waits %s", wait)
		}
	}
	if wait := r.Take("a"); wait != time.Second {
		t.Errorf("the next one waits %s, want 1s", wait)
	}
	if wait := r.Take("b"); wait != 0 {
		t.Errorf("another owner waits %s", wait)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if wait := r.Take("a"); wait != 0 {
		t.Errorf("after a second it waits %s", wait)
	}
}
