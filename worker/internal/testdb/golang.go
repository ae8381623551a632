package testdb

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// osvRecord is the part of an OSV record that is needed (https://ossf.github.io/osv-schema/).
type osvRecord struct {
	ID        string        `json:"id"`
	Summary   string        `json:"summary"`
	Details   string        `json:"details"`
	Aliases   []string      `json:"aliases"`
	Published string        `json:"published"`
	Withdrawn string        `json:"withdrawn"`
	Affected  []osvAffected `json:"affected"`
}

// osvAffected is one module, or the standard library, with its affected versions.

type osvAffected struct {
	Package struct {
		Name string `json:"name"`
	} `json:"package"`
	Ranges   []osvRange `json:"ranges"`
	Specific struct {
		CustomRanges []osvRange `json:"custom_ranges"`
		// Imports are the packages and functions that are affected, in OSV's own shape.
		Imports json.RawMessage `json:"imports"`
	} `json:"ecosystem_specific"`
}

// osvRange is a list of events. Each event is the first version that is affected or fixed.
type osvRange struct {
	Events []struct {
		Introduced string `json:"introduced,omitempty"`
		Fixed      string `json:"fixed,omitempty"`
	} `json:"events"`
}

// Names in the Go vulnerability database that are not modules.
const (
	stdlib    = "stdlib"
	toolchain = "toolchain"
)

// interval is a range of affected versions, from introduced up to but without fixed. Empty means unbounded.
type interval struct{ introduced, fixed string }

// intervals returns the affected versions. Unreviewed records declare all versions as affected in their ranges,
// and keep the real versions, which do not fit the module's path, in custom ranges.
func (a osvAffected) intervals() []interval {
	all := flatten(a.Ranges)
	if len(a.Specific.CustomRanges) > 0 && len(all) == 1 && all[0] == (interval{}) {
		return flatten(a.Specific.CustomRanges)
	}
	return all
}

// flatten converts OSV's events to intervals. The events come in pairs and in order.
func flatten(ranges []osvRange) []interval {
	var all []interval
	for _, r := range ranges {
		for _, event := range r.Events {
			switch {
			case event.Introduced == "0":
				all = append(all, interval{})
			case event.Introduced != "":
				all = append(all, interval{introduced: event.Introduced})
			case event.Fixed != "" && len(all) > 0:
				all[len(all)-1].fixed = event.Fixed
			}
		}
	}
	return all
}

// constraint returns the interval in Grype's notation. It has no lower bound of "0", since pseudo-versions such as
// v0.0.0-20230101… are pre-releases and come before it. The empty constraint matches every version.
func (i interval) constraint() string {
	var parts []string
	if i.introduced != "" {
		parts = append(parts, ">="+i.introduced)
	}
	if i.fixed != "" {
		parts = append(parts, "<"+i.fixed)
	}
	return strings.Join(parts, ",")
}

// aliases returns the record's other IDs with the prefix, in order.
func (r osvRecord) aliases(prefix string) []string {
	var found []string
	for _, alias := range r.Aliases {
		if strings.HasPrefix(alias, prefix) {
			found = append(found, alias)
		}
	}
	slices.Sort(found)
	return found
}

// moduleRecords returns the advisories of Go modules in GitHub's format, under their GHSA ID if they have
// one. Grype's builder prefers GitHub's records where both databases have the module. The records name no functions: a
// module is affected whatever a program calls of it.
func (a *Advisories) moduleRecords() []record {
	var records []record
	for _, r := range a.Go {
		fixedIn := r.fixedIn()
		if len(fixedIn) == 0 || r.Withdrawn != "" {
			continue
		}
		id, link := r.ID, "https://pkg.go.dev/vuln/"+r.ID
		if ghsa := r.aliases("GHSA-"); len(ghsa) > 0 {
			id, link = ghsa[0], "https://github.com/advisories/"+ghsa[0]
		}
		cves := r.aliases("CVE-")
		advisory := map[string]any{
			"ghsaId": id, "url": link, "Summary": r.Summary, "namespace": "github:go",
			"published": r.Published,
			"CVE":       cves, "Metadata": map[string]any{"CVE": cves}, "FixedIn": fixedIn,
		}
		if rating, ok := a.worstRating(cves); ok {
			advisory["Severity"] = rating.Severity
			advisory["cvss_severities"] = []map[string]string{{"version": "3.1", "vector": rating.Vector}}
		}
		records = append(records, record{id: "github:go/" + id, item: map[string]any{"Advisory": advisory}})
	}
	return records
}

// fixedIn returns the affected versions of modules, one entry for each interval.
func (r osvRecord) fixedIn() []map[string]any {
	var all []map[string]any
	for _, affected := range r.Affected {
		// The standard library has its own records. Advisories about the toolchain are omitted.
		if affected.Package.Name == stdlib || affected.Package.Name == toolchain {
			continue
		}
		for _, i := range affected.intervals() {
			all = append(all, map[string]any{
				"name": affected.Package.Name, "ecosystem": "go", "namespace": "github:go",
				"range": i.constraint(), "identifier": i.fixed,
			})
		}
	}
	return all
}

