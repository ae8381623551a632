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

// RegisterCluster registers the metric with the name of the cluster, if it has one. It is a metric of its own, since a label on each metric is the
// matter of whoever scrapes several clusters: an external label of Prometheus, with which a label of the manager would collide.
func RegisterCluster(registry prometheus.Registerer, name string) {
	if name == "" {
		return
	}
	promauto.With(registry).NewGauge(prometheus.GaugeOpts{
		Name: "scanner_operator_cluster_info", Help: "1, with the name of the cluster in its label, if the configuration has one.",
		ConstLabels: prometheus.Labels{"name": name},
	}).Set(1)
}

// RegisterNotifierBuild registers the metric with the notifier's version.
func RegisterNotifierBuild(registry prometheus.Registerer, version string) {
	promauto.With(registry).NewGauge(prometheus.GaugeOpts{
		Name: "scanner_notifier_build_info", Help: "1, with the version of the notifier and of Go in its labels.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}).Set(1)
}
