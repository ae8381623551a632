package clair

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// NotCovered lists what Clair 4.9 does not analyse: an image may hold such packages, and Clair's report says nothing of
// them. Clair's indexer looks for dpkg, apk, rpm, Python, Java, Go binaries, Ruby and Red Hat's own containers, and for
// nothing else (claircore 1.5.48, libindex.New); these are the other ecosystems of OSV that packages are installed from.
var NotCovered = []string{"npm", "PHP (Composer)", "Rust (Cargo)", ".NET (NuGet)", "Erlang (Hex)", "Dart (Pub)", "R (CRAN)", "Haskell (Hackage)", "Swift"}

// Bounds of what one report may become. A few bytes of it can become many: each package repeats its vulnerabilities' texts.
const (
	maxFindings         = 100_000
	maxTextBytes        = 128 << 20
	maxDescriptionBytes = 8 << 10
)

// notAffected is the fixed version by which the security trackers of Debian and Alpine say that no version is affected.
const notAffected = "0"

// Normalise turns Clair's report on an image into findings: canonical ids, one finding per vulnerability, package and place,
// with all advisories that speak of it; an advisory that covers several CVEs becomes a finding for each of them. The result
// does not depend on Clair's own numbers, which change with its data.
//
// Everything in the report is in the result, except what its advisory says is not affected. A report that refers to
// something it does not contain, or that is too large, is an error: less would look like a cleaner image.
func Normalise(report *claircore.VulnerabilityReport) ([]finding.Finding, error) {
	if report == nil {
		return nil, errors.New("there is no vulnerability report")
	}
	ratings, err := cvssOf(report.Enrichments)
	if err != nil {
		return nil, err
	}
	n := normaliser{report: report, ratings: ratings, known: map[string]*statement{}}
	for id, vulnerabilities := range report.PackageVulnerabilities {
		if err := n.addPackage(id, vulnerabilities); err != nil {
			return nil, err
		}
	}
	// The first of several findings with the same key gives its description, so their order matters.
	slices.SortFunc(n.findings, compare)
	merged := finding.Merge(n.findings)
	for i := range merged {
		merged[i].Advisories = distinct(merged[i].Advisories)
	}
	return merged, nil
}

// normaliser collects the findings of one report.
type normaliser struct {
	report   *claircore.VulnerabilityReport
	ratings  map[string][]cvssRating // by vulnerability
	known    map[string]*statement   // by vulnerability, once it was met
	findings []finding.Finding
	bytes    int
}

// statement is what a vulnerability of the report says of any package.
type statement struct {
	ids   []string        // canonical; one finding for each
	base  finding.Finding // without id, package and fix
	fixed string          // as the report has it
}

func (n *normaliser) addPackage(id string, vulnerabilities []string) error {
	if len(vulnerabilities) == 0 {
		return nil
	}
	found := n.report.Packages[id]
	if found == nil {
		return fmt.Errorf("package_vulnerabilities of the vulnerability report: package %.64q is not among its packages", id)
	}
	environments := n.report.Environments[id]
	if len(environments) == 0 {
		environments = []*claircore.Environment{nil}
	}
	for _, environment := range environments {
		place := n.placeOf(found, environment)
		for _, vulnerability := range vulnerabilities {
			if err := n.add(place, vulnerability); err != nil {
				return err
			}
		}
	}
	return nil
}

// add makes the findings of one vulnerability in one package at one place.
func (n *normaliser) add(at place, vulnerability string) error {
	stated, err := n.stated(vulnerability)
	if err != nil {
		return err
	}
	fixes := fixVersions(stated.fixed, at.Type)
	if slices.Contains(fixes, notAffected) {
		return nil
	}
	f := stated.base
	f.Package, f.Paths = at.Package, at.paths
	f.FixState = finding.FixStateUnknown // Clair does not say whether anybody will fix it
	if len(fixes) > 0 {
		f.FixState, f.FixVersions = finding.FixStateFixed, fixes
	}
	advisory := stated.base.Advisories[0]
	advisory.FixState, advisory.FixVersions, advisory.Layer = f.FixState, f.FixVersions, at.layer
	f.Advisories = []finding.Advisory{advisory}
	for _, id := range stated.ids {
		f.ID = id
		n.bytes += f.TextBytes()
		if len(n.findings) == maxFindings || n.bytes > maxTextBytes {
			return fmt.Errorf("the vulnerability report is too large: more than %d findings or %d MiB of text", maxFindings, maxTextBytes>>20)
		}
		n.findings = append(n.findings, f)
	}
	return nil
}

// stated reads a vulnerability, once for all packages that have it.
func (n *normaliser) stated(id string) (*statement, error) {
	if known := n.known[id]; known != nil {
		return known, nil
	}
	v := n.report.Vulnerabilities[id]
	if v == nil {
		return nil, fmt.Errorf("package_vulnerabilities of the vulnerability report: vulnerability %.64q is not among its vulnerabilities", id)
	}
	if strings.TrimSpace(v.Name) == "" {
		return nil, fmt.Errorf("vulnerability %.64q of the vulnerability report has no name", id)
	}
	names := namesOf(v)
	ratings := n.ratings[id]
	severity, ownRatings := vendorSeverity(v)
	base := finding.Finding{
		Aliases:     append(slices.Clone(names.aliases), names.native),
		Severity:    severityOf(v, ratings),
		Description: bounded(v.Description),
		URL:         address(v, names),
		Advisories:  []finding.Advisory{{ID: names.native, Source: v.Updater, Severity: severity, Ratings: ownRatings}},
	}
	for _, r := range ratings {
		base.Advisories[0].Ratings = append(base.Advisories[0].Ratings, r.rating())
	}
	for _, r := range base.Advisories[0].Ratings {
		base.CVSS = max(base.CVSS, r.Score)
	}
	n.known[id] = &statement{ids: names.ids, base: base, fixed: strings.TrimSpace(v.FixedInVersion)}
	return n.known[id], nil
}

// compare orders findings by everything in which those with the same key may differ, except by Clair's own numbers.
func compare(a, b finding.Finding) int {
	return cmp.Or(
		cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Package.PURL, b.Package.PURL),
		cmp.Compare(a.Package.Name, b.Package.Name),
		cmp.Compare(a.Package.Version, b.Package.Version),
		slices.Compare(a.Paths, b.Paths),
		compareAdvisories(a.Advisories[0], b.Advisories[0]),
		cmp.Compare(b.Severity, a.Severity),
		cmp.Compare(a.Description, b.Description),
		cmp.Compare(a.URL, b.URL),
	)
}

func compareAdvisories(a, b finding.Advisory) int {
	return cmp.Or(
		cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Source, b.Source),
		// A fix that is known comes first.
		cmp.Compare(a.FixState, b.FixState),
		slices.Compare(a.FixVersions, b.FixVersions),
		cmp.Compare(a.Layer, b.Layer),
		cmp.Compare(a.Severity, b.Severity),
	)
}

// distinct drops repetitions: an updater may have one record for each repository or range of versions.
func distinct(advisories []finding.Advisory) []finding.Advisory {
	slices.SortFunc(advisories, compareAdvisories)
	return slices.CompactFunc(advisories, func(a, b finding.Advisory) bool { return reflect.DeepEqual(a, b) })
}

// bounded cuts a description between two characters.
func bounded(text string) string {
	if len(text) <= maxDescriptionBytes {
		return text
	}
	end := maxDescriptionBytes - len("…")
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
