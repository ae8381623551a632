package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Prometheus metrics of a store. The values of the volume are measured by CheckHealth and cached, so that a hanging
// volume does not block a scrape.
type metrics struct {
	seconds   *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	size      *prometheus.GaugeVec
	room      prometheus.Gauge
	free      prometheus.Gauge
	healthy   prometheus.Gauge
	schema    prometheus.Gauge
	migration prometheus.Gauge
}

func newMetrics() metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_store_transaction_duration_seconds",
			Help:    "Time that transactions of the store took, including the wait for the lock, by kind (read or write).",
			Buckets: []float64{0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15},
		}, []string{"kind"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_store_transaction_failures_total",
			Help: "Transactions of the store that failed because of the file, its volume or the database server, by kind (read or write).",
		}, []string{"kind"}),
		size: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scanner_operator_store_size_bytes",
			Help: "Size of the store's files: the database, and its write-ahead log.",
		}, []string{"file"}),
		room: gauge("scanner_operator_store_volume_available_bytes",
			"Free space on the store's volume."),
		free: gauge("scanner_operator_store_free_bytes",
			"Unused space in the database, which is filled before the database grows."),
		healthy: gauge("scanner_operator_store_healthy",
			"1 as long as the store's file and its volume, or its database server, work, 0 while they do not."),
		schema: gauge("scanner_operator_store_schema_version",
			"Number of the last migration that the store has."),
		migration: gauge("scanner_operator_store_migration_duration_seconds",
			"Time that migrating the store took when the manager started; near 0 if no migration was due."),
	}
}

// collectors returns the metrics of the store. A store on a server knows nothing of the volume, and its metrics would look like a full one.
func (s *Store) collectors() []prometheus.Collector {
	m := &s.metrics
	return append([]prometheus.Collector{m.seconds, m.failures, m.size, m.healthy, m.schema, m.migration}, s.backing.collectors()...)
}

// Describe implements prometheus.Collector.
func (s *Store) Describe(into chan<- *prometheus.Desc) {
	for _, one := range s.collectors() {
		one.Describe(into)
	}
}

// Collect implements prometheus.Collector. It accesses neither the file nor its volume.
func (s *Store) Collect(into chan<- prometheus.Metric) {
	healthy := 1.0
	if s.Health() != nil {
		healthy = 0
	}
	s.metrics.healthy.Set(healthy)
	for _, one := range s.collectors() {
		one.Collect(into)
	}
}

// transacted observes a transaction. Only faults of the file, its volume or the database server count as failures, not missing rows or
// cancelled calls.
func (m *metrics) transacted(kind string, began time.Time, err error) {
	m.seconds.WithLabelValues(kind).Observe(time.Since(began).Seconds())
	if StorageFault(err) != nil {
		m.failures.WithLabelValues(kind).Inc()
	}
}
