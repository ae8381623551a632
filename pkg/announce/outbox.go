package announce

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backoff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Bounds of delivery attempts and of the waits between them.
const (
	// attemptGap is the least time between two attempts, whatever triggers them.
	attemptGap = time.Second
	minBackoff = 5 * time.Second
	maxBackoff = 15 * time.Minute
	// maxUnansweredBackoff is the longest wait after an attempt without an answer. It exceeds maxBackoff because each attempt may deliver
	// one more copy.
	maxUnansweredBackoff = 2 * time.Hour
	// maxUnanswered is the number of unanswered attempts after which a message is given up. The waits between them add up to 5 to 8 hours.
	maxUnanswered = 14
	// maxUnansweredWhileSilent is the number of attempts for each further message while the receiver still does not answer.
	maxUnansweredWhileSilent = 3
	// stoppedRetry is the interval at which a stopped receiver is retried: its Secret or the URL in it may have changed.
	stoppedRetry = 5 * time.Minute
	// maxRetryAfter bounds the wait that a receiver can request.
	maxRetryAfter = time.Hour
	// maxOutboxAge is the age at which an undelivered summary is discarded and composed again, because its content is out of date. No change
	// is lost: the content of a discarded message does not count as announced. A message that the receiver may have is given up instead.
	maxOutboxAge = 24 * time.Hour
	// maxChangesAge is the same age for a KindChanges message and a scheduled summary. It is shorter because its findings may be fixed or suppressed in the meantime: a rate
	// limited receiver then gets the current state. A summary is recorded as what was present when it was composed.
	maxChangesAge = 15 * time.Minute
)

// Outbox holds a message, and what counts as announced once it is delivered. The findings of a summary are too many to be held here: the
// store records them under the message's ID when the message is composed.
type Outbox struct {
	Message      Message                  `json:"digest"`
	Announced    []store.AnnouncedFinding `json:"said,omitempty"`
	Repositories []string                 `json:"repositories,omitempty"`
	// Joined are the namespaces that joined a ClusterScanner and that the message announces.
	Joined []string `json:"joined,omitempty"`
	// Findings is the number of findings that count as announced by the message, including those that Announced does not list.
	Findings int `json:"findings,omitempty"`
	// Urgent is true if the message may be sent in quiet hours: it has a known exploited finding, or is a scheduled summary.
	Urgent bool `json:"urgent,omitempty"`
	// SummaryDue is when the message was due, if it is a scheduled summary; else zero.
	SummaryDue time.Time `json:"summaryDue,omitzero"`
	// SummaryEngine is the engine whose findings a scheduled summary counts.
	SummaryEngine string `json:"summaryEngine,omitempty"`
	// Thread is the thread that the message is a reply in; nil for a message to the channel.
	Thread *store.Thread `json:"thread,omitempty"`
	// LatestUnanswered is true while the latest attempt has no answer. The receiver may have the message.
	LatestUnanswered bool `json:"inDoubt,omitempty"`
	// EarlierUnanswered is true if an attempt before the latest one has no answer. A refusal of the latest attempt does not change it.
	EarlierUnanswered bool `json:"earlierInDoubt,omitempty"`
	// RefusedSince is the time of the first refusal after the latest unanswered attempt; zero if there is none. It starts anew when the
	// message became too old while no manager ran.
	RefusedSince time.Time `json:"refusedSince,omitzero"`
}

// staleAt returns how long the message stays as composed while its latest attempt was refused, or none was made. A KindChanges message that
// the receiver certainly does not have is out of date soon. A message that the receiver may have must first be refused for maxOutboxAge.
// Otherwise a manager that did not run for that long would give it up after a single attempt.
func (o *Outbox) staleAt() time.Time {
	switch {
	case o.EarlierUnanswered:
		return later(o.Message.CreatedAt, o.RefusedSince).Add(maxOutboxAge)
	case o.Message.Kind == KindChanges, o.Message.Kind == KindScheduledSummary:
		return o.Message.CreatedAt.Add(maxChangesAge)
	}
	return o.Message.CreatedAt.Add(maxOutboxAge)
}

// putInOutbox stores a message in the outbox. It begins a new batch.
func (p *planning) putInOutbox(outbox Outbox) {
	p.state.Outbox, p.state.Batch = &outbox, nil
	p.state.Pending = max(p.state.Pending, outbox.Findings)
}

