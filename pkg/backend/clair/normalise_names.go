package clair

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// osvAlias is what the OSV updater puts before each alias of a record among its links (claircore, updater/osv).
const osvAlias = "https://osv.dev/vulnerability/"

var (
	// cveInName is as tolerant as Clair itself (claircore, enricher.CVERegexp).
	cveInName = regexp.MustCompile(`(?i:cve)[-_][0-9]{4}[-_][0-9]{4,}`)
	// cvePage is a link to the page of one CVE: its id is the last part of the path or of the query.
	cvePage = regexp.MustCompile(`(?i)[/=](cve-[0-9]{4}-[0-9]{4,})(\.html|/)?$`)
	// advisoryID is how a title begins: "ELSA-2018-0007:  kernel security update (IMPORTANT)".
	advisoryID = regexp.MustCompile(`^[A-Za-z]+-[A-Za-z0-9:._-]*[A-Za-z0-9]`)
)

// names of a vulnerability.
type names struct {
	ids     []string // canonical; several if the advisory covers several
	native  string   // the advisory's own id
	aliases []string // other ids of the same vulnerability
}

// namesOf reads the ids of a vulnerability. In this order:
//   - CVEs in its name, which for several distributions is a title ("CVE-2021-20193 on Ubuntu 18.04 LTS (bionic) - low.");
//   - what OSV says is the same vulnerability, as with any engine;
//   - for the advisories of distributions, the CVEs whose pages they refer to: those are what the update fixes.
//
// Other links name CVEs as well, related and unrelated ones, and say nothing.
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

// nativeID is the id that a name begins with, or else all of the name.
func nativeID(name string) string {
	name = strings.TrimSpace(name)
	first, _, _ := strings.Cut(name, " ")
	if id := advisoryID.FindString(first); strings.ContainsAny(id, "0123456789") {
		return id
	}
	return name
}

// address is the link that says most about a vulnerability: the one of the advisory itself, else of one of its ids, else the
// first.
func address(v *claircore.Vulnerability, n names) string {
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
