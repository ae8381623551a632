package clairwebhook

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// outcome is the result of a webhook, in one word.
type outcome string

const (
	outcomeDone         outcome = "Done"
	outcomeUnauthorized outcome = "Unauthorized"
	outcomeNotAllowed   outcome = "NotAllowed"
	outcomeInvalid      outcome = "Invalid"
	outcomeBusy         outcome = "Busy"
	outcomeUnavailable  outcome = "Unavailable"
)

// outcomeOf returns the outcome for an error of Server.take.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return outcomeDone
	case errors.Is(err, errUnauthorized):
		return outcomeUnauthorized
	case errors.Is(err, errNotAllowed):
		return outcomeNotAllowed
	case errors.Is(err, errInvalid):
		return outcomeInvalid
	case errors.Is(err, errBusy):
		return outcomeBusy
	}
	return outcomeUnavailable
}

func (o outcome) status() int {
	switch o {
	case outcomeDone:
		return http.StatusOK
	case outcomeUnauthorized:
		return http.StatusUnauthorized
	case outcomeNotAllowed:
		return http.StatusForbidden
	case outcomeInvalid:
		return http.StatusBadRequest
	case outcomeBusy:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// text returns the answer for the sender of the webhook. It contains nothing about the cluster: details are in the log.
func (o outcome) text() string {
	switch o {
	case outcomeUnauthorized:
		return errUnauthorized.Error()
	case outcomeNotAllowed:
		return errNotAllowed.Error()
	case outcomeInvalid:
		return errInvalid.Error() + `: want {"notification_id": a UUID, "callback": …}`
	case outcomeBusy:
		return errBusy.Error()
	}
	return "not done yet, retry later; the notifier's log has the reason"
}

// Metrics counts webhooks. No label names a Scanner, since the number of Scanners is not bounded.
type Metrics struct {
	webhooks        *prometheus.CounterVec
	marked, unknown prometheus.Counter
}

// NewMetrics returns Metrics that are registered with the registry.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_notifier_clair_webhooks_total",
			Help: "Webhooks of Clair, by outcome; Clair sends all but Done again.",
		}, []string{"outcome"}),
		marked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scanner_notifier_clair_images_marked_total",
			Help: "ImageScans that were marked, so that the manager requests newer data from Clair.",
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scanner_notifier_clair_images_unknown_total",
			Help: "Images in Clair's notifications without an ImageScan of the Scanner, once for each notification.",
		}),
	}
	registry.MustRegister(m.webhooks, m.marked, m.unknown)
	return m
}

// Webhook counts one webhook.
func (m *Metrics) Webhook(o outcome) { m.webhooks.WithLabelValues(string(o)).Inc() }

// Marked counts one ImageScan that was marked.
func (m *Metrics) Marked() { m.marked.Inc() }

// Unknown counts images in a notification without an ImageScan of the Scanner.
func (m *Metrics) Unknown(images int) { m.unknown.Add(float64(images)) }
