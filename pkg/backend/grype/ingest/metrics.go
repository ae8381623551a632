package ingest

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics count requests by route, and bytes by budget. The route label is the pattern and never a path that a worker sent.
type metrics struct {
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	overBudget *prometheus.CounterVec
	spooled    *prometheus.GaugeVec
	stored     *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer, spoolShare, storeLimit int64) metrics {
	factory := promauto.With(registry)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_operator_ingest_spool_limit_bytes",
		Help: "Bytes that uploads for one namespace may have at a time (ingest.spoolSizePerNamespace).",
	}, func() float64 { return float64(spoolShare) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_operator_ingest_stored_limit_bytes",
		Help: "Bytes that may be stored on behalf of one namespace (ingest.storeSizePerNamespace).",
	}, func() float64 { return float64(storeLimit) })
	return metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_ingest_requests_total",
			Help: "Requests of workers to the ingest API, by route and HTTP status.",
		}, []string{"route", "code"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_ingest_request_duration_seconds",
			Help:    "Time that requests of workers took, including the transfer of bodies and the wait for work.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300},
		}, []string{"route"}),
		overBudget: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_ingest_over_budget_total",
			Help: "Uploads of catalog Jobs that were refused or delayed because a budget was used up, by budget: spool, spool-namespace or store.",
		}, []string{"budget"}),
		spooled: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scanner_operator_ingest_spool_bytes",
			Help: "Bytes of uploads for a namespace that are being received, checked or stored.",
		}, []string{"namespace"}),
		stored: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scanner_operator_ingest_stored_bytes",
			Help: "Bytes stored on behalf of a namespace: SBOMs, match inputs, and findings. The namespace is empty for data that counts in none.",
		}, []string{"namespace"}),
	}
}

// instrument wraps a handler with the request metrics of its route.
func (m metrics) instrument(route string, handler http.HandlerFunc) http.Handler {
	labels := prometheus.Labels{"route": route}
	return promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(labels),
		promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(labels), handler))
}

// countSpoolFull counts an upload that was refused because the spool was full.
func (m metrics) countSpoolFull(err error) {
	switch {
	case errors.Is(err, errSpoolFull):
		m.overBudget.WithLabelValues("spool").Inc()
	case errors.Is(err, errSpoolShare):
		m.overBudget.WithLabelValues("spool-namespace").Inc()
	}
}

// setStored sets the metrics of what is stored on behalf of each namespace.
func (m metrics) setStored(byNamespace map[string]int64) {
	m.stored.Reset()
	for namespace, bytes := range byNamespace {
		m.stored.WithLabelValues(namespace).Set(float64(bytes))
	}
}
