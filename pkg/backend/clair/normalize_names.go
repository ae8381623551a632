package clair

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// osvAlias is the prefix of each alias of a record among the links of the OSV updater (claircore, updater/osv).
const osvAlias = "https://osv.dev/vulnerability/"

var (
	// cveInName is as tolerant as Clair itself (claircore, enricher.CVERegexp).
	cveInName = regexp.MustCompile(`(?i:cve)[-_][0-9]{4}[-_][0-9]{4,}`)
	// cvePage matches a link to the page of one CVE: the ID is the last part of the path or of the query.
	cvePage = regexp.MustCompile(`(?i)[/=](cve-[0-9]{4}-[0-9]{4,})(\.html|/)?$`)
	// advisoryID matches the beginning of a title such as "ELSA-2018-0007:  kernel security update (IMPORTANT)".
	advisoryID = regexp.MustCompile(`^[A-Za-z]+-[A-Za-z0-9:._-]*[A-Za-z0-9]`)
)

// names holds the IDs of a vulnerability.
type names struct {
	ids     []string // canonical; several if the advisory covers several CVEs
	native  string   // the advisory's own ID
	aliases []string // other IDs of the same vulnerability
}

// namesOf reads the IDs of a vulnerability, from the first of these sources that has any:
//   - the CVEs in its name, which for several distributions is a title ("CVE-2021-20193 on Ubuntu 18.04 LTS (bionic) - low.");
//   - for OSV records, the aliases, as with any engine;
//   - for the advisories of distributions, the CVEs whose pages they link to: the update fixes those.
//
// Other links also mention CVEs, related and unrelated ones, and are ignored.
func namesOf(v *claircore.Vulnerability) names {
	n := names{native: nativeID(v.Name)}
	var pages []string
	for link := range strings.FieldsSeq(v.Links) {
		if alias, isAlias := strings.CutPrefix(link, osvAlias); isAlias && alias != "" {
			n.aliases = append(n.aliases, alias)
		} else if page := cvePage.FindStringSubmatch(link); page != nil {
			pages = append(pages, strings.ToUpper(page[1]))
		}
	}
	for _, cve := range cveInName.FindAllString(v.Name, -1) {
		n.ids = append(n.ids, strings.ReplaceAll(strings.ToUpper(cve), "_", "-"))
	}
	switch isOSV := len(n.aliases) > 0 || strings.HasPrefix(v.Updater, "osv/"); {
	case len(n.ids) > 0:
	case isOSV:
		n.ids = []string{finding.Canonical(n.native, n.aliases)}
	case len(pages) > 0:
		n.ids = pages
	default:
		n.ids = []string{n.native}
	}
	slices.Sort(n.ids)
	n.ids = slices.Compact(n.ids)
	return n
}

// nativeID returns the ID at the beginning of a name, or the whole name if there is none.
func nativeID(name string) string {
	name = strings.TrimSpace(name)
	first, _, _ := strings.Cut(name, " ")
	if id := advisoryID.FindString(first); strings.ContainsAny(id, "0123456789") {
		return id
	}
	return name
}

// primaryLink returns the most specific link of a vulnerability: that of the advisory itself, else that of one of its IDs, else the first.
func primaryLink(v *claircore.Vulnerability, n names) string {
	var links []string
	for link := range strings.FieldsSeq(v.Links) {
		if parsed, err := url.Parse(link); err == nil && (parsed.Scheme == "https" || parsed.Scheme == "http") && parsed.Host != "" {
			links = append(links, link)
		}
	}
	for _, id := range append([]string{n.native}, n.ids...) {
		if i := slices.IndexFunc(links, func(link string) bool { return strings.Contains(link, id) }); i >= 0 {
			return links[i]
		}
	}
	if len(links) == 0 {
		return ""
	}
	return links[0]
}
