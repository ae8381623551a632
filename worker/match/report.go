package match

import (
	"slices"
	"time"

	"github.com/anchore/grype/grype/presenter/models"

	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// findings converts all of Grype's matches, in their order.
func findings(matches []models.Match) []workerapi.Finding {
	all := make([]workerapi.Finding, 0, len(matches))
	for _, m := range matches {
		all = append(all, finding(m))
	}
	return all
}

// finding converts one match.
func finding(m models.Match) workerapi.Finding {
	v := m.Vulnerability
	f := workerapi.Finding{
		ID:             v.ID,
		Namespace:      v.Namespace,
		Aliases:        aliases(m),
		Severity:       v.Severity,
		Description:    v.Description,
		URL:            v.DataSource,
		FixState:       v.Fix.State,
		FixVersions:    v.Fix.Versions,
		FixAvailable:   fixAvailable(v.Fix),
		CVSS:           ratings(m),
		KnownExploited: len(v.KnownExploited) > 0,
		Risk:           v.Risk,
		Package:        packageOf(m.Artifact),
		Locations:      locations(m.Artifact),
	}
	// An advisory may cover several vulnerabilities. The highest probability counts.
	for _, e := range v.EPSS {
		if e.EPSS > f.EPSS {
			f.EPSS, f.EPSSPercentile = e.EPSS, e.Percentile
		}
	}
	// One match may have been found in several ways. The suggested fix is the same in all of them.
	for _, detail := range m.MatchDetails {
		if !slices.Contains(f.MatchTypes, detail.Type) {
			f.MatchTypes = append(f.MatchTypes, detail.Type)
		}
		if detail.Fix != nil && f.SuggestedFix == "" {
			f.SuggestedFix = detail.Fix.SuggestedVersion
		}
	}
	return f
}

// aliases returns the IDs of the vulnerabilities that the advisory is about, without its own.
func aliases(m models.Match) []string {
	var ids []string
	for _, related := range m.RelatedVulnerabilities {
		if related.ID != m.Vulnerability.ID && !slices.Contains(ids, related.ID) {
			ids = append(ids, related.ID)
		}
	}
	return ids
}

// ratings returns the advisory's own ratings, or those of its aliases if it has none: distributions rate by severity
// and leave the scores to the CVE.
func ratings(m models.Match) []workerapi.CVSS {
	all := cvss(m.Vulnerability.Cvss)
	for _, related := range m.RelatedVulnerabilities {
		if len(all) > 0 {
			break
		}
		all = cvss(related.Cvss)
	}
	return all
}

// cvss converts ratings. It keeps only the base score, since the other two follow from the vector.
func cvss(ratings []models.Cvss) []workerapi.CVSS {
	var all []workerapi.CVSS
	for _, r := range ratings {
		all = append(all, workerapi.CVSS{Source: r.Source, Version: r.Version, Vector: r.Vector, Score: r.Metrics.BaseScore})
	}
	return all
}

// fixAvailable returns the earliest day on which any of the fixes was known; zero if none is known.
func fixAvailable(fix models.Fix) time.Time {
	var first time.Time
	for _, available := range fix.Available {
		day, err := time.Parse(time.DateOnly, available.Date)
		if err == nil && (first.IsZero() || day.Before(first)) {
			first = day
		}
	}
	return first
}

// packageOf converts a package. It keeps the names of the source packages, since distributions write advisories about them.
func packageOf(p models.Package) workerapi.Package {
	out := workerapi.Package{Name: p.Name, Version: p.Version, Type: string(p.Type), Language: string(p.Language), PURL: p.PURL}
	for _, upstream := range p.Upstreams {
		out.Upstreams = append(out.Upstreams, upstream.Name)
	}
	return out
}

// locations returns where the package was found, without files that only belong to it.
func locations(p models.Package) []workerapi.Location {
	var all []workerapi.Location
	for _, l := range p.Locations {
		if input.IsPrimary(l) {
			all = append(all, workerapi.Location{Path: l.RealPath, Layer: l.FileSystemID})
		}
	}
	return all
}
