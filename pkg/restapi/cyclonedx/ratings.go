package cyclonedx

import (
	"cmp"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// methods maps CVSS versions, as engines write them, to scoring methods.
var methods = map[string]cdx.ScoringMethod{
	"2": cdx.ScoringMethodCVSSv2, "2.0": cdx.ScoringMethodCVSSv2, "3.0": cdx.ScoringMethodCVSSv3,
	"3.1": cdx.ScoringMethodCVSSv31, "4.0": cdx.ScoringMethodCVSSv4,
}

// severities maps severities to CycloneDX ones. CycloneDX has none for negligible, so "info" stands for it: the next one below "low".
var severities = map[finding.Severity]cdx.Severity{
	finding.Critical: cdx.SeverityCritical, finding.High: cdx.SeverityHigh, finding.Medium: cdx.SeverityMedium,
	finding.Low: cdx.SeverityLow, finding.Negligible: cdx.SeverityInfo, finding.Unknown: cdx.SeverityUnknown,
}

// ratingsOf returns the severity that the operator uses first, then the rating of each source, without duplicates.
func ratingsOf(engine string, findings []finding.Finding) []cdx.VulnerabilityRating {
	var ratings []cdx.VulnerabilityRating
	type rating struct {
		source, vector string
		severity       cdx.Severity
		method         cdx.ScoringMethod
		score          float64
	}
	seen := map[rating]bool{}
	add := func(r rating, scored bool) {
		if seen[r] {
			return
		}
		seen[r] = true
		made := cdx.VulnerabilityRating{Source: &cdx.Source{Name: r.source}, Severity: r.severity, Method: r.method, Vector: r.vector}
		if scored {
			made.Score = &r.score
		}
		ratings = append(ratings, made)
	}
	worst := slices.MaxFunc(findings, func(a, b finding.Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	add(rating{source: engine, severity: severities[worst.Severity], method: cdx.ScoringMethodOther}, false)
	vectors := false
	for _, f := range findings {
		for _, a := range f.Advisories {
			add(rating{source: a.Source, severity: severities[finding.ParseSeverity(a.Severity)], method: cdx.ScoringMethodOther}, false)
			for _, r := range a.Ratings {
				vectors = true
				method := cmp.Or(methods[r.Version], cdx.ScoringMethodOther)
				add(rating{source: cmp.Or(r.Source, a.Source), vector: r.Vector, severity: cvssSeverity(method, r.Score), method: method, score: r.Score}, true)
			}
		}
	}
	if best := slices.MaxFunc(findings, func(a, b finding.Finding) int { return cmp.Compare(a.CVSS, b.CVSS) }); !vectors && best.CVSS > 0 {
		add(rating{source: engine, method: cdx.ScoringMethodOther, score: best.CVSS}, true)
	}
	return ratings
}

// cvssSeverity returns the severity for a CVSS score (https://www.first.org/cvss/v3.1/specification-document, section 5). Version 4.0 has the same
// bands, version 2.0 has none.
func cvssSeverity(method cdx.ScoringMethod, score float64) cdx.Severity {
	switch {
	case method == cdx.ScoringMethodCVSSv2 || method == cdx.ScoringMethodOther:
		return ""
	case score >= 9:
		return cdx.SeverityCritical
	case score >= 7:
		return cdx.SeverityHigh
	case score >= 4:
		return cdx.SeverityMedium
	case score > 0:
		return cdx.SeverityLow
	}
	return cdx.SeverityNone
}
