package grype

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

type backendImage = backend.Image

var failedMatch = workerapi.Failure{Reason: workerapi.ReasonMatchFailed, Message: "no"}

// report returns a report made with build(hours).
func report(hours int, findings ...workerapi.Finding) workerapi.Report {
	return workerapi.Report{Database: build(hours), Tool: tool, Distro: "debian 12", Findings: findings}
}

// TestNormalise: a Grype match becomes a finding with all its fields.
func TestNormalise(t *testing.T) {
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	match := workerapi.Finding{
		ID: "GHSA-aaaa-bbbb-cccc", Namespace: "github:language:go", Aliases: []string{"CVE-2024-0001"}, Severity: "high",
		Description: "text", URL: "https://example.com", FixState: "fixed", FixVersions: []string{"1.9", "2.1"}, SuggestedFix: "2.1", FixAvailable: day,
		CVSS: []workerapi.CVSS{{Score: 5}, {Source: "nvd@nist.gov", Version: "3.1", Vector: "CVSS:3.1/AV:N", Score: 9.8}, {Score: 7}}, EPSS: 0.25, KnownExploited: true,
		Package:   workerapi.Package{Name: "example.com/x", Version: "v2.0.0", Type: "go-module", PURL: "pkg:golang/example.com/x@v2.0.0"},
		Locations: []workerapi.Location{{Path: "/app"}, {Path: "/app", Layer: "other"}, {Path: "/bin"}},
	}
	want := []finding.Finding{{
		ID: "CVE-2024-0001", Aliases: []string{"GHSA-aaaa-bbbb-cccc"}, Severity: finding.High,
		Package: finding.Package{Name: "example.com/x", Version: "v2.0.0", Type: "go-module", PURL: "pkg:golang/example.com/x@v2.0.0"},
		Paths:   []string{"/app", "/bin"}, FixState: finding.FixStateFixed, FixVersions: []string{"2.1", "1.9"}, FixAvailable: day,
		Description: "text", URL: "https://example.com", CVSS: 9.8, EPSS: 0.25, KnownExploited: true,
		Advisories: []finding.Advisory{{ID: "GHSA-aaaa-bbbb-cccc", Source: "github:language:go", Severity: "high", FixState: "fixed", FixVersions: []string{"1.9", "2.1"},
			Ratings: []finding.Rating{{Score: 5}, {Source: "nvd@nist.gov", Version: "3.1", Vector: "CVSS:3.1/AV:N", Score: 9.8}, {Score: 7}}}},
	}}
	if diff := cmp.Diff(want, Normalise([]workerapi.Finding{match})); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1.9", "2.1"}, match.FixVersions); diff != "" {
		t.Errorf("the match itself was changed:\n%s", diff)
	}
}

// TestNormaliseMerges: two sources with the same vulnerability in the same package give one finding.
func TestNormaliseMerges(t *testing.T) {
	ghsa, nvd := openssl, openssl
	ghsa.ID, ghsa.Aliases, ghsa.Namespace, ghsa.Severity = "GHSA-aaaa-bbbb-cccc", []string{"CVE-2024-0001"}, "github:language:c", "Critical"
	nvd.Namespace, nvd.FixState, nvd.FixVersions = "nvd:cpe", "unknown", nil
	findings := Normalise([]workerapi.Finding{nvd, ghsa})
	if len(findings) != 1 || len(findings[0].Advisories) != 2 || findings[0].Severity != finding.Critical || !findings[0].Fixable() {
		t.Errorf("findings %+v, want one with both advisories, the worst severity and the fix", findings)
	}
}

// TestFixStates: any state other than the three known ones becomes unknown.
func TestFixStates(t *testing.T) {
	for state, want := range map[string]string{
		"fixed": finding.FixStateFixed, "not-fixed": finding.FixStateNotFixed, "wont-fix": finding.FixStateWontFix,
		"": finding.FixStateUnknown, "unknown": finding.FixStateUnknown, "perhaps": finding.FixStateUnknown,
	} {
		if got := fixState(state); got != want {
			t.Errorf("%q becomes %q, want %q", state, got, want)
		}
	}
}

