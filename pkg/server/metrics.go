package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics count requests by route, which is a pattern and nothing that a worker sends.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) metrics {
	factory := promauto.With(registry)
	return metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_ingest_requests_total",
			Help: "Requests of workers to the ingest API, by route and HTTP status.",
		}, []string{"route", "code"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_ingest_request_duration_seconds",
			Help:    "Time that requests of workers took, sending bodies and waiting for work included.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300},
		}, []string{"route"}),
	}
}

// counted counts what goes to a route.
func (m metrics) counted(route string, handler http.HandlerFunc) http.Handler {
	labels := prometheus.Labels{"route": route}
	return promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(labels),
		promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(labels), handler))
}
