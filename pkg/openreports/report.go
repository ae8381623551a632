package openreports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// source names the operator in Reports.
	source = "Scanner Operator"
	// categoryFindings and categoryCoverage are the categories of results: of findings, and of images of which findings may be missing.
	categoryFindings = "Vulnerability Scan"
	categoryCoverage = "Vulnerability Scan Coverage"

	// labelManagedBy with the value managedBy is on each Report of the operator. It touches no other Report.
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "scanner-operator"
	// annotationContent has a hash of the content, by which a Report that has not changed is not written again.
	annotationContent = "scanner-operator.io/content-hash"
	// propertyResultID is the ID of a result for Policy Reporter, whose own ID is the same for workloads of one name in several namespaces
	// (https://github.com/kyverno/policy-reporter/blob/main/pkg/report/result/id_generator.go).
	propertyResultID = "resultID"
)

// Bounds of a Report. maxReportBytes is as JSON, and far below etcd's limit of 1.5 MiB for a request.
const (
	maxReportBytes   = 512 << 10
	maxGaps          = 20
	maxNameBytes     = 128 // of an ID, a package or a version
	maxMessageBytes  = 384
	maxFindings      = 100_000 // as many as the store reads of a workload
	maxPropertyBytes = 256
)

// workload is what a Report is made of.
type workload struct {
	namespace, kind, name string
	// details has the findings of the workload. They are missing if tooMany is true; its counts are always there.
	details store.WorkloadDetails
	tooMany bool
	// unproven means that the newest results lack findings that may not have ended.
	unproven bool
	// gaps are the images of which findings may be missing.
	gaps []gapImage
}

// gapImage is an image without a result of a scanner, or with content that the result does not cover.
type gapImage struct {
	store.WorkloadImage
	// gaps are what the result does not cover; empty without a result.
	gaps []string
}

// report returns the Report of a workload with at most limit findings, those that need action first, the worst ones. The summary counts all of
// them. Images without a result are errors, and those that a result does not cover in full are warnings, so that a workload of which not all is known
// does not look clean.
func (w workload) report(limit int, now time.Time) *reports.Report {
	r := &reports.Report{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: reportName(w.kind, w.name), Labels: map[string]string{labelManagedBy: managedBy}, Annotations: map[string]string{},
		},
		Source:        source,
		Scope:         &corev1.ObjectReference{APIVersion: kinds[w.kind].String(), Kind: cut(w.kind, maxNameBytes), Namespace: w.namespace, Name: cut(w.name, maxPropertyBytes)},
		Configuration: &reports.ReportConfiguration{Limits: reports.Limits{MaxResults: limit}},
		Summary:       reports.ReportSummary{Fail: w.details.Counts.Total(), Skip: w.details.Suppressed},
	}
	if w.tooMany {
		r.Summary.Error++
		r.Results = append(r.Results, w.failure("findings", "too many findings to list them. The REST API has them by image"))
	}
	if w.unproven {
		result := w.failure("vulnerability-data", "the newest vulnerability data lacks findings, and nothing confirms that they have ended: findings may be missing here")
		result.Result = "warn"
		r.Summary.Warn++
		r.Results = append(r.Results, result)
	}
	// Errors come first, so that the bound leaves out warnings.
	gaps := slices.Clone(w.gaps)
	slices.SortStableFunc(gaps, func(a, b gapImage) int { return compareBool(len(a.gaps) > 0, len(b.gaps) > 0) })
	for i, img := range gaps {
		result := w.failure(img.Container, fmt.Sprintf("image %s of container %s has no result: kubectl get imagescans has the reason", img.Reference, img.Container))
		if len(img.gaps) > 0 {
			result = w.failure(img.Container, fmt.Sprintf("image %s of container %s is not covered in full: %s", img.Reference, img.Container, strings.Join(img.gaps, ", ")))
			result.Result = "warn"
			r.Summary.Warn++
		} else {
			r.Summary.Error++
		}
		if i < maxGaps {
			r.Results = append(r.Results, result)
		}
	}
	for _, f := range w.worst(limit) {
		r.Results = append(r.Results, w.result(f))
	}
	r.Annotations[annotationContent] = hashOf(r)
	for i := range r.Results {
		r.Results[i].Timestamp = metav1.Timestamp{Seconds: now.Unix()}
	}
	for len(r.Results) > 0 && sizeOf(r) > maxReportBytes {
		r.Results = r.Results[:len(r.Results)/2]
	}
	return r
}

