package clairwebhook

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// outcome is how webhooks with an error are answered and counted.
type outcome struct {
	// err is the error of Server.process; nil for a webhook that is done.
	err error
	// label is the result in one word.
	label  string
	status int
	// text is the answer for the sender of the webhook. It contains nothing about the cluster: details are in the log.
	text string
}

var outcomes = []outcome{
	{err: nil, label: "Done", status: http.StatusOK},
	{errUnauthorized, "Unauthorized", http.StatusUnauthorized, errUnauthorized.Error()},
	{errNotAllowed, "NotAllowed", http.StatusForbidden, errNotAllowed.Error()},
	{errInvalid, "Invalid", http.StatusBadRequest, errInvalid.Error() + `: want {"notification_id": a UUID, "callback": …}`},
	{errBusy, "Busy", http.StatusTooManyRequests, errBusy.Error()},
}

// outcomeOf returns the outcome for an error of Server.process.
func outcomeOf(err error) outcome {
	for _, known := range outcomes {
		if errors.Is(err, known.err) {
			return known
		}
	}
	return outcome{err, "Unavailable", http.StatusServiceUnavailable, "not done yet, retry later; the notifier's log has the reason"}
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
func (m *Metrics) Webhook(o outcome) { m.webhooks.WithLabelValues(o.label).Inc() }

// Marked counts one ImageScan that was marked.
func (m *Metrics) Marked() { m.marked.Inc() }

// Unknown counts images in a notification without an ImageScan of the Scanner.
func (m *Metrics) Unknown(images int) { m.unknown.Add(float64(images)) }
