package export

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// FuzzDefectDojo: whatever names an image contains, a report is within DefectDojo's columns, has only fields and severities that DefectDojo knows, and is the
// same in whatever order the findings come. Two findings stay two, with titles of their own.
func FuzzDefectDojo(f *testing.F) {
	f.Add("openssl", "3.0.1", "CVE-2026-0001", "3.0.2", "Deployment/web (Grype)", uint8(5))
	f.Add(strings.Repeat("漢", 200), strings.Repeat("1.", 80), strings.Repeat("x", 60), "", "", uint8(0))
	f.Add("a\x00b", "\xff", "<b>", "1\n2", "StatefulSet/\"db\" \\", uint8(100))
	severities := map[string]bool{"Critical": true, "High": true, "Medium": true, "Low": true, "Info": true}
	f.Fuzz(func(t *testing.T, name, version, id, fix, test string, severity uint8) {
		made := finding.Finding{ID: id, Severity: finding.Severity(int(severity) % (int(finding.Critical) + 1)), Package: finding.Package{Name: name, Version: version, Type: "deb"}}
		if fix != "" {
			made.FixState, made.FixVersions = finding.FixStateFixed, []string{fix}
		}
		other := made
		other.Package.Name += "x"
		findings := []store.WorkloadFinding{{Finding: made}, {Finding: other}}
		p := DefectDojoTest{ProductType: "Kubernetes", Product: "shop", Engagement: "blue", Test: shorten(test, maxNameBytes)}
		document, _, err := encodeDefectDojo(p, findings)
		if err != nil || len(document) > MaxDocumentBytes || len(p.Test) > maxNameBytes {
			t.Fatalf("%d bytes: %v", len(document), err)
		}
		slices.Reverse(findings)
		if again, _, err := encodeDefectDojo(p, findings); err != nil || !bytes.Equal(document, again) {
			t.Errorf("the report depends on the order of the findings: %v\n%s\n%s", err, document, again)
		}
		var report genericFindings
		decoder := json.NewDecoder(bytes.NewReader(document))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&report); err != nil || len(report.Findings) != 2 {
			t.Fatalf("%s: %v", document, err)
		}
		for _, got := range report.Findings {
			// DefectDojo counts characters, which are no more than bytes.
			isLong := len([]rune(got.Title)) > maxTitleBytes || len([]rune(got.ComponentName)) > maxComponentBytes || len([]rune(got.ComponentVersion)) > maxVersionBytes ||
				len([]rune(got.FixVersion)) > maxVersionBytes
			if isLong || !severities[got.Severity] || got.UniqueID == "" || got.FixAvailable != (fix != "") || len(got.VulnerabilityIDs) == 1 && len(id) > maxIDBytes {
				t.Errorf("the finding is %+v", got)
			}
		}
		if report.Findings[0].Title == report.Findings[1].Title || report.Findings[0].UniqueID == report.Findings[1].UniqueID {
			t.Errorf("two findings have the title %q and the ID %q", report.Findings[0].Title, report.Findings[0].UniqueID)
		}
	})
}
