package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// schedule is a sequence of faults, one after the other. Schedules run at the same time, so faults of different schedules overlap.
type schedule struct {
	name   string
	faults []fault
	// Bounds of the time between two faults, and of the duration of one.
	shortestPause, longestPause       time.Duration
	shortestDuration, longestDuration time.Duration
	draws                             *rand.Rand
	journal                           *journal

	// rest are the faults that are left until all have occurred as often as they are in faults.
	rest []fault
}

// step is what a schedule does next.
type step struct {
	pause    time.Duration
	fault    fault
	duration time.Duration
}

// next draws the next step. The steps depend only on the seed, not on time. Each fault occurs once before any occurs again.
func (s *schedule) next() step {
	if len(s.rest) == 0 {
		s.rest = slices.Clone(s.faults)
		s.draws.Shuffle(len(s.rest), func(i, j int) { s.rest[i], s.rest[j] = s.rest[j], s.rest[i] })
	}
	st := step{pause: between(s.draws, s.shortestPause, s.longestPause), fault: s.rest[0]}
	if duration := between(s.draws, s.shortestDuration, s.longestDuration); st.fault.lasts {
		st.duration = duration
	}
	s.rest = s.rest[1:]
	return st
}

func between(draws *rand.Rand, shortest, longest time.Duration) time.Duration {
	return shortest + time.Duration(draws.Int64N(int64(longest-shortest)+1))
}

// run causes faults until the context ends. A fault that lasts is ended before run returns. An error means that a fault could not be ended.
func (s *schedule) run(ctx context.Context) error {
	for {
		st := s.next()
		if err := sleep(ctx, st.pause); err != nil {
			return nil //nolint:nilerr // the run ends
		}
		if err := s.cause(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st.fault.name, err)
		}
	}
}

// cause causes one fault and ends it.
func (s *schedule) cause(ctx context.Context, st step) error {
	began := time.Now()
	err := st.fault.begin(ctx)
	if err == nil && st.fault.lasts {
		s.journal.log(s.name, st.fault.name, fmt.Sprintf("begins, for %s", st.duration.Round(time.Second)))
		_ = sleep(ctx, st.duration) // an end of the run ends the fault
	}
	if st.fault.end != nil {
		if err := undo(ctx, st.fault.end); err != nil {
			return fmt.Errorf("it could not be ended: %w", err)
		}
	}
	if err == nil || ctx.Err() == nil { // a fault that the end of the run prevented is none
		s.journal.record(s.name, st.fault, began, time.Now(), err)
	}
	return nil
}
