package clair

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// NotCovered lists what Clair 4.9 does not analyze: an image may contain such packages, and Clair's report omits them silently. Clair's
// indexer supports only dpkg, apk, rpm, Python, Java, Go binaries, Ruby and Red Hat's own containers (claircore 1.5.48, libindex.New).
// NotCovered has the other OSV ecosystems from which packages are installed.
var NotCovered = []string{"npm", "PHP (Composer)", "Rust (Cargo)", ".NET (NuGet)", "Erlang (Hex)", "Dart (Pub)", "R (CRAN)", "Haskell (Hackage)", "Swift"}

// Bounds of the findings of one report. A small report can produce many, because each package repeats the texts of its vulnerabilities.
const (
	maxFindings         = 100_000
	maxTextBytes        = 128 << 20
	maxDescriptionBytes = 8 << 10
)

// notAffected is the fixed version with which the security trackers of Debian and Alpine state that no version is affected.
const notAffected = "0"

// Normalise converts Clair's report on an image to findings with canonical IDs. It returns one finding for each vulnerability, package and
// location, with all advisories about it. An advisory that covers several CVEs becomes one finding for each. The result does not depend on
// Clair's internal IDs, which change with its data.
//
// The result contains everything in the report, except packages that the advisory declares not affected. A report that refers to missing
// entries, or is too large, is an error: dropping entries would make the image look cleaner than it is.
func Normalise(report *claircore.VulnerabilityReport) ([]finding.Finding, error) {
	if report == nil {
		return nil, errors.New("there is no vulnerability report")
	}
	ratings, err := cvssOf(report.Enrichments)
	if err != nil {
		return nil, err
	}
	n := normaliser{report: report, ratings: ratings, known: map[string]*vulnerabilityDetails{}}
	for id, vulnerabilities := range report.PackageVulnerabilities {
		if err := n.addPackage(id, vulnerabilities); err != nil {
			return nil, err
		}
	}
	// When findings with the same key are merged, the first one supplies the description. Sorting makes the result independent of the map
	// order.
	slices.SortFunc(n.findings, compare)
	merged := finding.Merge(n.findings)
	for i := range merged {
		merged[i].Advisories = deduplicate(merged[i].Advisories)
	}
	return merged, nil
}

// normaliser collects the findings of one report.
type normaliser struct {
	report   *claircore.VulnerabilityReport
	ratings  map[string][]cvssRating          // by vulnerability ID
	known    map[string]*vulnerabilityDetails // by vulnerability ID; filled on first use
	findings []finding.Finding
	bytes    int
}

// vulnerabilityDetails is what a vulnerability of the report states independently of a package.
type vulnerabilityDetails struct {
	ids   []string        // canonical IDs; one finding for each
	base  finding.Finding // without ID, package and fix
	fixed string          // FixedInVersion, as in the report
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
		place := n.locatePackage(found, environment)
		for _, vulnerability := range vulnerabilities {
			if err := n.add(place, vulnerability); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the findings of one vulnerability in one package at one location.
func (n *normaliser) add(at locatedPackage, vulnerability string) error {
	stated, err := n.details(vulnerability)
	if err != nil {
		return err
	}
	fixes := fixVersions(stated.fixed, at.Type)
	if slices.Contains(fixes, notAffected) {
		return nil
	}
	f := stated.base
	f.Package, f.Paths = at.Package, at.paths
	f.FixState = finding.FixStateUnknown // Clair does not report whether a fix is planned
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

// details returns the statement of a vulnerability, which is computed once for all packages.
func (n *normaliser) details(id string) (*vulnerabilityDetails, error) {
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
		Description: text.Truncate(v.Description, maxDescriptionBytes),
		URL:         primaryLink(v, names),
		Advisories:  []finding.Advisory{{ID: names.native, Source: v.Updater, Severity: severity, Ratings: ownRatings}},
	}
	for _, r := range ratings {
		base.Advisories[0].Ratings = append(base.Advisories[0].Ratings, r.rating())
	}
	for _, r := range base.Advisories[0].Ratings {
		base.CVSS = max(base.CVSS, r.Score)
	}
	n.known[id] = &vulnerabilityDetails{ids: names.ids, base: base, fixed: strings.TrimSpace(v.FixedInVersion)}
	return n.known[id], nil
}

// compare orders findings by all fields in which findings with the same key may differ, except Clair's internal IDs.
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
		// A known fix comes first.
		cmp.Compare(a.FixState, b.FixState),
		slices.Compare(a.FixVersions, b.FixVersions),
		cmp.Compare(a.Layer, b.Layer),
		cmp.Compare(a.Severity, b.Severity),
	)
}

// deduplicate removes duplicates: an updater may have one record for each repository or version range.
func deduplicate(advisories []finding.Advisory) []finding.Advisory {
	slices.SortFunc(advisories, compareAdvisories)
	return slices.CompactFunc(advisories, func(a, b finding.Advisory) bool { return reflect.DeepEqual(a, b) })
}
