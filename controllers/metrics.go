package controllers

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Metrics exports what Scanners cover, as of their last status, and counts failures. The number of time series is the number of Scanners
// times a constant, and those of single images: no label names a pod or a vulnerability. A nil Metrics records nothing.
type Metrics struct {
	failures   *prometheus.CounterVec
	deliveries *prometheus.CounterVec
	exports    *prometheus.CounterVec

	mu       sync.Mutex
	scanners map[types.NamespacedName][]prometheus.Metric
	images   imageMetrics
}

// NewMetrics registers the metrics; a nil registry registers nothing. No image has metrics of its own before LimitImages.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	factory := promauto.With(registry)
	m := &Metrics{
		failures: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_scan_failures_total", Help: "Attempts to scan an image that failed, by reason (docs/use/troubleshooting.md).",
		}, []string{"reason"}),
		deliveries: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_deliveries_total", Help: "Attempts to deliver a message to a receiver, by result and reason (docs/use/troubleshooting.md).",
		}, []string{"result", "reason"}),
		exports: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_exports_total", Help: "Attempts to send the findings or an SBOM of a workload to another tool, by result and reason (docs/integrate/exports-tools.md).",
		}, []string{"result", "reason"}),
		scanners: map[types.NamespacedName][]prometheus.Metric{},
		images:   imageMetrics{ofScanner: map[types.NamespacedName]scannerImages{}},
	}
	if registry != nil {
		registry.MustRegister(m)
	}
	return m
}

// LimitImages sets how many images have metrics of their own. It must come before the first Scanner is reconciled.
func (m *Metrics) LimitImages(limit int) { m.images.limit = limit }

// Gauges of each Scanner. The label is called scanner_namespace because namespace is where the manager runs.
var (
	imagesGauge = newGaugeDesc("scanner_operator_images", "Images of a Scanner by state (scanned, pending, failed, excluded).",
		"scanner_namespace", "scanner", "state")
	failedGauge = newGaugeDesc("scanner_operator_images_failed", "Failed images of a Scanner by reason (docs/use/troubleshooting.md).",
		"scanner_namespace", "scanner", "reason")
	recentGauge = newGaugeDesc("scanner_operator_images_recently_used", "Further images of a Scanner that no pod runs now and whose last pods ended within unusedImageRetention.",
		"scanner_namespace", "scanner")
	findingsGauge = newGaugeDesc("scanner_operator_findings", "Findings of a Scanner by severity, without those that exceptions suppress.",
		"scanner_namespace", "scanner", "severity")
	fixableGauge = newGaugeDesc("scanner_operator_findings_fixable", "Findings of a Scanner that have a fixed version.",
		"scanner_namespace", "scanner")
	exploitedGauge = newGaugeDesc("scanner_operator_findings_known_exploited", "Findings of a Scanner that are known to be exploited.",
		"scanner_namespace", "scanner")
	suppressedGauge = newGaugeDesc("scanner_operator_findings_suppressed", "Findings of a Scanner that exceptions suppress.",
		"scanner_namespace", "scanner")
	conditionGauge = newGaugeDesc("scanner_operator_scanner_condition", "Conditions of a Scanner: 1 if true, 0 if not.",
		"scanner_namespace", "scanner", "condition")
	oldestGauge = newGaugeDesc("scanner_operator_oldest_result_timestamp_seconds", "Time of the oldest result among a Scanner's scanned images, in Unix time.",
		"scanner_namespace", "scanner")
	waitingGauge = newGaugeDesc("scanner_operator_longest_pending_timestamp_seconds", "Since when the longest waiting pending image of a Scanner waits, in Unix time.",
		"scanner_namespace", "scanner")
	dataGauge = newGaugeDesc("scanner_operator_vulnerability_data_timestamp_seconds", "When the vulnerability data of a Scanner's engine was built, in Unix time.",
		"scanner_namespace", "scanner", "engine")
	maxAgeGauge = newGaugeDesc("scanner_operator_vulnerability_data_max_age_seconds", "Age from which vulnerability data counts as outdated, by the operator's configuration.",
		"scanner_namespace", "scanner", "engine")
	receiversGauge = newGaugeDesc("scanner_operator_receivers", "Receivers of a Scanner by state (working, or failing as long as the last attempt failed).",
		"scanner_namespace", "scanner", "state")
	pendingGauge = newGaugeDesc("scanner_operator_pending_announcements", "Findings that wait for the next message to a Scanner's receivers.",
		"scanner_namespace", "scanner")
	exportedGauge = newGaugeDesc("scanner_operator_exported_workloads", "Workloads by what the tools of a Scanner's exports have of them (current, pending, waiting).",
		"scanner_namespace", "scanner", "state")
)

func newGaugeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(into chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		imagesGauge, failedGauge, recentGauge, findingsGauge, fixableGauge, exploitedGauge, suppressedGauge, conditionGauge,
		oldestGauge, waitingGauge, dataGauge, maxAgeGauge, receiversGauge, pendingGauge, exportedGauge,
		imageFindingsGauge, imageFixableGauge, imageExploitedGauge, imagesOmittedGauge,
	} {
		into <- desc
	}
}

// Collect implements prometheus.Collector. It only emits values that were computed before.
func (m *Metrics) Collect(into chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ofScanner := range m.scanners {
		for _, metric := range ofScanner {
			into <- metric
		}
	}
	for _, metric := range m.images.metrics() {
		into <- metric
	}
}

// setScanner replaces the metrics of a Scanner.
func (m *Metrics) setScanner(s *scannerScope) {
	if m == nil {
		return
	}
	g := gauges{scanner: s.scanner}
	g.images(s.coverage.Running)
	g.findings()
	g.data(s.backend)
	g.receivers()
	g.exports()
	for _, condition := range s.scanner.ScannerStatus().Conditions {
		g.add(conditionGauge, truth[condition.Status], condition.Type)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := types.NamespacedName{Namespace: s.scanner.GetNamespace(), Name: s.scanner.GetName()}
	m.scanners[name] = g.all
	if s.covered {
		m.images.set(name, s.coverage.Namespaces.Covered, s.coverage.RunningIn)
	}
}

var truth = map[metav1.ConditionStatus]float64{metav1.ConditionTrue: 1}

// remove drops the metrics of a deleted Scanner.
func (m *Metrics) remove(name types.NamespacedName) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.scanners, name)
	m.images.remove(name)
}

// gauges collects the metrics of one Scanner.
type gauges struct {
	scanner v1alpha1.GenericScanner
	all     []prometheus.Metric
}

func (g *gauges) add(desc *prometheus.Desc, value float64, labels ...string) {
	g.all = append(g.all, gauge(desc, value, append([]string{g.scanner.GetNamespace(), g.scanner.GetName()}, labels...)...))
}

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// since adds a time as a gauge, unless it is zero.
func (g *gauges) since(desc *prometheus.Desc, at time.Time, labels ...string) {
	if !at.IsZero() {
		g.add(desc, float64(at.Unix()), labels...)
	}
}

func (g *gauges) images(images []inventory.CoveredImage) {
	counts := g.scanner.ScannerStatus().Images
	for state, n := range map[image.State]int32{
		image.Scanned: counts.Scanned, image.Pending: counts.Pending, image.Failed: counts.Failed, image.Excluded: counts.Excluded,
	} {
		g.add(imagesGauge, float64(n), string(state))
	}
	g.add(recentGauge, float64(counts.RecentlyUsed))
	failed, oldest, waiting := map[string]int{}, time.Time{}, time.Time{}
	for _, img := range images {
		switch img.State {
		case image.Failed:
			failed[knownReason(img.Reason)]++
		case image.Scanned:
			oldest = health.Earliest(oldest, img.Report.MatchedAt)
		case image.Pending:
			waiting = health.Earliest(waiting, img.Since)
		}
	}
	for reason, n := range failed {
		g.add(failedGauge, float64(n), reason)
	}
	if !isSuspended(g.scanner) { // nothing is due while a Scanner is suspended
		g.since(oldestGauge, oldest)
		g.since(waitingGauge, waiting)
	}
}

func (g *gauges) findings() {
	counts := g.scanner.ScannerStatus().Findings
	for severity, n := range bySeverity(&counts) {
		g.add(findingsGauge, float64(n), severity)
	}
	g.add(fixableGauge, float64(counts.Fixable))
	g.add(exploitedGauge, float64(counts.KnownExploited))
	g.add(suppressedGauge, float64(counts.Suppressed))
}

// bySeverity returns the counts by the values of the label severity.
func bySeverity(counts *v1alpha1.FindingCounts) map[string]int32 {
	return map[string]int32{
		"critical": counts.Critical, "high": counts.High, "medium": counts.Medium, "low": counts.Low,
		"negligible": counts.Negligible, "unknown": counts.Unknown,
	}
}

