package clair

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// registerMetrics registers metrics that sum up all instances. The state of a single instance is shown in its Scanners' conditions.
func (e *Engines) registerMetrics() {
	factory, labels := promauto.With(e.Metrics), prometheus.Labels{"engine": "clair"}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_operator_index_queue_images", Help: "Images that wait for a slot to be cataloged.",
		ConstLabels: labels,
	}, func() float64 { return e.sum(func(i *instance) int { return i.queue.length() }) })
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_operator_match_queue_images", Help: "Images that wait to be matched, or are being matched, with current data.",
		ConstLabels: labels,
	}, func() float64 { return e.sum(func(i *instance) int { return int(i.queued.Load()) }) })
	e.throttles.RegisterMetrics(e.Metrics, "clair", e.Clock.Now)
}

// sum adds up a value of all instances.
func (e *Engines) sum(of func(*instance) int) float64 {
	total := 0
	for _, i := range e.instances {
		total += of(i)
	}
	return float64(total)
}
