package storetest

import (
	"fmt"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// manyFindings returns n findings, three per package: a fifth of them have high severity, and a hundredth are known exploited.
func manyFindings(n, offset int) []finding.Finding {
	severities := []finding.Severity{finding.High, finding.Medium, finding.Low, finding.Negligible, finding.Unknown}
	findings := make([]finding.Finding, n)
	for i := range findings {
		f := vulnerable(fmt.Sprintf("CVE-2026-%05d", i+offset), fmt.Sprintf("package-%d", (i+offset)/3), severity(severities[i%len(severities)]))
		f.Description = "A flaw was found in the way that the library reads its input, which lets a remote attacker do what it should not."
		f.URL = "https://security-tracker.debian.org/tracker/" + f.ID
		f.EPSS = float64(i%1000) / 1000
		f.KnownExploited = i%100 == 99
		f.Advisories = []finding.Advisory{{ID: f.ID, Source: "debian:12", Severity: f.Severity.String(), FixState: f.FixState}}
		findings[i] = f
	}
	return findings
}
