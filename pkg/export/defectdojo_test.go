package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var shopWeb = DefectDojoTest{ProductType: "Kubernetes", Product: "shop", Engagement: "prod", Test: "Deployment/web (Grype)"}

// allowedFields are those of dojo/tools/generic/json_parser.py in DefectDojo 3.2.0 that a report may use. Any other field makes it refuse the report.
var allowedFields = []string{
	"title", "severity", "description", "vulnerability_ids", "component_name", "component_version", "known_exploited", "fix_available", "fix_version",
	"static_finding", "unique_id_from_tool",
}

func TestEncodeDefectDojo(t *testing.T) {
	fixed := finding.Finding{
		ID: "CVE-2026-0001", Severity: finding.Critical, KnownExploited: true, FixState: finding.FixStateFixed, FixVersions: []string{"3.0.2", "3.1.0"},
		Package: finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb"}, EPSS: 0.9,
	}
	unknown := finding.Finding{ID: "GHSA-aaaa", Severity: finding.Unknown, FixState: finding.FixStateUnknown, Package: finding.Package{Name: "left-pad"}}
	suppressed := store.WorkloadFinding{Finding: finding.Finding{ID: "CVE-2026-0009"}, Exception: &exception.Exception{}}
	document, _, err := encodeDefectDojo(shopWeb, []store.WorkloadFinding{{Finding: unknown}, suppressed, {Finding: fixed}})
	if err != nil {
		t.Fatal(err)
	}
	var got genericFindings
	if err := json.Unmarshal(document, &got); err != nil {
		t.Fatal(err)
	}
	for i := range got.Findings {
		got.Findings[i].UniqueID = ""
	}
	want := genericFindings{Name: "Scanner Operator", Findings: []genericFinding{{
		Title: "CVE-2026-0001 in openssl (deb)", Severity: "Critical",
		Description:      "openssl (deb) has CVE-2026-0001 (Critical, known exploited).\n\nWorkload: Deployment/web (Grype) in the namespace shop, cluster prod.",
		VulnerabilityIDs: []string{"CVE-2026-0001"}, ComponentName: "openssl", ComponentVersion: "3.0.1", KnownExploited: true, FixAvailable: true,
		FixVersion: "3.0.2, 3.1.0", StaticFinding: true,
	}, {
		Title: "GHSA-aaaa in left-pad", Severity: "Medium",
		Description:      "left-pad has GHSA-aaaa (Unknown).\n\nWorkload: Deployment/web (Grype) in the namespace shop, cluster prod.",
		VulnerabilityIDs: []string{"GHSA-aaaa"}, ComponentName: "left-pad", StaticFinding: true,
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	var fields struct{ Findings []map[string]any }
	if err := json.Unmarshal(document, &fields); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields.Findings {
		for name := range f {
			if !slices.Contains(allowedFields, name) {
				t.Errorf("DefectDojo refuses a report with the field %s", name)
			}
		}
	}
}

// TestIdentity: DefectDojo keeps a finding as long as title and description stay, so they change only when it escalates.
func TestIdentity(t *testing.T) {
	known := finding.Finding{ID: "CVE-2026-0001", Severity: finding.High, Package: finding.Package{Name: "openssl", Version: "1", Type: "deb"}}
	identity := func(p DefectDojoTest, f finding.Finding) string {
		made := genericFindingOf(p, f)
		return made.Title + made.Description
	}
	for name, tt := range map[string]struct {
		change func(*finding.Finding, *DefectDojoTest)
		same   bool
	}{
		"another version": {func(f *finding.Finding, _ *DefectDojoTest) { f.Package.Version = "2" }, true},
		"a fix": {func(f *finding.Finding, _ *DefectDojoTest) {
			f.FixState, f.FixVersions = finding.FixStateFixed, []string{"2"}
		}, true},
		"other words":      {func(f *finding.Finding, _ *DefectDojoTest) { f.Description, f.EPSS, f.CVSS = "words", 0.5, 9 }, true},
		"another severity": {func(f *finding.Finding, _ *DefectDojoTest) { f.Severity = finding.Critical }, false},
		"known exploited":  {func(f *finding.Finding, _ *DefectDojoTest) { f.KnownExploited = true }, false},
		"another workload": {func(_ *finding.Finding, p *DefectDojoTest) { p.Test = "Deployment/api (Grype)" }, false},
		"another cluster":  {func(_ *finding.Finding, p *DefectDojoTest) { p.Engagement = "staging" }, false},
		"another package":  {func(f *finding.Finding, _ *DefectDojoTest) { f.Package.Name = "libssl" }, false},
	} {
		f, p := known, shopWeb
		tt.change(&f, &p)
		if same := identity(p, f) == identity(shopWeb, known); same != tt.same {
			t.Errorf("%s: the same finding: %t, want %t", name, same, tt.same)
		}
	}
}

// TestBounds: whatever names an image has, a report is within DefectDojo's columns and within MaxDocumentBytes, and the worst findings are in it.
func TestBounds(t *testing.T) {
	long := strings.Repeat("<é\n\"", 200)
	var findings []store.WorkloadFinding
	for i := range maxFindings {
		findings = append(findings, store.WorkloadFinding{Finding: finding.Finding{
			ID: fmt.Sprintf("CVE-2026-%05d%s", i, long), Severity: finding.High, FixState: finding.FixStateFixed, FixVersions: []string{long, long},
			Package: finding.Package{Name: long + fmt.Sprint(i), Version: long, Type: long},
		}})
	}
	begun := time.Now()
	document, _, err := encodeDefectDojo(shopWeb, findings)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB in %s", len(document)>>10, time.Since(begun))
	if len(document) > MaxDocumentBytes {
		t.Errorf("%d bytes, want at most %d", len(document), MaxDocumentBytes)
	}
	var got genericFindings
	if err := json.Unmarshal(document, &got); err != nil {
		t.Fatal(err)
	}
	if n := len(got.Findings); n == 0 || n == len(findings) || !strings.HasPrefix(got.Findings[n-1].Title, fmt.Sprintf("CVE-2026-%05d", n-1)) {
		t.Errorf("%d of %d findings, want as many of the first ones as fit", n, len(findings))
	}
	seen := map[string]bool{}
	for _, f := range got.Findings {
		if len(f.Title) > maxTitleBytes || len(f.ComponentName) > maxComponentBytes || len(f.ComponentVersion) > maxVersionBytes || len(f.FixVersion) > maxVersionBytes || len(f.VulnerabilityIDs) > 0 {
			t.Fatalf("a finding is too long for DefectDojo: %+v", f)
		}
		if seen[f.Title] {
			t.Fatalf("two findings have the title %q", f.Title)
		}
		seen[f.Title] = true
	}
	slices.Reverse(findings)
	again, _, err := encodeDefectDojo(shopWeb, findings[maxFindings-len(got.Findings):])
	if err != nil || !bytes.Equal(again, document) {
		t.Errorf("the same findings in another order give another report (%v)", err)
	}
}
