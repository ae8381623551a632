package announce

import (
	"maps"
	"time"
)

// withoutFutureTimes corrects the state after the clock was set back. Times of past events would then lie in the future, and a wait that starts at one
// of them would take hours longer. All times move back by the same amount, so that no wait is longer than intended.
func (s State) withoutFutureTimes(now time.Time) State {
	ahead := time.Duration(0)
	s.eachTime(func(at *time.Time) { ahead = max(ahead, at.Sub(now)) })
	if ahead <= 0 {
		return s
	}
	// The previous state shares the pointers.
	s.Outbox, s.Stopped, s.LastError = clone(s.Outbox), clone(s.Stopped), clone(s.LastError)
	s.Unconfirmed = clone(s.Unconfirmed)
	s.Notices, s.Summary = maps.Clone(s.Notices), clone(s.Summary)
	back := func(at *time.Time) { *at = at.Add(-ahead) }
	s.eachTime(back)
	if !s.NextAttempt.IsZero() {
		back(&s.NextAttempt)
	}
	return s
}

// eachTime calls visit for each time of a past event that is set.
func (s *State) eachTime(visit func(*time.Time)) {
	times := []*time.Time{&s.Baseline.Started, &s.PendingSince, &s.LastAttempt, &s.LastDelivery}
	if s.Outbox != nil {
		times = append(times, &s.Outbox.Message.CreatedAt, &s.Outbox.RefusedSince)
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
	if s.Summary != nil { // Handled may be in the future: that keeps a summary from being sent twice
		times = append(times, &s.Summary.Since, &s.Summary.LastDelivery)
	}
	for _, at := range times {
		if !at.IsZero() {
			visit(at)
		}
	}
	for id, announced := range s.Notices {
		if !announced.AbsentSince.IsZero() {
			visit(&announced.AbsentSince)
			s.Notices[id] = announced
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// earliestSet returns the earlier of two times. A zero time means never.
func earliestSet(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
