// Package metrics counts what is the same in all parts of a process: runs of loops, requests to other servers, and which
// version runs. What belongs to one part is counted there.
//
// It promises that no label is made of what a user, a pod or another server sends. Names and units follow
// https://prometheus.io/docs/practices/naming/; docs/operations/metrics.md lists them all.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Loops counts the runs of what is done again and again beside the controllers. Nil counts nothing.
type Loops struct {
	runs    *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewLoops registers the metrics; a nil registry registers nothing.
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

// Run does one run of a loop and returns its error. The name is a constant of the program.
func (l *Loops) Run(loop string, work func() error) error {
	if l == nil {
		return work()
	}
	// Both results are there from the first run on: Prometheus sees a counter rise only from a number that it has seen.
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
