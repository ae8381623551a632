package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// RegisterManagerBuild registers the metric with the manager's version.
func RegisterManagerBuild(registry prometheus.Registerer, version string) {
	promauto.With(registry).NewGauge(prometheus.GaugeOpts{
		Name: "scanner_operator_build_info", Help: "1, with the version of the manager and of Go in its labels.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}).Set(1)
}

// RegisterNotifierBuild registers the metric with the notifier's version.
func RegisterNotifierBuild(registry prometheus.Registerer, version string) {
	promauto.With(registry).NewGauge(prometheus.GaugeOpts{
		Name: "scanner_notifier_build_info", Help: "1, with the version of the notifier and of Go in its labels.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}).Set(1)
}