// deliver handles the message in the outbox before anything else is planned. An unanswered message is sent again, however old it is, and
// given up after maxUnanswered attempts without an answer.
//
// A refused message can become too old. If the receiver certainly does not have it, it is discarded and composed again. If an earlier
// attempt is unanswered, it is given up, since a newly composed message could announce the same twice. If no attempt was made for hours,
// because no manager ran, it is sent again and its day of refusals starts anew.
//
// When quiet hours begin, a message that is not urgent and that the receiver certainly does not have is discarded as well. One with an unanswered
// attempt is sent on: the receiver may have it, and an urgent message must not wait behind it.
func (p *planning) deliver() (*Action, error) {
	outbox := p.state.Outbox
	if outbox == nil {
		return nil, nil
	}
	tooOld := !outbox.LatestUnanswered && !p.now.Before(outbox.staleAt())
	isHeld := !outbox.LatestUnanswered && !outbox.Urgent && p.isQuiet()
	// A running manager retries a refused message sooner than that.
	away := p.now.Sub(p.state.LastAttempt) > maxUnansweredBackoff
	switch {
	case outbox.LatestUnanswered && p.state.Unanswered >= maxUnanswered:
		announcement, err := giveUp(p.now, &p.state)
		return &Action{Mark: announcement}, err
	case tooOld && outbox.EarlierUnanswered && !away:
		announcement, err := giveUp(p.now, &p.state)
		return &Action{Mark: announcement}, err
	case (tooOld || isHeld) && !outbox.EarlierUnanswered:
		p.state.Outbox, p.state.Batch = nil, nil
		return &Action{Mark: &store.Announcement{At: p.now, Retract: outbox.Message.ID}}, nil
	case p.now.Before(p.mayAttempt()):
		return &Action{Until: p.mayAttempt()}, nil
	}
	p.state.LastAttempt = p.now
	p.state.Unanswered++
	// After a crash, the next process waits as after an unanswered attempt.
	p.state.NextAttempt = p.now.Add(backoff.After(p.state.Unanswered, minBackoff, maxUnansweredBackoff))
	sent := *outbox
	sent.LatestUnanswered, sent.EarlierUnanswered = true, outbox.LatestUnanswered || outbox.EarlierUnanswered
	if outbox.LatestUnanswered || tooOld {
		sent.RefusedSince = time.Time{}
	}
	p.state.Outbox = &sent
	if p.state.Stopped != nil {
		stopped := *p.state.Stopped
		stopped.Generation = p.settings.Generation
		p.state.Stopped = &stopped
	}
	return &Action{Send: &sent.Message}, nil
}

// mayAttempt returns the earliest time of the next attempt. A change of the Scanner ends the wait of a stopped receiver.
func (p *planning) mayAttempt() time.Time {
	earliest := p.state.LastAttempt.Add(attemptGap)
	if p.state.Stopped != nil && p.state.Stopped.Generation != p.settings.Generation {
		return earliest
	}
	return later(earliest, p.state.NextAttempt)
}

// maySend returns the earliest time to send a message that is not in the outbox yet.
func (p *planning) maySend() time.Time {
	if p.state.LastDelivery.IsZero() {
		return p.mayAttempt()
	}
	return later(p.mayAttempt(), p.state.LastDelivery.Add(p.settings.GroupInterval))
}

// applyOutcome returns the state after an attempt to deliver the message in its outbox. If the attempt delivered the message, applyOutcome also returns
// what the caller must record as announced in the same transaction as the state; otherwise nil. It returns an error if the message cannot be
// encoded or Random fails.
func (d *dispatch) applyOutcome(state State, outcome Outcome) (State, *store.Announcement, error) {
	now := d.Now()
	// Only refused messages become too old. After an unanswered attempt the message keeps its ID, by which the notifier recognizes it. A
	// refusal answers this attempt only: earlier attempts stay unanswered.
	refused := slices.Contains([]Result{RateLimited, Permanent, Temporary}, outcome.Result)
	answered := *state.Outbox
	answered.LatestUnanswered = !refused
	state.Outbox = &answered
	if refused {
		if answered.RefusedSince.IsZero() {
			answered.RefusedSince = now
		}
	}
	if refused || outcome.IsInProgress() {
		state.Unanswered = max(0, state.Unanswered-1)
	}
	switch {
	case outcome.Result == Delivered:
		announcement, err := completeDelivery(now, &state)
		if err == nil {
			answered.recordThread(d.settings.Address, outcome, announcement)
		}
		return state, announcement, err
	case outcome.Result == RateLimited, outcome.IsInProgress():
		// Neither counts as a failure, which would make the next wait longer than requested. The status still shows it.
		state.NextAttempt = now.Add(min(max(outcome.RetryAfter, attemptGap), maxRetryAfter))
		state.LastError, state.Stopped = deliveryError(now, outcome), nil
		return state, nil, nil
	}
	state.Failures++
	state.LastError = deliveryError(now, outcome)
	if outcome.Result == Permanent {
		state.Stopped = stoppedBy(now, d.settings, state, outcome)
		state.NextAttempt = now.Add(stoppedRetry)
		return state, nil, nil
	}
	// Temporary, UnknownOutcome and results of a newer notifier are all retried.
	state.Stopped = nil
	wait := backoff.After(state.Failures, minBackoff, maxBackoff)
	if !refused {
		wait = max(wait, backoff.After(state.Unanswered, minBackoff, maxUnansweredBackoff))
	}
	wait, err := d.jitter(wait)
	state.NextAttempt = now.Add(wait)
	return state, nil, err
}

