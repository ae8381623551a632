package cyclonedx

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// maxOccurrences bounds the paths that are listed for one package.
const maxOccurrences = 100

// maxRecommendations bounds the lines of a recommendation. Affects lists all fixed versions.
const maxRecommendations = 20

// group converts findings into packages, each once, and vulnerabilities, one for each ID.
func group(r Report) ([]cdx.Component, []cdx.Vulnerability) {
	components, vulnerabilities := []cdx.Component{}, []cdx.Vulnerability{}
	known := map[string]bool{}
	byID := map[string][]finding.Finding{}
	var ids []string
	for _, f := range r.Findings {
		if component := componentOf(f); !known[component.BOMRef] {
			known[component.BOMRef] = true
			components = append(components, component)
		}
		if _, found := byID[f.ID]; !found {
			ids = append(ids, f.ID)
		}
		byID[f.ID] = append(byID[f.ID], f)
	}
	for _, id := range ids {
		vulnerabilities = append(vulnerabilities, vulnerabilityOf(r, byID[id]))
	}
	return components, vulnerabilities
}

// refOf returns the reference of a package: its package URL with an ID that distinguishes several copies in the image.
func refOf(f finding.Finding) string {
	id := f.PackageKey()[:32]
	if f.Package.PURL == "" {
		return "package:" + id
	}
	purl, subpath, found := strings.Cut(f.Package.PURL, "#")
	if found {
		subpath = "#" + subpath
	}
	separator := "?"
	if strings.Contains(purl, "?") {
		separator = "&"
	}
	return strings.ToValidUTF8(purl, "�") + separator + "package-id=" + id + strings.ToValidUTF8(subpath, "�")
}

// componentOf returns the component for a package. Its paths are evidence and not part of its identity.
func componentOf(f finding.Finding) cdx.Component {
	component := cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: refOf(f), Name: f.Package.Name, Version: clip(f.Package.Version),
		PackageURL: f.Package.PURL, Properties: properties("packageType", f.Package.Type),
	}
	var occurrences []cdx.EvidenceOccurrence
	for _, path := range f.Paths[:min(len(f.Paths), maxOccurrences)] {
		if path != "" {
			occurrences = append(occurrences, cdx.EvidenceOccurrence{Location: path})
		}
	}
	if occurrences != nil {
		component.Evidence = &cdx.Evidence{Occurrences: &occurrences}
	}
	return component
}

// vulnerabilityOf merges the findings with one ID. Description and advisory are those of the first finding, which is the worst.
func vulnerabilityOf(r Report, findings []finding.Finding) cdx.Vulnerability {
	worst := findings[0]
	v := cdx.Vulnerability{
		BOMRef: "vulnerability:" + worst.ID, ID: worst.ID, Source: sourceOf(worst.ID, findings), Description: worst.Description,
		Recommendation: recommend(findings), Properties: propertiesOf(findings),
	}
	if ratings := ratingsOf(r.Engine, findings); len(ratings) > 0 {
		v.Ratings = &ratings
	}
	if references := referencesOf(findings); len(references) > 0 {
		v.References = &references
	}
	if address := finding.WebAddress(worst.URL); address != "" {
		v.Advisories = &[]cdx.Advisory{{URL: address}}
	}
	affects := affectsOf(findings)
	v.Affects = &affects
	v.Analysis = analysisOf(r, findings)
	return v
}

// sourceOf returns the publisher of an ID: the database for a known prefix, else the source of the advisory with this ID.
func sourceOf(id string, findings []finding.Finding) *cdx.Source {
	switch {
	case strings.HasPrefix(id, "CVE-"):
		return &cdx.Source{Name: "NVD", URL: "https://nvd.nist.gov/vuln/detail/" + url.PathEscape(id)}
	case strings.HasPrefix(id, "GHSA-"):
		return &cdx.Source{Name: "GitHub Advisories", URL: "https://github.com/advisories/" + url.PathEscape(id)}
	}
	for _, f := range findings {
		for _, a := range f.Advisories {
			if a.ID == id && a.Source != "" {
				return &cdx.Source{Name: a.Source}
			}
		}
	}
	if prefix, _, found := strings.Cut(id, "-"); found && prefix != "" {
		return &cdx.Source{Name: prefix} // DSA, RHSA, ALAS, GO, …
	}
	return &cdx.Source{Name: "unknown"}
}

// referencesOf returns the aliases of all findings, each with its source, which the schema requires.
func referencesOf(findings []finding.Finding) (references []cdx.VulnerabilityReference) {
	var aliases []string
	for _, f := range findings {
		aliases = append(aliases, f.Aliases...)
	}
	slices.Sort(aliases)
	for _, alias := range slices.Compact(slices.DeleteFunc(aliases, func(a string) bool { return a == "" })) {
		references = append(references, cdx.VulnerabilityReference{ID: alias, Source: sourceOf(alias, findings)})
	}
	return references
}

// affectsOf returns each package once, with the installed version and the versions that are not affected.
func affectsOf(findings []finding.Finding) (affects []cdx.Affects) {
	at := map[string]int{}
	for _, f := range findings {
		ref := refOf(f)
		place, found := at[ref]
		if !found {
			place, at[ref] = len(affects), len(affects)
			affects = append(affects, cdx.Affects{Ref: ref, Range: &[]cdx.AffectedVersions{}})
			if f.Package.Version != "" {
				*affects[place].Range = append(*affects[place].Range, cdx.AffectedVersions{Version: clip(f.Package.Version), Status: cdx.VulnerabilityStatusAffected})
			}
		}
		if !f.Fixable() {
			continue
		}
		for _, version := range f.FixVersions {
			fixed := cdx.AffectedVersions{Version: clip(version), Status: cdx.VulnerabilityStatusNotAffected}
			if version != "" && !slices.Contains(*affects[place].Range, fixed) {
				*affects[place].Range = append(*affects[place].Range, fixed)
			}
		}
	}
	return affects
}

// recommend returns what to update, as text.
func recommend(findings []finding.Finding) string {
	var lines []string
	listed := map[string]bool{}
	for _, f := range findings {
		line := fmt.Sprintf("Update %s from %s to %s.", f.Package.Name, f.Package.Version, strings.Join(f.FixVersions, " or "))
		if f.Fixable() && !listed[line] {
			listed[line] = true
			lines = append(lines, line)
		}
	}
	if len(lines) > maxRecommendations {
		lines = append(lines[:maxRecommendations], fmt.Sprintf("And %d more packages.", len(lines)-maxRecommendations))
	}
	return strings.Join(lines, "\n")
}

// propertiesOf returns facts for which CycloneDX has no field, or that tools expect in one place.
func propertiesOf(findings []finding.Finding) *[]cdx.Property {
	var pairs, states, versions []string
	epss, exploited := 0.0, false
	for _, f := range findings {
		epss, exploited = max(epss, f.EPSS), exploited || f.KnownExploited
		states = append(states, f.FixState)
		if f.Fixable() {
			versions = append(versions, f.FixVersions...)
		}
	}
	if exploited {
		pairs = append(pairs, "knownExploited", "true")
	}
	if epss > 0 {
		pairs = append(pairs, "epss", strconv.FormatFloat(epss, 'g', -1, 64))
	}
	for _, list := range []struct {
		name   string
		values []string
	}{{"fixState", states}, {"fixedVersion", versions}} {
		slices.Sort(list.values)
		for _, value := range slices.Compact(list.values) {
			pairs = append(pairs, list.name, value)
		}
	}
	return properties(pairs...)
}
