package clair

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestSeverity: Clair's severity counts, or else that of the worst rating. The source's own severity is kept in the advisory.
func TestSeverity(t *testing.T) {
	const vector = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
	high, critical := `{"version":"3.1","baseScore":7.5,"baseSeverity":"HIGH"}`, `{"version":"3.1","baseScore":9.8,"baseSeverity":"CRITICAL"}`
	for name, tt := range map[string]struct {
		v          claircore.Vulnerability
		enrichment string
		severity   finding.Severity
		cvss       float64
		vendor     string
	}{
		"Debian's shift":            {claircore.Vulnerability{Severity: "unimportant", NormalizedSeverity: claircore.Low}, ``, finding.Low, 0, "unimportant"},
		"a word wins over ratings":  {claircore.Vulnerability{Severity: "low", NormalizedSeverity: claircore.Medium}, critical, finding.Medium, 9.8, "low"},
		"else the worst rating":     {claircore.Vulnerability{Severity: "not yet assigned"}, high + "," + critical + "," + high, finding.Critical, 9.8, "not yet assigned"},
		"a rating without a word":   {claircore.Vulnerability{}, `{"version":"3.1","baseScore":5}`, finding.Unknown, 5, "Unknown"},
		"impossible ratings":        {claircore.Vulnerability{}, `{"version":"3.1","baseScore":11,"baseSeverity":"CRITICAL"},` + high + `,{"version":"3.1","baseScore":-1}`, finding.High, 7.5, "Unknown"},
		"harmless":                  {claircore.Vulnerability{}, `{"version":"3.1","baseSeverity":"NONE"}`, finding.Unknown, 0, "Unknown"},
		"OSV's vector":              {claircore.Vulnerability{Severity: vector, NormalizedSeverity: claircore.Critical}, ``, finding.Critical, 9.8, "Critical"},
		"OSV's vector of version 4": {claircore.Vulnerability{Severity: "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", NormalizedSeverity: claircore.Critical}, ``, finding.Critical, 9.3, "Critical"},
		"OSV's vector of version 2": {claircore.Vulnerability{Severity: "AV:N/AC:L/Au:N/C:P/I:P/A:P", NormalizedSeverity: claircore.High}, ``, finding.High, 7.5, "High"},
		"OSV's word":                {claircore.Vulnerability{Severity: "MODERATE", NormalizedSeverity: claircore.Medium}, ``, finding.Medium, 0, "MODERATE"},
		"a broken vector":           {claircore.Vulnerability{Severity: "CVSS:3.1/AV:N"}, ``, finding.Unknown, 0, "CVSS:3.1/AV:N"},
		"hardly a vector":           {claircore.Vulnerability{Severity: "CVSS:4.0"}, ``, finding.Unknown, 0, "CVSS:4.0"},
		"a severity of the future":  {claircore.Vulnerability{NormalizedSeverity: claircore.Critical + 1}, high, finding.High, 7.5, "Severity(6)"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.v.Name = "CVE-2024-0001"
			report := small(&tt.v)
			report.Enrichments = enriched(`{"0":[` + tt.enrichment + `]}`)
			f := normalised(t, report)[0]
			type rating struct {
				Severity finding.Severity
				CVSS     float64
				Vendor   string
			}
			if diff := cmp.Diff(rating{tt.severity, tt.cvss, tt.vendor}, rating{f.Severity, f.CVSS, f.Advisories[0].Severity}); diff != "" {
				t.Errorf("severities (-want +got):\n%s", diff)
			}
		})
	}
}
