package announce

import (
	"context"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backoff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

const (
	// alertInterval is how often the alerts of a receiver are sent.
	alertInterval = 5 * time.Minute
	// alertLife is how long an alert fires after it was sent last: three deliveries can fail before it resolves.
	alertLife = 4 * alertInterval
	// maxAlerts bounds the most urgent alerts of one receiver. An alert starts only as one of them.
	maxAlerts = 500
	// maxFiring bounds all alerts of one receiver, with those that started before others became more urgent. It also bounds those of a delivery.
	maxFiring = 2 * maxAlerts
	// maxAlertBytes bounds the alerts of a delivery as JSON, so that the notifier takes it, whatever names images contain.
	maxAlertBytes = MaxDeliveryBytes * 3 / 4
	// maxAlertFindings bounds the findings that are read for them.
	maxAlertFindings = 5_000
)

// Alerts are all alerts of a Scanner that fire now, for a receiver that keeps a state (ReceiverRef.hasState).
type Alerts struct {
	// List has the most urgent first. More is the number of further ones that are left out: they have not ended, whether they fired before or not.
	List []Alert `json:"list"`
	More int     `json:"more,omitempty"`
	// EndsAt is when they resolve unless they are sent again.
	EndsAt time.Time `json:"endsAt"`
	// Ended are alerts that fired before and resolve now. Of too many, the others are not sent again, and so resolve later.
	Ended []Alert `json:"ended,omitempty"`
}

// Alert is a vulnerability in a package of an image, in a workload that runs the image.
type Alert struct {
	Namespace string `json:"namespace"`
	// Workload is such as "Deployment/api".
	Workload string `json:"workload"`
	// Image is the repository, without tag and digest: an alert survives a rollout that does not fix it.
	Image          string           `json:"image"`
	Vulnerability  string           `json:"vulnerability"`
	Package        string           `json:"package"`
	Version        string           `json:"version,omitempty"`
	FixedIn        string           `json:"fixedIn,omitempty"`
	Severity       finding.Severity `json:"severity"`
	KnownExploited bool             `json:"knownExploited,omitempty"`
	URL            string           `json:"url,omitempty"`
	// StartsAt is when the store first recorded the finding.
	StartsAt time.Time `json:"startsAt"`
}

// hasState reports whether a receiver keeps a state: it gets everything that is present, again and again, and no changes.
func (r ReceiverRef) hasState() bool { return r.Type == ReceiverTypeAlertmanager }

// sendAlerts sends everything that fires, unless that was done less than alertInterval ago. Nothing is recorded as announced, and nothing is in the
// outbox: the next delivery replaces this one, whatever became of it. So the state of the receiver is right after one delivery, however long it did
// not answer. The alerts of the last delivery are stored: each of them fires until its end is proven.
func (d *dispatch) sendAlerts(ctx context.Context) error {
	now, state := d.Now(), d.state.withoutFutureTimes(d.Now())
	retries := state.Stopped != nil && state.Stopped.Generation != d.settings.Generation
	if now.Before(state.NextAttempt) && !retries {
		d.next = state.NextAttempt
		return d.save(ctx, state) // with the times of a clock that was set back
	}
	alerts, firing, err := d.currentAlerts(ctx, state.Alerts)
	if err != nil {
		return err
	}
	message, err := (&planning{now: now, settings: d.settings, random: d.Random}).newMessage(KindAlerts)
	if err != nil {
		return err
	}
	state.LastAttempt = now
	outcome := d.Sender.Send(ctx, Delivery{Receiver: d.settings.Address, Message: message, Alerts: &alerts})
	recovers := state.LastError != nil
	switch outcome.Result {
	case Delivered:
		summary := Pluralize(len(alerts.List)+alerts.More, "alert")
		if recovers || state.LastMessage != summary {
			d.outcome = &outcome // others are not worth an event
			state.LastDelivery, state.LastMessage = now, summary
		}
		state.LastError, state.Stopped, state.Failures, state.NextAttempt = nil, nil, 0, now.Add(alertInterval)
		state.Alerts, state.AlertsEnd = firing, alerts.EndsAt
	case RateLimited:
		d.outcome = &outcome
		state.LastError, state.Stopped = deliveryError(now, outcome), nil
		state.NextAttempt = now.Add(min(max(outcome.RetryAfter, attemptGap), maxAlertWait(state.AlertsEnd.Sub(now))))
	default:
		d.outcome = &outcome
		if outcome.Result == UnknownOutcome { // it may have the alerts that started
			state.Alerts = withStarted(state.Alerts, firing)
		}
		state.Failures++
		state.LastError, state.NextAttempt = deliveryError(now, outcome), now.Add(backoff.After(state.Failures, minBackoff, alertInterval))
		if state.Stopped = nil; outcome.Result == Permanent {
			state.Stopped, state.NextAttempt = stoppedBy(now, d.settings, d.state, outcome), now.Add(stoppedRetry)
		}
	}
	d.next = state.NextAttempt
	return d.save(ctx, state)
}

// withStarted returns alerts of before and those that fire and are not among them, at most maxFiring.
func withStarted(before, firing []FiringAlert) []FiringAlert {
	known := make(map[alertKey]bool, len(before))
	for _, a := range before {
		known[a.Alert.key()] = true
	}
	started := slices.DeleteFunc(slices.Clone(firing), func(a FiringAlert) bool { return known[a.Alert.key()] })
	return slices.Concat(before, started[:max(0, min(len(started), maxFiring-len(before)))])
}

// maxAlertWait returns the longest wait that a receiver can request while its alerts still fire for some time: several attempts fit into that time.
func maxAlertWait(left time.Duration) time.Duration {
	if left <= 0 {
		return alertInterval
	}
	return max(min(left, alertLife)/2, minBackoff)
}