func deliveryError(now time.Time, outcome Outcome) *DeliveryError {
	return &DeliveryError{Reason: outcome.Reason, Message: text.Truncate(outcome.Message, MaxMessageBytes), At: now}
}

// completeDelivery removes the delivered message from the outbox, resets errors and waits, and returns what the message announced.
func completeDelivery(now time.Time, state *State) (*store.Announcement, error) {
	isSummary := state.Outbox.Message.Kind == KindScheduledSummary
	announcement, err := closeOutbox(now, state)
	if err != nil {
		return nil, err
	}
	state.LastError, state.Failures, state.Unanswered, state.Unconfirmed = nil, 0, 0, nil
	state.Stopped, state.NextAttempt = nil, time.Time{}
	if isSummary {
		if state.Summary != nil {
			state.Summary.LastDelivery, state.Summary.LastMessage = now, announcement.LogEntry.Title
		}
		return announcement, nil
	}
	state.LastDelivery, state.LastMessage = now, announcement.LogEntry.Title
	return announcement, nil
}

// giveUp removes a message from the outbox after unanswered attempts. The receiver may have several copies of it, so it counts as announced
// and the log marks it as unconfirmed. If the latest attempt is unanswered, the next message gets maxUnansweredWhileSilent attempts, because the
// receiver is likely to stay silent. If it was refused, the next message waits until this one would have been retried.
func giveUp(now time.Time, state *State) (*store.Announcement, error) {
	if state.Outbox.LatestUnanswered {
		state.Stopped, state.NextAttempt, state.Unanswered = nil, time.Time{}, maxUnanswered-maxUnansweredWhileSilent
	}
	announcement, err := closeOutbox(now, state)
	if err != nil {
		return nil, err
	}
	announcement.LogEntry.Unconfirmed = true
	unconfirmed := Unconfirmed{Since: now}
	if state.Unconfirmed != nil {
		unconfirmed = *state.Unconfirmed
	}
	unconfirmed.Count++
	unconfirmed.Title = announcement.LogEntry.Title
	state.Unconfirmed = &unconfirmed
	return announcement, nil
}

// closeOutbox empties the outbox and returns what its message announced.
func closeOutbox(now time.Time, state *State) (*store.Announcement, error) {
	outbox := state.Outbox
	body, err := json.Marshal(outbox.Message)
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", outbox.Message.ID, err)
	}
	state.Outbox = nil
	switch outbox.Message.Kind {
	case KindScheduledSummary:
		state.recordSummary(outbox)
	case KindChanges:
		state.PendingSince = time.Time{}
	default:
		state.PendingSince = time.Time{}
		state.Baseline.finish()
	}
	state.Pending = max(0, state.Pending-outbox.Findings)
	state.recordNotices(outbox.Message.Notices)
	if len(outbox.Joined) > 0 {
		state.know(outbox.Joined...)
	}
	return &store.Announcement{
		MessageID: outbox.Message.ID, At: now, Findings: outbox.Announced, Repositories: outbox.Repositories,
		LogEntry: &store.Message{Kind: string(outbox.Message.Kind), Title: outbox.Message.Title(), Findings: outbox.Findings, Body: body},
	}, nil
}

// stoppedBy returns why the receiver is stopped. Since stays the same as long as the reason does.
func stoppedBy(now time.Time, settings Settings, state State, outcome Outcome) *Stopped {
	stopped := &Stopped{
		Reason: outcome.Reason, Message: text.Truncate(outcome.Message, MaxMessageBytes), Since: now, Generation: settings.Generation,
	}
	if before := state.Stopped; before != nil && before.Reason == stopped.Reason {
		stopped.Since = before.Since
	}
	return stopped
}

// jitter changes a wait by up to a quarter, so that receivers that failed together are not retried together. The result is at least
// minBackoff. It is at most maxBackoff, or maxUnansweredBackoff for a wait that exceeds maxBackoff.
func (c Dispatcher) jitter(wait time.Duration) (time.Duration, error) {
	var raw [8]byte
	if _, err := io.ReadFull(c.Random, raw[:]); err != nil {
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