// stdlibRecords returns the advisories of the standard library in the format of the Go vulnerability database, with the affected
// functions. GitHub's database has no advisories of the standard library.
func (a *Advisories) stdlibRecords() []record {
	var records []record
	for _, r := range a.Go {
		affected := r.stdlib()
		if len(affected) == 0 || r.Withdrawn != "" {
			continue
		}
		item := map[string]any{"id": r.ID, "aliases": r.Aliases, "summary": r.Summary, "details": cmp.Or(r.Details, r.Summary), "affected": affected}
		if r.Published != "" {
			item["published"] = r.Published
		}
		records = append(records, record{id: "govulndb/" + r.ID, item: item})
	}
	return records
}

// stdlib returns the affected versions and functions of the standard library.
func (r osvRecord) stdlib() []map[string]any {
	var all []map[string]any
	for _, affected := range r.Affected {
		if affected.Package.Name != stdlib {
			continue
		}
		var ranges []map[string]any
		for _, one := range affected.Ranges {
			ranges = append(ranges, map[string]any{"type": "SEMVER", "events": one.Events})
		}
		entry := map[string]any{"package": map[string]string{"name": stdlib, "ecosystem": "Go"}, "ranges": ranges}
		if len(affected.Specific.Imports) > 0 {
			entry["ecosystem_specific"] = map[string]any{"imports": affected.Specific.Imports}
		}
		all = append(all, entry)
	}
	return all
}

// worstRating returns the rating with the highest score among the CVEs.
func (a *Advisories) worstRating(cves []string) (best CVSS, found bool) {
	for _, cve := range cves {
		if rating, ok := a.CVSS[cve]; ok && (!found || rating.Score > best.Score) {
			best, found = rating, true
		}
	}
	return best, found
}

// cveRecords returns one record in the format of the US National Vulnerability Database for each CVE. It
// contains the rating, which other records take over, and the CPE of a Go distribution.
func (a *Advisories) cveRecords() []record {
	set := &cveSet{ratings: a.CVSS, items: map[string]map[string]any{}, cpes: map[string][]map[string]any{}}
	for _, r := range a.Go {
		if r.Withdrawn != "" {
			continue
		}
		for _, cve := range r.aliases("CVE-") {
			set.add(cve, cmp.Or(r.Details, r.Summary))
			set.cpes[cve] = append(set.cpes[cve], r.stdlibCPEs()...)
		}
	}
	for _, namespace := range a.namespaces() {
		for _, d := range a.Distros[namespace] {
			if strings.HasPrefix(d.ID, "CVE-") {
				set.add(d.ID, d.Description)
			}
		}
	}
	return set.records()
}

// stdlibCPEs returns the affected versions of a Go distribution, which an image with the toolchain contains.
func (r osvRecord) stdlibCPEs() []map[string]any {
	var all []map[string]any
	for _, affected := range r.Affected {
		if affected.Package.Name != stdlib {
			continue
		}
		for _, i := range affected.intervals() {
			cpe := map[string]any{"vulnerable": true, "criteria": "cpe:2.3:a:golang:go:*:*:*:*:*:*:*:*"}
			if i.introduced != "" {
				// Go's records mark release candidates with -0, which CPEs do not have.
				cpe["versionStartIncluding"] = strings.TrimSuffix(i.introduced, "-0")
			}
			if i.fixed != "" {
				cpe["versionEndExcluding"] = i.fixed
			}
			all = append(all, cpe)
		}
	}
	return all
}

// cveSet collects CVEs, each once and in the order of their first mention.
type cveSet struct {
	ratings map[string]CVSS
	items   map[string]map[string]any
	cpes    map[string][]map[string]any
	order   []string
}

// add adds a CVE. The first description stays: Go's are longer than those of distributions.
func (s *cveSet) add(cve, description string) {
	if s.items[cve] != nil {
		return
	}
	item := map[string]any{
		"id":           cve,
		"vulnStatus":   "Analyzed",
		"descriptions": []map[string]string{{"lang": "en", "value": description}},
		"references":   []map[string]string{{"url": "https://nvd.nist.gov/vuln/detail/" + cve, "source": "vulndb"}},
	}
	if rating, ok := s.ratings[cve]; ok {
		item["metrics"] = map[string]any{"cvssMetricV31": []map[string]any{{
			"source": "nvd@nist.gov", "type": "Primary",
			"cvssData": map[string]any{
				"version": "3.1", "vectorString": rating.Vector, "baseScore": rating.Score,
				"baseSeverity": strings.ToUpper(rating.Severity),
			},
		}}}
	}
	s.items[cve] = item
	s.order = append(s.order, cve)
}

// records adds the affected CPEs to the CVEs, and returns them in order.
func (s *cveSet) records() []record {
	var records []record
	for _, cve := range s.order {
		if cpes := s.cpes[cve]; len(cpes) > 0 {
			s.items[cve]["configurations"] = []map[string]any{{
				"nodes": []map[string]any{{"operator": "OR", "negate": false, "cpeMatch": cpes}},
			}}
		}
		records = append(records, record{id: "nvd/" + cve, item: map[string]any{"cve": s.items[cve]}})
	}
	return records
}
