package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorder is a fault that records what happens to it.
type recorder struct {
	began, ended []time.Duration
	start        time.Time
	// absent is how often there is nothing to which it could happen. failing is how often its end fails.
	absent, failing int
}

func (r *recorder) fault(name string, lasts bool) fault {
	return fault{
		name: name, lasts: lasts, delivery: true,
		begin: func(context.Context) error {
			if r.absent--; r.absent >= 0 {
				return errAbsent
			}
			r.began = append(r.began, time.Since(r.start))
			return nil
		},
		end: func(ctx context.Context) error {
			if ctx.Err() != nil {
				return ctx.Err() // the end of the run must not keep a fault
			}
			if r.failing--; r.failing >= 0 {
				return errors.New("the API server is away")
			}
			r.ended = append(r.ended, time.Since(r.start))
			return nil
		},
	}
}

func testSchedule(seed uint64, faults ...fault) *schedule {
	return &schedule{
		name: "test", faults: faults, draws: rand.New(rand.NewPCG(seed, 0)), journal: newJournal(func(string) {}),
		shortestPause: time.Second, longestPause: time.Minute, shortestDuration: time.Second, longestDuration: 30 * time.Second,
	}
}

// The steps of a schedule depend only on the seed. Each fault occurs once before any occurs again, and faults of a moment have no duration.
func TestSteps(t *testing.T) {
	faults := []fault{{name: "a", lasts: true}, {name: "b"}, {name: "c", lasts: true}}
	steps := func(seed uint64) (text []string) {
		l := testSchedule(seed, faults...)
		for range 30 {
			s := l.next()
			if s.pause < l.shortestPause || s.pause > l.longestPause {
				t.Errorf("a pause of %s", s.pause)
			}
			if want := s.fault.lasts; want != (s.duration >= l.shortestDuration && s.duration <= l.longestDuration) || !want && s.duration != 0 {
				t.Errorf("%s lasts %s", s.fault.name, s.duration)
			}
			text = append(text, s.fault.name+" "+s.pause.String()+" "+s.duration.String())
		}
		return text
	}
	first := steps(1)
	if diff := cmp.Diff(first, steps(1)); diff != "" {
		t.Errorf("the same seed gave other steps:\n%s", diff)
	}
	if slices.Equal(first, steps(2)) {
		t.Error("another seed gave the same steps")
	}
	for round := range slices.Chunk(first, len(faults)) {
		names := ""
		for _, name := range []string{"a ", "b ", "c "} {
			if slices.ContainsFunc(round, func(s string) bool { return strings.HasPrefix(s, name) }) {
				names += name
			}
		}
		if names != "a b c " {
			t.Errorf("a round of faults is %q, want each once", round)
		}
	}
}

// A fault that lasts is ended after its duration, when the run ends, and when its end fails at first.
func TestFaultsAreEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		failing  int
		runs     time.Duration // the time of the run
		complete int           // the faults that are over before its end
	}{
		"after their duration":         {runs: time.Hour, complete: 20},
		"at the end of the run":        {runs: time.Minute},
		"although the end fails often": {runs: time.Hour, failing: 30, complete: 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{start: time.Now(), failing: tt.failing}
				l := testSchedule(3, r.fault("lasting", true))
				ctx, cancel := context.WithTimeout(t.Context(), tt.runs)
				defer cancel()
				if err := l.run(ctx); err != nil {
					t.Fatal(err)
				}
				if len(r.began) == 0 || len(r.ended) != len(r.began) || len(r.ended) < tt.complete {
					t.Errorf("%d faults began and %d were ended, want all and at least %d", len(r.began), len(r.ended), tt.complete)
				}
				got := l.journal.tallies()["lasting"]
				if got.happened != len(r.began) || got.lasted < time.Duration(got.happened-1)*l.shortestDuration {
					t.Errorf("the journal has %+v", got)
				}
			})
		})
	}
}

// A fault that cannot be ended stops the schedule with an error.
func TestFaultThatCannotBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{start: time.Now(), failing: 1 << 30}
		err := testSchedule(4, r.fault("disk full", true)).run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "disk full: it could not be ended: after 2m0s: the API server is away") {
			t.Errorf("error: %v", err)
		}
	})
}

// Only faults that happened are disturbances of deliveries, and only those that may interrupt one.
func TestJournal(t *testing.T) {
	j := newJournal(func(string) {})
	from, to := time.Unix(100, 0), time.Unix(130, 0)
	j.record("schedule", fault{name: "database away", lasts: true, delivery: true}, from, to, nil)
	j.record("schedule", fault{name: "database away", lasts: true, delivery: true}, from, to, errors.New("no proxy"))
	j.record("schedule", fault{name: "catalog Job"}, from, to, nil)
	j.record("schedule", fault{name: "catalog Job"}, from, to, errAbsent)
	want := map[string]tally{"database away": {happened: 1, failed: 1, lasted: 30 * time.Second}, "catalog Job": {happened: 1, absent: 1}}
	if diff := cmp.Diff(want, j.tallies(), cmp.AllowUnexported(tally{})); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	got := j.disturbances()
	if len(got) != 1 || got[0].What != "database away" || !got[0].From.Equal(from) || !got[0].To.Equal(to) {
		t.Errorf("disturbances: %+v", got)
	}
}
