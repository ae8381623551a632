package notifier

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Metrics counts deliveries. No label names a receiver: addresses are secret, and the number of names is not bounded.
type Metrics struct {
	deliveries *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
}

// RegisterSender registers the metric that is 1 while this notifier sends, and 0 while it stands by. lease is nil for the only notifier.
func RegisterSender(registry prometheus.Registerer, lease *Lease) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_notifier_sender",
		Help: "1 for the notifier that sends, 0 for one that stands by.",
	}, func() float64 {
		if lease == nil || lease.Sends() {
			return 1
		}
		return 0
	}))
}

// NewMetrics returns Metrics that are registered with the registry.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_notifier_deliveries_total",
			Help: "Attempts to deliver a message, by type of receiver, result and reason.",
		}, []string{"receiver_type", "result", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_notifier_delivery_duration_seconds",
			Help:    "Time that an attempt to deliver a message took, including the wait for its slot.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30},
		}, []string{"receiver_type", "result"}),
	}
	registry.MustRegister(m.deliveries, m.seconds)
	return m
}

// Delivered counts one delivery attempt, successful or not, and its duration.
func (m *Metrics) Delivered(receiverType string, o announce.Outcome, took time.Duration) {
	m.deliveries.WithLabelValues(receiverType, string(o.Result), o.Reason).Inc()
	m.seconds.WithLabelValues(receiverType, string(o.Result)).Observe(took.Seconds())
}