// worst returns at most limit findings. Their order does not depend on the probability of exploitation, which changes each day.
func (w workload) worst(limit int) []store.WorkloadFinding {
	findings := slices.Clone(w.details.Findings)
	slices.SortStableFunc(findings, func(a, b store.WorkloadFinding) int { return compareBool(a.Exception != nil, b.Exception != nil) })
	findings = findings[:min(len(findings), limit)]
	slices.SortFunc(findings, func(a, b store.WorkloadFinding) int {
		return cmp.Or(
			compareBool(a.Exception != nil, b.Exception != nil), compareBool(b.KnownExploited, a.KnownExploited), cmp.Compare(b.Severity, a.Severity),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Package.Name, b.Package.Name), cmp.Compare(a.Package.Type, b.Package.Type),
		)
	})
	return findings
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// severities maps severities to those of OpenReports, which has none for Unknown.
var severities = map[finding.Severity]reports.ResultSeverity{
	finding.Critical: "critical", finding.High: "high", finding.Medium: "medium", finding.Low: "low", finding.Negligible: "info",
}

func (w workload) result(f store.WorkloadFinding) reports.ReportResult {
	pkg := cut(f.Package.Name, maxNameBytes)
	result := reports.ReportResult{
		Source: source, Policy: cut(f.ID, maxNameBytes), Rule: pkg, Category: categoryFindings, Severity: severities[f.Severity], Result: "fail", Scored: true,
		Properties: map[string]string{
			propertyResultID: w.resultID(f.ID, f.Package.Type, f.Package.Name), "severity": f.Severity.String(), "package": pkg,
			"packageType": cut(f.Package.Type, maxNameBytes), "installedVersion": cut(f.Package.Version, maxNameBytes),
			"containers": cut(strings.Join(f.Containers, ", "), maxPropertyBytes), "knownExploited": strconv.FormatBool(f.KnownExploited),
		},
	}
	message := fmt.Sprintf("%s %s", f.Package.Name, f.Package.Version)
	switch {
	case f.Fixable():
		result.Properties["fixedVersion"] = cut(f.FixVersions[0], maxNameBytes)
		message += " is fixed in " + f.FixVersions[0]
	default:
		message += " has no fixed version"
	}
	if f.KnownExploited {
		message += "; known to be exploited"
	}
	if url := finding.WebAddress(f.URL); url != "" && len(url) <= maxPropertyBytes {
		result.Properties["url"] = url
	}
	if f.Exception != nil {
		result.Result = "skip"
		result.Properties["exception"] = cut(f.Exception.Resource(), maxPropertyBytes)
		message += "; suppressed: " + f.Exception.Reason
	}
	result.Description = cut(message, maxMessageBytes)
	return result
}

// failure returns a result about what is not known.
func (w workload) failure(rule, message string) reports.ReportResult {
	return reports.ReportResult{
		Source: source, Policy: "image-scanned", Rule: cut(rule, maxNameBytes), Category: categoryCoverage, Result: "error", Description: cut(message, maxMessageBytes),
		Properties: map[string]string{propertyResultID: w.resultID("image-scanned", rule, message)},
	}
}

// resultID returns an ID that stays the same while a result is about the same finding.
func (w workload) resultID(parts ...string) string {
	return shortHash(slices.Concat([]string{w.namespace, w.kind, w.name}, parts)...)
}

// reportName returns the name of a workload's Report, always the same. Kinds and names come from owner references of pods, which may have any text.
func reportName(kind, name string) string {
	readable := "scanner-" + strings.ToLower(kind) + "-" + name
	if _, known := kinds[kind]; known && len(validation.IsDNS1123Subdomain(readable)) == 0 {
		return readable
	}
	return "scanner-" + shortHash(kind, name)
}

// shortHash returns 32 hexadecimal digits.
func shortHash(parts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	return hex.EncodeToString(sum[:16])
}

// hashOf returns a hash of a Report without the times of its results.
func hashOf(r *reports.Report) string {
	text, _ := json.Marshal(r) // it has only types that can be marshalled
	return shortHash(string(text))
}

func sizeOf(r *reports.Report) int {
	text, _ := json.Marshal(r) // it has only types that can be marshalled
	return len(text)
}

func cut(text string, limit int) string { return finding.TruncateText(text, limit) }