// TestReportLifecycle: an image is matched, then matched again with newer data, and its ImageScans are woken each time.
func TestReportLifecycle(t *testing.T) {
	e := newEngine(t)
	web := public("web")
	e.setUsed(web)
	e.saveCatalog(web)
	if got := e.match(web); got != v1alpha1.ReasonMatching {
		t.Errorf("without data, match says %q, want %q", got, v1alpha1.ReasonMatching)
	}
	e.reportInstalled(build(0))
	if got := e.match(web); got != v1alpha1.ReasonMatching {
		t.Errorf("before a report, match says %q, want %q", got, v1alpha1.ReasonMatching)
	}
	e.woken = nil
	e.must(e.SaveReport(t.Context(), e.leaseOne(), report(0, openssl)))
	if diff := cmp.Diff([]string{platformDigest(web)}, e.woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if got := e.match(web); got != "done" {
		t.Errorf("with a report, match says %q, want done", got)
	}
	e.reportInstalled(build(1))
	if got := e.match(web); got != v1alpha1.ReasonMatching {
		t.Errorf("with newer data, match says %q, want %q", got, v1alpha1.ReasonMatching)
	}
	if got := e.summary(web).Counts.High; got != 1 {
		t.Errorf("meanwhile %d High findings are known, want those of the last report", got)
	}
	e.must(e.SaveReport(t.Context(), e.leaseOne(), report(1)))
	if got := e.summary(web).Counts.Total(); got != 0 || e.match(web) != "done" {
		t.Errorf("after the second report %d findings are known, want none", got)
	}
}

// TestReportOfLostLease: a worker that took too long has lost its lease, and its report wakes nobody.
func TestReportOfLostLease(t *testing.T) {
	e := newEngine(t)
	web := public("web")
	e.setUsed(web)
	e.saveCatalog(web)
	e.reportInstalled(build(0))
	lease := e.leaseOne()
	e.advance(leaseTime)
	e.woken = nil
	if err := e.SaveReport(t.Context(), lease, report(0, openssl)); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("a report after the lease's time gives %v, want %v", err, store.ErrLeaseEnded)
	}
	if err := e.FailMatch(t.Context(), lease, failedMatch); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("a failure after the lease's time gives %v, want %v", err, store.ErrLeaseEnded)
	}
	if len(e.woken) != 0 {
		t.Errorf("%q are woken for nothing", e.woken)
	}
}

// TestFailedMatchLifecycle: an image that could not be matched shows why, is matched again after a while, and then shows that it is being
// matched instead of the failure.
func TestFailedMatchLifecycle(t *testing.T) {
	e := newEngine(t)
	web := public("web")
	e.setUsed(web)
	e.saveCatalog(web)
	e.reportInstalled(build(0))
	e.must(e.FailMatch(t.Context(), e.leaseOne(), failedMatch))
	_, err := e.Match(t.Context(), web)
	var failure *backend.Failure
	if !errors.As(err, &failure) || failure.Reason != workerapi.ReasonMatchFailed || failure.RetryAfter != matchRetry {
		t.Fatalf("match says %v, want the failure, to be tried again after %s", err, matchRetry)
	}
	e.advance(matchRetry)
	if got := e.match(web); got != v1alpha1.ReasonMatching {
		t.Errorf("when it is being tried again, match says %q, want %q", got, v1alpha1.ReasonMatching)
	}
	e.must(e.SaveReport(t.Context(), e.leaseOne(), report(0, openssl)))
	if got := e.match(web); got != "done" {
		t.Errorf("after the second attempt match says %q, want done", got)
	}
}

// TestFailedMatchAndNewerData: a match failure does not count for newer data.
func TestFailedMatchAndNewerData(t *testing.T) {
	e := newEngine(t)
	web := public("web")
	e.setUsed(web)
	e.saveCatalog(web)
	e.reportInstalled(build(0))
	e.must(e.FailMatch(t.Context(), e.leaseOne(), failedMatch))
	e.reportInstalled(build(1))
	if got := e.match(web); got != v1alpha1.ReasonMatching {
		t.Errorf("match says %q, want %q", got, v1alpha1.ReasonMatching)
	}
	e.leaseOne()
}

// TestCatalogWakesImageScans: the ImageScans of an image are woken as soon as its catalog is stored.
func TestCatalogWakesImageScans(t *testing.T) {
	e := newEngine(t)
	e.RecordCatalog(t.Context(), store.Job{Key: public("web").Key})
	if diff := cmp.Diff([]string{public("web").Key.Digest}, e.woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	select {
	case <-e.wakeJobs:
	default:
		t.Error("the Job loop does not look whether there is something to match")
	}
}
