package restapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests and streams of events. No label value comes from a caller.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer, openStreams func() int) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_api_requests_total",
			Help: "Requests to the REST API, by operation and HTTP status.",
		}, []string{"operation", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_api_request_duration_seconds",
			Help:    "Time that requests to the REST API took, including the transfer of the answer, without streams of events.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 30},
		}, []string{"operation"}),
	}
	streams := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_operator_api_event_streams",
		Help: "Streams of events that clients of the REST API have open on this replica. A replica has at most 2,000.",
	}, func() float64 { return float64(openStreams()) })
	for _, collector := range []prometheus.Collector{m.requests, m.seconds, streams} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observe(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	if operation == operationEvents {
		return // a stream lasts as long as its client wants
	}
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}
