package notify

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Waits between attempts.
const (
	minBackoff = 5 * time.Second
	maxBackoff = 15 * time.Minute
	// maxUnansweredBackoff is the longest wait after an attempt without an answer: the receiver may get a copy with each attempt.
	maxUnansweredBackoff = 2 * time.Hour
	// maxUnanswered is how many attempts in a row stay without an answer until the message is given up. Their waits add up to 4 to 9 hours.
	maxUnanswered = 14
	// unansweredAgain is how many attempts each further message gets while the receiver still does not answer.
	unansweredAgain = 3
	// stoppedRetry is how often a stopped receiver is tried, in case its Secret or the address in it has changed.
	stoppedRetry = 5 * time.Minute
	// maxRetryAfter bounds what a receiver may ask for.
	maxRetryAfter = time.Hour
	// outboxAge is when a message that was not delivered is thrown away and computed anew, since its content is out
	// of date. Nothing is lost: what it said does not count as told.
	outboxAge = 24 * time.Hour
	// newsAge is the same for news: meanwhile some of it may have been fixed, or excepted. Who waits to be let in again hears what is
	// true then. A summary is what was there when it was composed, and is recorded as such.
	newsAge = 15 * time.Minute
)

// Settle says what an attempt to deliver the message in the outbox means: the next state and, when it was
// delivered, what is to be recorded together with that state as told.
func (p Planner) Settle(now time.Time, settings Settings, state State, outcome Outcome) (State, *store.Announced, error) {
	if state.Outbox == nil {
		return state, nil, fmt.Errorf("receiver %s: an outcome without a message", settings.Receiver)
	}
	// Only a refusal lets a message grow too old: in doubt it goes on under its id, by which the notifier knows it. A refusal is the answer
	// to this attempt alone.
	refused := slices.Contains([]Result{RateLimited, Permanent, Temporary}, outcome.Result)
	answered := *state.Outbox
	answered.InDoubt = !refused
	state.Outbox = &answered
	if refused {
		if answered.RefusedSince.IsZero() {
			answered.RefusedSince = now
		}
		state.Unanswered = max(0, state.Unanswered-1)
	}
	switch outcome.Result {
	case Delivered:
		said, err := delivered(now, &state)
		return state, said, err
	case RateLimited:
		// No failure, which would make the next wait longer than asked for; but what is said of the receiver.
		state.NextAttempt = now.Add(min(max(outcome.RetryAfter, attemptGap), maxRetryAfter))
		state.LastError, state.Stopped = trouble(now, outcome), nil
		return state, nil, nil
	}
	state.Failures++
	state.LastError = trouble(now, outcome)
	if outcome.Result == Permanent {
		state.Stopped = stop(now, settings, state, outcome)
		state.NextAttempt = now.Add(stoppedRetry)
		return state, nil, nil
	}
	// Temporary, unknown, or a result that a newer notifier made up: trying again is right for all of them.
	state.Stopped = nil
	wait := doubled(state.Failures, maxBackoff)
	if !refused {
		wait = max(wait, doubled(state.Unanswered, maxUnansweredBackoff))
	}
	wait, err := p.jitter(wait)
	state.NextAttempt = now.Add(wait)
	return state, nil, err
}

func trouble(now time.Time, outcome Outcome) *Trouble {
	return &Trouble{Reason: outcome.Reason, Message: clip(outcome.Message, MaxMessageBytes), At: now}
}

// delivered ends the message in the outbox and says what the receiver knows by it.
func delivered(now time.Time, state *State) (*store.Announced, error) {
	said, err := announced(now, state)
	if err != nil {
		return nil, err
	}
	state.LastError, state.Failures, state.Unanswered, state.Unconfirmed = nil, 0, 0, nil
	state.Stopped, state.NextAttempt = nil, time.Time{}
	state.LastDelivery, state.LastMessage = now, said.Log.Title
	return said, nil
}

// giveUp ends a message of which an attempt was never answered. The receiver may have got it many times, so it counts as announced and the
// log says that nobody confirmed it. If no attempt was answered, those for the next message go on slowly: the receiver is likely to be as
// silent as before. After a refusal the next message waits for as long as this one would have.
func giveUp(now time.Time, state *State) (*store.Announced, error) {
	if state.Outbox.InDoubt {
		state.Stopped, state.NextAttempt, state.Unanswered = nil, time.Time{}, maxUnanswered-unansweredAgain
	}
	said, err := announced(now, state)
	if err != nil {
		return nil, err
	}
	said.Log.Unconfirmed = true
	unconfirmed := Unconfirmed{Since: now}
	if state.Unconfirmed != nil {
		unconfirmed = *state.Unconfirmed
	}
	unconfirmed.Count++
	unconfirmed.Title = said.Log.Title
	state.Unconfirmed = &unconfirmed
	return said, nil
}

// announced empties the outbox and says what counts as announced by the message in it.
func announced(now time.Time, state *State) (*store.Announced, error) {
	outbox := state.Outbox
	body, err := json.Marshal(outbox.Digest)
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", outbox.Digest.ID, err)
	}
	if outbox.Digest.Kind != KindNews {
		state.Baseline.finish()
	}
	state.Outbox = nil
	state.PendingSince, state.Pending = time.Time{}, max(0, state.Pending-outbox.Findings)
	state.hearNotices(outbox.Digest.Notices)
	return &store.Announced{
		DigestID: outbox.Digest.ID, At: now, Said: outbox.Said, Repositories: outbox.Repositories,
		Log: &store.Message{Kind: string(outbox.Digest.Kind), Title: outbox.Digest.Title(), Findings: outbox.Findings, Body: body},
	}, nil
}

// stop keeps the time since when the same reason holds.
func stop(now time.Time, settings Settings, state State, outcome Outcome) *Stopped {
	stopped := &Stopped{
		Reason: outcome.Reason, Message: clip(outcome.Message, MaxMessageBytes), Since: now, Generation: settings.Generation,
	}
	if before := state.Stopped; before != nil && before.Reason == stopped.Reason {
		stopped.Since = before.Since
	}
	return stopped
}

// doubled is minBackoff for the first of some attempts, twice as long for each further one, and at most the longest.
func doubled(attempts int, longest time.Duration) time.Duration {
	wait := minBackoff
	for ; attempts > 1 && wait < longest; attempts-- {
		wait *= 2
	}
	return min(wait, longest)
}

// jitter makes a wait a quarter shorter or longer, so that receivers that failed together do not come back together. No wait is
// longer than the longest there is.
func (p Planner) jitter(wait time.Duration) (time.Duration, error) {
	var raw [8]byte
	if _, err := io.ReadFull(p.Random, raw[:]); err != nil {
		return wait, fmt.Errorf("read randomness: %w", err)
	}
	share := float64(binary.BigEndian.Uint64(raw[:])>>11) / (1 << 53) // 0 ≤ share < 1
	jittered := time.Duration(float64(wait) * (0.75 + share/2))
	longest := maxBackoff
	if wait > maxBackoff {
		longest = maxUnansweredBackoff
	}
	return min(max(jittered, minBackoff), longest), nil
}

// clip shortens a text to at most n bytes of valid UTF-8 and says by an ellipsis that it did.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const ellipsis = "…"
	cut := n - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}
