package restapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests. No label value comes from a caller.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_api_requests_total",
			Help: "Requests to the REST API, by operation and HTTP status.",
		}, []string{"operation", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_api_request_duration_seconds",
			Help:    "Time that requests to the REST API took, including the transfer of the answer.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 30},
		}, []string{"operation"}),
	}
	for _, collector := range []prometheus.Collector{m.requests, m.seconds} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observe(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}
