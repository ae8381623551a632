package notify

import (
	"maps"
	"time"
)

// settled returns the state as it would be if the clock had always gone as it does now. A clock that was put back
// leaves times behind that are still to come though they are of something that has happened; what waits for a while
// after them would wait for hours more. So all times move by as much, and every wait is at most as long as it was meant to be.
func (s State) settled(now time.Time) State {
	ahead := time.Duration(0)
	s.eachTime(func(at *time.Time) { ahead = max(ahead, at.Sub(now)) })
	if ahead <= 0 {
		return s
	}
	// What pointers lead to belongs to the state before as well.
	s.Outbox, s.Stopped, s.LastError = clone(s.Outbox), clone(s.Stopped), clone(s.LastError)
	s.Unconfirmed = clone(s.Unconfirmed)
	s.Notices = maps.Clone(s.Notices)
	back := func(at *time.Time) { *at = at.Add(-ahead) }
	s.eachTime(back)
	if !s.NextAttempt.IsZero() {
		back(&s.NextAttempt)
	}
	return s
}

// eachTime visits the times of what has happened.
func (s *State) eachTime(visit func(*time.Time)) {
	times := []*time.Time{&s.Baseline.Started, &s.PendingSince, &s.LastAttempt, &s.LastDelivery}
	if s.Outbox != nil {
		times = append(times, &s.Outbox.Digest.CreatedAt, &s.Outbox.RefusedSince)
	}
	if s.Stopped != nil {
		times = append(times, &s.Stopped.Since)
	}
	if s.LastError != nil {
		times = append(times, &s.LastError.At)
	}
	if s.Unconfirmed != nil {
		times = append(times, &s.Unconfirmed.Since)
	}
	for _, at := range times {
		if !at.IsZero() {
			visit(at)
		}
	}
	for id, told := range s.Notices {
		if !told.AbsentSince.IsZero() {
			visit(&told.AbsentSince)
			s.Notices[id] = told
		}
	}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
