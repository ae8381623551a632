package openreports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// FuzzReport: whatever names pods and images have, a Report has a valid name, is bounded, counts all findings, and is the same in whatever order they come.
// Results have IDs of their own, and links of the web only.
func FuzzReport(f *testing.F) {
	f.Add("Deployment", "web", "openssl", "https://nvd.nist.gov/vuln/detail/CVE-2026-0001", uint16(3), uint16(2))
	f.Add("deployment", "Web_1", "<script>\x00\xff", "javascript:alert(1)", uint16(255), uint16(255))
	f.Add("Deployment", "web", strings.Repeat("<", 400), "", uint16(255), uint16(255))
	f.Add("", strings.Repeat("x", 300), strings.Repeat("漢", 200), "https://user:password@example.com/", uint16(200), uint16(0))
	f.Fuzz(func(t *testing.T, kind, name, text, address string, number, limit uint16) {
		w := workload{namespace: "shop", kind: kind, name: name, tooMany: number%7 == 1}
		for n := range int(number % 256) {
			made := finding.Finding{
				ID: fmt.Sprint("CVE-", n), Severity: finding.Severity(n % (int(finding.Critical) + 1)), URL: address, KnownExploited: n%5 == 0, FixState: finding.FixStateFixed, FixVersions: []string{text},
				Package: finding.Package{Name: text, Version: text, Type: text},
			}
			w.details.Findings = append(w.details.Findings, store.WorkloadFinding{Finding: made, Containers: []string{text, name}})
			w.details.Counts.AddFinding(made)
			w.gaps = append(w.gaps, gapImage{store.WorkloadImage{Container: text, Reference: name}, slices.Repeat([]string{text}, n%3)})
		}
		w.gaps = w.gaps[:len(w.gaps)/8]
		most := int(limit % 256)
		r := w.report(most, time.Unix(0, 0))
		body, err := json.Marshal(r)
		if err != nil || len(body) > maxReportBytes || len(validation.IsDNS1123Subdomain(r.Name)) != 0 || len(r.Results) > most+maxGaps+1 {
			t.Fatalf("%q %q becomes the Report %q of %d bytes with %d results: %v", kind, name, r.Name, len(body), len(r.Results), err)
		}
		if r.Summary.Fail != len(w.details.Findings) || r.Summary.Error+r.Summary.Warn < len(w.gaps) {
			t.Errorf("the summary %+v is not about %d findings and %d images", r.Summary, len(w.details.Findings), len(w.gaps))
		}
		slices.Reverse(w.details.Findings)
		if again, err := json.Marshal(w.report(most, time.Unix(0, 0))); most >= len(w.details.Findings) && (err != nil || !bytes.Equal(body, again)) {
			t.Errorf("the Report depends on the order of the findings: %v\n%s\n%s", err, body, again)
		}
		ids := map[string]bool{}
		for _, result := range r.Results {
			id := result.Properties[propertyResultID]
			if result.Category == categoryFindings && ids[id] || id == "" {
				t.Errorf("two results have the ID %q", id)
			}
			ids[id] = true
			if link := result.Properties["url"]; link != "" {
				if u, err := url.Parse(link); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
					t.Errorf("the result links to %q", link)
				}
			}
		}
	})
}
