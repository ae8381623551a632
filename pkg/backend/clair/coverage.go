package clair

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	api "github.com/scanner-operator/scanner-operator/pkg/clair"
)

// Repositories of Red Hat's matchers (claircore 1.5.48, rhel and rhel/rhcc), and the one updater for both.
const (
	redHatProducts   = "rhel-cpe-repository"
	redHatContainers = "rhcc-container-repository"
	redHatUpdater    = "rhel-vex"
)

// distributionUpdaters are the distributions that a matcher of Clair is for, by the ID of os-release, each with the pattern of
// the updaters that know its release (claircore 1.5.48: matchers/defaults, and Name of each updater). Red Hat's matcher goes
// by repository instead. Packages of all other distributions are listed, and matched with nothing.
var distributionUpdaters = map[string]func(*claircore.Distribution) string{
	"debian":        always("debian/updater"),
	"ubuntu":        func(d *claircore.Distribution) string { return "ubuntu/updater/" + d.VersionCodeName },
	"alpine":        alpineUpdater,
	"sles":          suseUpdater,
	"opensuse":      suseUpdater,
	"opensuse-leap": suseUpdater,
	"ol":            always("oracle-*-updater"),
	"amzn":          amazonUpdater,
	"photon":        photonUpdater,
}

// ecosystems are those of languages that Clair lists, by the type of their packages, each with the name that it has in
// status.notCovered and its updater. Red Hat's own containers count as one.
var ecosystems = map[string]struct{ name, updater string }{
	typeGo:        {"Go", "osv/go"},
	typePython:    {"Python (PyPI)", "osv/pypi"},
	typeJava:      {"Java (Maven)", "osv/maven"},
	typeGem:       {"Ruby (RubyGems)", "osv/rubygems"},
	typeContainer: {"Red Hat containers", redHatUpdater},
}

func always(pattern string) func(*claircore.Distribution) string {
	return func(*claircore.Distribution) string { return pattern }
}

// alpineUpdater: there is one for each repository of a release, such as "alpine-main-v3.19-updater".
func alpineUpdater(d *claircore.Distribution) string {
	if d.Version == "edge" {
		return "alpine-*-edge-updater"
	}
	return "alpine-*-v" + d.Version + "-updater"
}

// suseUpdater is such as "suse-updater-suse.linux.enterprise.server.15".
func suseUpdater(d *claircore.Distribution) string {
	return "suse-updater-" + strings.ReplaceAll(strings.ToLower(d.PrettyName), " ", ".")
}

// amazonUpdater: the first Amazon Linux has the version "2018.03", the others the name of their release.
func amazonUpdater(d *claircore.Distribution) string {
	if d.Version == "2018.03" {
		return "aws-AL1-updater"
	}
	return "aws-AL" + d.Version + "-updater"
}

// photonUpdater is such as "photon-updater-photon3", for the version "3.0".
func photonUpdater(d *claircore.Distribution) string {
	return "photon-updater-photon" + strings.TrimSuffix(d.Version, ".0")
}

// coverage is what one report covers of what Clair listed.
type coverage struct {
	report *claircore.VulnerabilityReport
	ran    func(pattern string) bool
}

// uncovered names what an image holds and its report has no findings for in any case: operating systems' packages that no
// matcher of Clair is for or whose updater has not run, and then languages whose updater has not run. ran says whether an
// updater that fits a pattern has.
func uncovered(report *claircore.VulnerabilityReport, ran func(pattern string) bool) []string {
	c := coverage{report: report, ran: ran}
	// Each database of packages is of one distribution. Several of Clair's indexers read those of rpm, and not all of them
	// know the distribution.
	systems, covered, languages := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, environments := range report.Environments {
		for _, environment := range environments {
			if environment == nil {
				continue
			}
			database := environment.PackageDB
			switch kind, _ := packageDatabase(database); kind {
			case typeDeb, typeApk, typeRPM:
				covered[database] = covered[database] || c.covers(environment)
				// In byte order, all distributions' names are after those of none.
				systems[database] = max(systems[database], cmp.Or(c.distributionOf(environment), "OS packages ("+kind+")"))
			default:
				if ecosystem, known := ecosystems[kind]; known && !ran(ecosystem.updater) {
					languages[ecosystem.name] = true
				}
			}
		}
	}
	maps.DeleteFunc(systems, func(database, _ string) bool { return covered[database] })
	names := slices.Compact(slices.Sorted(maps.Values(systems)))
	return append(names, slices.Sorted(maps.Keys(languages))...)
}

// covers says whether operating systems' packages that are found like this are matched with anything.
func (c coverage) covers(environment *claircore.Environment) bool {
	for _, id := range environment.RepositoryIDs {
		if repository := c.report.Repositories[id]; repository != nil && repository.Key == redHatProducts && c.ran(redHatUpdater) {
			return true
		}
	}
	distribution := c.report.Distributions[environment.DistributionID]
	if distribution == nil || distributionUpdaters[distribution.DID] == nil {
		return false
	}
	return c.ran(distributionUpdaters[distribution.DID](distribution))
}

// distributionOf is such as "debian 12"; empty if the distribution is not known.
func (c coverage) distributionOf(environment *claircore.Environment) string {
	distribution := c.report.Distributions[environment.DistributionID]
	if distribution == nil || distribution.DID == "" {
		return ""
	}
	// Alpine's release is in version, the others' in version_id.
	name := strings.TrimSpace(distribution.DID + " " + cmp.Or(distribution.VersionID, distribution.Version))
	end := min(len(name), v1alpha1.MaxNotCoveredBytes)
	for end < len(name) && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}

// notCovered is what is said with a report: what the image holds, and then what Clair analyses in no image, as far as there
// is space.
func notCovered(held []string) []string {
	all := slices.Concat(held, NotCovered)
	return all[:min(len(all), v1alpha1.MaxNotCovered)]
}

// ran says of which updaters Clair has data now.
func (i *instance) ran() func(pattern string) bool {
	i.mu.Lock()
	latest := i.data.latest[api.Vulnerabilities] // never changed once it is there
	i.mu.Unlock()
	return func(pattern string) bool {
		for updater := range latest {
			if matches(pattern, updater) {
				return true
			}
		}
		return false
	}
}
