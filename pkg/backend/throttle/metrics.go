package throttle

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// RegisterMetrics registers the metrics of one engine. Registries are not labels: pods of tenants may name any host.
func (r *Registries) RegisterMetrics(registry prometheus.Registerer, engine string, now func() time.Time) {
	factory, labels := promauto.With(registry), prometheus.Labels{"engine": engine}
	r.throttleResponses = factory.NewCounter(prometheus.CounterOpts{
		Name: "scanner_operator_registry_backoffs_total", Help: "Answers of 429 after which a registry got no requests for a time.",
		ConstLabels: labels,
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_operator_registries_backed_off", Help: "Registries that get no requests now because they throttle, once for each namespace whose credentials they count.",
		ConstLabels: labels,
	}, func() float64 { return float64(r.throttledNow(now())) })
}

// throttledNow returns the number of registries that are throttled now, once per credential scope.
func (r *Registries) throttledNow(now time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, hosts := range r.until {
		for _, until := range hosts {
			if now.Before(until) {
				n++
			}
		}
	}
	return n
}
