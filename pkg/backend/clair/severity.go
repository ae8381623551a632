package clair

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/quay/claircore"
	"github.com/quay/claircore/toolkit/types/cvss"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// cvssEnricher is part of the key of the CVSS enrichment, a media type with parameters (claircore, enricher/cvss).
const cvssEnricher = "enricher=clair.cvss"

// nvd is the source of these ratings, in Grype's spelling: the enricher uses the NVD's own ratings.
const nvd = "nvd@nist.gov"

// cvssRating is one rating of the enrichment: cvssData of the NVD's API (https://csrc.nist.gov/schema/nvd/api/2.0/external/cvss-v3.1.json).
type cvssRating struct {
	Version  string           `json:"version"`
	Vector   string           `json:"vectorString"`
	Score    float64          `json:"baseScore"`
	Severity finding.Severity `json:"baseSeverity"`
}

func (r cvssRating) rating() finding.Rating {
	return finding.Rating{Source: nvd, Version: r.Version, Vector: r.Vector, Score: r.Score}
}

// isOutOfRange reports whether the score is outside the CVSS range.
func (r cvssRating) isOutOfRange() bool { return r.Score < 0 || r.Score > 10 }

// cvssOf returns the CVSS ratings of a report by vulnerability ID. They include ratings of all CVEs that a vulnerability's name and links
// mention, even unrelated ones: the enrichment does not say which rating belongs to which CVE. Impossible ratings are dropped, since they
// do not invalidate the others or the findings.
func cvssOf(enrichments map[string][]json.RawMessage) (map[string][]cvssRating, error) {
	all := map[string][]cvssRating{}
	for kind, messages := range enrichments {
		if !strings.Contains(kind, cvssEnricher) {
			continue
		}
		for _, message := range messages {
			var ratings map[string][]cvssRating
			if err := json.Unmarshal(message, &ratings); err != nil {
				return nil, fmt.Errorf("enrichment clair.cvss of the vulnerability report: %w", err)
			}
			for id, of := range ratings {
				all[id] = append(all[id], slices.DeleteFunc(of, cvssRating.isOutOfRange)...)
			}
		}
	}
	return all, nil
}

// severityOf returns Clair's normalized severity. Where Clair knows none, as for all of Alpine and Go, it returns the worst severity of
// the CVSS ratings.
func severityOf(v *claircore.Vulnerability, ratings []cvssRating) finding.Severity {
	severity := finding.ParseSeverity(v.NormalizedSeverity.String())
	if severity != finding.Unknown {
		return severity
	}
	for _, r := range ratings {
		severity = max(severity, r.Severity)
	}
	return severity
}

// vendorSeverity returns the severity in the source's own words. OSV states a CVSS vector instead, which becomes a rating. Where the
// source states nothing, Clair's normalized severity is returned.
func vendorSeverity(v *claircore.Vulnerability) (string, []finding.Rating) {
	word := strings.TrimSpace(v.Severity)
	if rating, isVector := parseVector(word); isVector {
		return v.NormalizedSeverity.String(), []finding.Rating{rating}
	}
	if word == "" {
		word = v.NormalizedSeverity.String()
	}
	return word, nil
}

// parseVector parses a CVSS vector and computes its score. That is the base score unless the vector has other metrics.
func parseVector(text string) (finding.Rating, bool) {
	switch cvss.Version(text) {
	case 4:
		v, err := cvss.ParseV4(text)
		return scored("4.0", text, v.Score, err)
	case 3:
		v, err := cvss.ParseV3(text)
		return scored(text[len("CVSS:"):len("CVSS:3.1")], text, v.Score, err)
	}
	v, err := cvss.ParseV2(text)
	return scored("2.0", text, v.Score, err)
}

func scored(version, vector string, score func() float64, err error) (finding.Rating, bool) {
	if err != nil {
		return finding.Rating{}, false
	}
	return finding.Rating{Version: version, Vector: vector, Score: score()}, true
}
