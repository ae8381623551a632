// Package metrics counts what all parts of a process have in common: runs of loops, requests to other servers, and the version. Metrics of
// one part are defined in that part.
//
// No label value comes from a user, a pod or another server. Names and units follow https://prometheus.io/docs/practices/naming/.
// docs/integrate/metrics.md lists all metrics.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Loops counts the runs of the loops beside the controllers. A nil Loops counts nothing.
type Loops struct {
	runs    *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewLoops registers the metrics. A nil registry registers nothing.
func NewLoops(registry prometheus.Registerer) *Loops {
	factory := promauto.With(registry)
	return &Loops{
		runs: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_loop_runs_total",
			Help: "Runs of a loop, by result (ok or error).",
		}, []string{"loop", "result"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_loop_run_duration_seconds",
			Help:    "Time that a run of a loop took.",
			Buckets: []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 15, 60, 300},
		}, []string{"loop"}),
	}
}

// Run executes one run of a loop and returns its error. loop must be a constant of the program, since it is a label value.
func (l *Loops) Run(loop string, work func() error) error {
	if l == nil {
		return work()
	}
	// Both results exist from the first run on: Prometheus sees a counter increase only from a value that it has scraped before.
	for _, result := range []string{resultOK, resultError} {
		l.runs.WithLabelValues(loop, result)
	}
	began := time.Now()
	err := work()
	l.seconds.WithLabelValues(loop).Observe(time.Since(began).Seconds())
	l.runs.WithLabelValues(loop, resultOf(err)).Inc()
	return err
}

const resultOK, resultError = "ok", "error"

func resultOf(err error) string {
	if err != nil {
		return resultError
	}
	return resultOK
}