func (g *gauges) data(b backend.Backend) {
	engine := string(g.scanner.Settings().Backend.Type)
	if data := g.scanner.ScannerStatus().VulnerabilityData; data != nil {
		g.since(dataGauge, data.BuildTime.Time, engine)
	}
	if reporter, ok := b.(backend.DataReporter); ok && reporter.MaxDataAge() > 0 {
		g.add(maxAgeGauge, reporter.MaxDataAge().Seconds(), engine)
	}
}

func (g *gauges) receivers() {
	failing, pending := 0, int32(0)
	for _, receiver := range g.scanner.ScannerStatus().Receivers {
		pending += receiver.Pending
		if receiver.LastError != "" {
			failing++
		}
	}
	g.add(receiversGauge, float64(failing), "failing")
	g.add(receiversGauge, float64(len(g.scanner.ScannerStatus().Receivers)-failing), "working")
	g.add(pendingGauge, float64(pending))
}

// exports adds nothing for a Scanner without exports.
func (g *gauges) exports() {
	all := g.scanner.ScannerStatus().Exports
	if len(all) == 0 {
		return
	}
	var current, pending, waiting int32
	for _, one := range all {
		current, pending, waiting = current+one.Workloads, pending+one.Pending, waiting+one.Waiting
	}
	g.add(exportedGauge, float64(current), "current")
	g.add(exportedGauge, float64(pending), "pending")
	g.add(exportedGauge, float64(waiting), "waiting")
}

// countFailure counts a failed attempt to scan an image.
func (m *Metrics) countFailure(reason string) {
	if m != nil {
		m.failures.WithLabelValues(knownReason(reason)).Inc()
	}
}

// countDelivery counts an attempt to deliver a message.
func (m *Metrics) countDelivery(o *announce.Outcome) {
	if m != nil {
		m.deliveries.WithLabelValues(string(o.Result), o.Reason).Inc()
	}
}

// countExport counts an attempt to send the findings of a workload to another tool.
func (m *Metrics) countExport(o announce.Outcome) {
	if m != nil {
		m.exports.WithLabelValues(string(o.Result), o.Reason).Inc()
	}
}

// otherReason replaces every reason that the operator does not know. Pods in tenants' namespaces can send any reason, and each would be a
// time series.
const otherReason = "Other"

func knownReason(reason string) string {
	if slices.Contains(failureReasons, reason) {
		return reason
	}
	return otherReason
}

// failureReasons are all reasons for which an image can fail.
var failureReasons = []string{
	v1alpha1.ReasonBackendDisabled, v1alpha1.ReasonBackendError, v1alpha1.ReasonNotPulled, v1alpha1.ReasonBareImageID, v1alpha1.ReasonTooManyImages,
	workerapi.ReasonImageNotFound, workerapi.ReasonUnauthorized, workerapi.ReasonPullSecretMissing, workerapi.ReasonNodeCredentials, workerapi.ReasonIdentityMissing,
	workerapi.ReasonPlatformMismatch, workerapi.ReasonNotAnImage, workerapi.ReasonForeignLayer, workerapi.ReasonImageTooLarge, workerapi.ReasonScratchFull,
	workerapi.ReasonRegistryThrottled, workerapi.ReasonRegistryUnavail, workerapi.ReasonUploadRefused, workerapi.ReasonSpoolBudget, workerapi.ReasonIngestUnreachable,
	workerapi.ReasonCatalogFailed, workerapi.ReasonMatchFailed, workerapi.ReasonMatchTimedOut, workerapi.ReasonDatabaseUnreadable, store.ReasonMatchWorkerDied,
	backend.ReasonJobRejected, backend.ReasonNoPod, backend.ReasonAccountMissing, backend.ReasonResourceQuota, backend.ReasonLimitRange, backend.ReasonPodSecurity,
	backend.ReasonPolicyDenied, backend.ReasonPolicyUnavailable, backend.ReasonUnschedulable, backend.ReasonWorkerNotPulled, backend.ReasonNotStarted,
	backend.ReasonOutOfMemory, backend.ReasonDeadline, backend.ReasonEvicted, backend.ReasonNodeLost, backend.ReasonPodDeleted,
	backend.ReasonJobDeleted, backend.ReasonUploadMissing, backend.ReasonWorkerCrashed, backend.ReasonWorkerSilent, v1alpha1.ReasonStoreBudgetExceeded,
	backend.ReasonClairNotAllowed, backend.ReasonClairSettings, backend.ReasonClairUnavailable, backend.ReasonClairUnauthorized, backend.ReasonClairSecretMissing,
	backend.ReasonClairSecretForbidden, backend.ReasonPullSecretForbidden, backend.ReasonClairIndexFailed, backend.ReasonClairReportFailed, backend.ReasonClairImageLost,
}
