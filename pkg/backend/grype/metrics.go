package grype

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// outcome is the result of a Job as a metric label. Failure reasons are counted per image instead.
type outcome string

const (
	outcomeSucceeded outcome = "succeeded"
	outcomeFailed    outcome = "failed"
	outcomeUnwanted  outcome = "unwanted" // the Job is not needed any more: no Scanner uses the image, or the worker version changed
)

func outcomeOf(failed bool) outcome {
	if failed {
		return outcomeFailed
	}
	return outcomeSucceeded
}

// jobMetrics are the backend's metrics.
type jobMetrics struct {
	jobs        *prometheus.GaugeVec
	ends        *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	ladderSteps *prometheus.CounterVec
	installs    *prometheus.CounterVec
	// queue is the length of the match queue at the Job loop's last run.
	queue prometheus.Gauge
}

func (b *Backend) registerMetrics() {
	factory := promauto.With(b.Metrics)
	b.metrics = jobMetrics{
		jobs: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scanner_operator_jobs", Help: "Jobs that have not ended, by purpose (catalog or match).",
		}, []string{"purpose"}),
		ends: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_jobs_ended_total", Help: "Jobs that ended, by purpose and outcome (succeeded, failed, or unwanted).",
		}, []string{"purpose", "outcome"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scanner_operator_catalog_job_duration_seconds", Help: "Time from a catalog Job's start to its end, including scheduling and pulling.",
			Buckets: []float64{2, 5, 10, 20, 40, 60, 120, 300, 600, 1800},
		}, []string{"outcome"}),
		ladderSteps: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_memory_ladder_steps_total",
			Help: "Catalog Jobs that were killed for their memory, by result: retried with the next limit, or exhausted.",
		}, []string{"result"}),
		installs: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_vulnerability_database_installs_total",
			Help: "Newer vulnerability databases that match workers downloaded, by result (installed or refused).",
		}, []string{"result"}),
		queue: factory.NewGauge(prometheus.GaugeOpts{
			Name: "scanner_operator_match_queue_images", Help: "Images that wait to be matched, or are being matched, with current data.",
			ConstLabels: prometheus.Labels{"engine": Engine},
		}),
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scanner_operator_index_queue_images", Help: "Images that wait for a slot to be cataloged.",
		ConstLabels: prometheus.Labels{"engine": Engine},
	}, func() float64 { return float64(b.queue.length()) })
	b.throttles.RegisterMetrics(b.Metrics, Engine, b.Clock.Now)
}

// setLive sets the gauge of live Jobs.
func (c *jobMetrics) setLive(jobs []store.Job) {
	byPurpose := map[store.JobPurpose]int{store.JobCatalog: 0, store.JobMatch: 0}
	for _, job := range jobs {
		byPurpose[job.Purpose]++
	}
	for purpose, n := range byPurpose {
		c.jobs.WithLabelValues(string(purpose)).Set(float64(n))
	}
}

// countEnd counts the end of a Job if err is nil, and returns err. After an error the Job loop handles the Job again.
func (c *jobMetrics) countEnd(err error, record store.Job, o outcome, age time.Duration) error {
	if err != nil {
		return err
	}
	c.ends.WithLabelValues(string(record.Purpose), string(o)).Inc()
	if record.Purpose == store.JobCatalog {
		c.seconds.WithLabelValues(string(o)).Observe(age.Seconds())
	}
	return nil
}
