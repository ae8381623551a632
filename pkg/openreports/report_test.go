package openreports

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// inOpenSSL returns a finding in openssl, changed by the changes.
func inOpenSSL(id string, severity finding.Severity, changes ...func(*store.WorkloadFinding)) store.WorkloadFinding {
	f := store.WorkloadFinding{Containers: []string{"web"}, Finding: finding.Finding{
		ID: id, Severity: severity, FixState: finding.FixStateFixed, FixVersions: []string{"3.0.2"},
		Package: finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb"},
	}}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func unfixed(f *store.WorkloadFinding) { f.FixState, f.FixVersions = finding.FixStateUnknown, nil }

func exploited(f *store.WorkloadFinding) { f.KnownExploited = true }

func suppressed(f *store.WorkloadFinding) {
	f.Exception = &exception.Exception{Namespace: "shop", Name: "accepted", Reason: "not reachable"}
}

func deployment(findings ...store.WorkloadFinding) workload {
	w := workload{namespace: "shop", kind: "Deployment", name: "web"}
	for _, f := range findings {
		if f.Exception != nil {
			w.details.Suppressed++
		} else {
			w.details.Counts.AddFinding(f.Finding)
		}
	}
	w.details.Findings = findings
	return w
}

// TestReport: a Report counts everything, and lists what needs action first, then what is suppressed. An image without a result is an error, and one that is not covered in full a warning.
func TestReport(t *testing.T) {
	w := deployment(
		inOpenSSL("CVE-2026-0001", finding.Low, exploited), inOpenSSL("CVE-2026-0002", finding.Critical, suppressed), inOpenSSL("CVE-2026-0003", finding.High, unfixed),
		inOpenSSL("CVE-2026-0004", finding.Negligible), inOpenSSL("CVE-2026-0005", finding.Unknown),
	)
	w.gaps = []gapImage{
		{store.WorkloadImage{Container: "proxy", Reference: "docker.io/library/envoy:1"}, nil},
		{store.WorkloadImage{Container: "init", Reference: "docker.io/library/setup:1"}, []string{"OS packages (deb) of debian 7", "npm"}},
	}
	r := w.report(10, noon)
	if want := (reports.ReportSummary{Fail: 4, Skip: 1, Error: 1, Warn: 1}); r.Summary != want {
		t.Errorf("the summary is %+v, want %+v", r.Summary, want)
	}
	if diff := cmp.Diff(&corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, r.Scope); diff != "" {
		t.Errorf("the scope (-want +got):\n%s", diff)
	}
	var got []string
	ids := map[string]bool{}
	for _, result := range r.Results {
		got = append(got, fmt.Sprintf("%s %s %s %s: %s", result.Policy, result.Rule, result.Severity, result.Result, result.Description))
		ids[result.Properties[propertyResultID]] = true
		if result.Timestamp != (metav1.Timestamp{Seconds: noon.Unix()}) {
			t.Errorf("%s has the time %v, want that of the Report", result.Policy, result.Timestamp)
		}
	}
	want := []string{
		"image-scanned proxy  error: image docker.io/library/envoy:1 of container proxy has no result: kubectl get imagescans has the reason",
		"image-scanned init  warn: image docker.io/library/setup:1 of container init is not covered in full: OS packages (deb) of debian 7, npm",
		"CVE-2026-0001 openssl low fail: openssl 3.0.1 is fixed in 3.0.2; known to be exploited",
		"CVE-2026-0003 openssl high fail: openssl 3.0.1 has no fixed version",
		"CVE-2026-0004 openssl info fail: openssl 3.0.1 is fixed in 3.0.2",
		"CVE-2026-0005 openssl  fail: openssl 3.0.1 is fixed in 3.0.2",
		"CVE-2026-0002 openssl critical skip: openssl 3.0.1 is fixed in 3.0.2; suppressed: not reachable",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if len(ids) != len(want) {
		t.Errorf("there are %d IDs, want one for each of the %d results", len(ids), len(want))
	}
	other := w
	other.namespace = "bank"
	if r.Results[1].Properties[propertyResultID] == other.report(10, noon).Results[1].Properties[propertyResultID] {
		t.Error("workloads of one name in two namespaces have the same IDs: Policy Reporter would show one of them")
	}
}

// TestReportIsBounded: a Report lists the worst findings and counts the others. It is small whatever the texts are.
func TestReportIsBounded(t *testing.T) {
	w := deployment(inOpenSSL("CVE-2026-0001", finding.Critical, suppressed), inOpenSSL("CVE-2026-0002", finding.High), inOpenSSL("CVE-2026-0003", finding.Low))
	r := w.report(1, noon)
	if len(r.Results) != 1 || r.Results[0].Policy != "CVE-2026-0002" || r.Summary.Fail != 2 || r.Summary.Skip != 1 || r.Configuration.Limits.MaxResults != 1 {
		t.Errorf("results %v, summary %+v, limits %+v; want the worst finding that needs action, of 2 and 1 suppressed one", r.Results, r.Summary, r.Configuration.Limits)
	}
	for n := range maxGaps {
		w.gaps = append(w.gaps, gapImage{store.WorkloadImage{Container: fmt.Sprint(n)}, []string{"npm"}})
	}
	w.gaps = append(w.gaps, gapImage{store.WorkloadImage{Container: "failed"}, nil})
	if r := w.report(1, noon); r.Results[0].Rule != "failed" || r.Results[0].Result != "error" || r.Summary.Error != 1 || r.Summary.Warn != maxGaps {
		t.Errorf("the first result is %v, summary %+v; want the error, before the warnings", r.Results[0], r.Summary)
	}
	hostile := strings.Repeat("<\x00\xff", 4096) // each of these bytes takes six in JSON
	var findings []store.WorkloadFinding
	for n := range 600 {
		findings = append(findings, inOpenSSL(fmt.Sprint(n, hostile), finding.High, suppressed, func(f *store.WorkloadFinding) {
			f.Package = finding.Package{Name: hostile, Version: hostile, Type: hostile}
			f.FixVersions, f.Containers, f.URL, f.Exception.Reason, f.Exception.Name = []string{hostile}, []string{hostile}, "https://"+hostile, hostile, hostile
		}))
	}
	w = deployment(findings...)
	w.name = hostile
	for range 100 {
		w.gaps = append(w.gaps, gapImage{store.WorkloadImage{Container: hostile, Reference: hostile, Key: image.Key{Digest: hostile}}, []string{hostile}})
	}
	r = w.report(500, noon)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > maxReportBytes || len(r.Results) == 0 || r.Summary.Skip != 600 || r.Summary.Warn != 100 {
		t.Errorf("%d bytes with %d results, summary %+v; want at most %d bytes, and everything counted", len(text), len(r.Results), r.Summary, maxReportBytes)
	}
}

// TestContentHash: the content is the same until something of the Report has changed but times and the probability of exploitation, which change
// each day.
func TestContentHash(t *testing.T) {
	first, second := inOpenSSL("CVE-2026-0001", finding.High), inOpenSSL("CVE-2026-0002", finding.High)
	hash := func(w workload, now time.Time) string { return w.report(10, now).Annotations[annotationContent] }
	before := hash(deployment(first, second), noon)
	first.EPSS, second.EPSS = 0.01, 0.02
	if got := hash(deployment(second, first), noon.Add(time.Hour)); got != before {
		t.Error("the content has changed with the probability of exploitation")
	}
	suppressed(&second)
	if got := hash(deployment(first, second), noon); got == before {
		t.Error("the content has not changed although a finding is suppressed")
	}
}

// TestReportName: names are valid and different, whatever a pod's owner references say.
func TestReportName(t *testing.T) {
	names := map[string]string{}
	for _, tt := range []struct{ kind, name, want string }{
		{"Deployment", "web", "scanner-deployment-web"},
		{"CronJob", "nightly.report", "scanner-cronjob-nightly.report"},
		{"Rollout", "web", ""},
		{"deployment", "web", ""},
		{"Deployment", "../../secrets", ""},
		{"Deployment", "Web", ""},
		{"", "", ""},
		{"Deployment", strings.Repeat("a", 253), ""},
		{strings.Repeat("k", 4096), "\x00", ""},
	} {
		name := reportName(tt.kind, tt.name)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("%.20s %.20s has the name %s: %v", tt.kind, tt.name, name, errs)
		}
		if tt.want != "" && name != tt.want {
			t.Errorf("%s %s has the name %s, want %s", tt.kind, tt.name, name, tt.want)
		}
		if other, found := names[name]; found {
			t.Errorf("%.20s %.20s has the name of %.40s", tt.kind, tt.name, other)
		}
		names[name] = tt.kind + " " + tt.name
	}
}
