package clair

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Repository keys of Red Hat's matchers (claircore 1.5.48, rhel and rhel/rhcc), and the updater that both use.
const (
	redHatProducts   = "rhel-cpe-repository"
	redHatContainers = "rhcc-container-repository"
	redHatUpdater    = "rhel-vex"
)

// distributionUpdaters maps each distribution that a matcher of Clair supports, by the ID in os-release, to the name pattern of the
// updaters for its release (claircore 1.5.48: matchers/defaults, and Name of each updater). Red Hat is not included because its matcher
// goes by repository. Clair indexes packages of all other distributions but matches them with nothing.
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

// ecosystems maps the package types of languages that Clair indexes to their name in status.notCovered and their updater. Red Hat's own
// containers count as one.
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

// alpineUpdater returns the pattern for the updaters of a release. There is one for each repository, such as "alpine-main-v3.19-updater".
func alpineUpdater(d *claircore.Distribution) string {
	if d.Version == "edge" {
		return "alpine-*-edge-updater"
	}
	return "alpine-*-v" + d.Version + "-updater"
}

// suseUpdater returns a name such as "suse-updater-suse.linux.enterprise.server.15".
func suseUpdater(d *claircore.Distribution) string {
	return "suse-updater-" + strings.ReplaceAll(strings.ToLower(d.PrettyName), " ", ".")
}

// amazonUpdater returns the updater's name. The first Amazon Linux has the version "2018.03", the others use the name of their release.
func amazonUpdater(d *claircore.Distribution) string {
	if d.Version == "2018.03" {
		return "aws-AL1-updater"
	}
	return "aws-AL" + d.Version + "-updater"
}

// photonUpdater returns a name such as "photon-updater-photon3", for the version "3.0".
func photonUpdater(d *claircore.Distribution) string {
	return "photon-updater-photon" + strings.TrimSuffix(d.Version, ".0")
}

// coverage determines what one report covers of what Clair indexed.
type coverage struct {
	report *claircore.VulnerabilityReport
	ran    func(pattern string) bool
}

// uncovered returns the names of what an image contains but its report cannot have findings for. First come operating system packages that
// no matcher of Clair supports or whose updater has not run, then languages whose updater has not run. ran reports whether an updater that
// fits a pattern has run.
func uncovered(report *claircore.VulnerabilityReport, ran func(pattern string) bool) []string {
	c := coverage{report: report, ran: ran}
	// Each package database belongs to one distribution. Several of Clair's indexers read rpm databases, and not all of them know the
	// distribution.
	systems, covered, languages := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, environments := range report.Environments {
		for _, environment := range environments {
			if environment == nil {
				continue
			}
			database := environment.PackageDB
			switch kind, _ := packageDatabase(database); kind {
			case typeDeb, typeApk, typeRPM:
				covered[database] = covered[database] || c.isCovered(environment)
				// Every distribution ID sorts after the placeholder "OS packages (…)", since it is lower case.
				systems[database] = max(systems[database], cmp.Or(c.distributionOf(environment), workerapi.OSPackages+" ("+kind+")"))
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

// isCovered reports whether operating system packages of this environment are matched with any data.
func (c coverage) isCovered(environment *claircore.Environment) bool {
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

// distributionOf returns a name such as "debian 12", or "" if the distribution is unknown.
func (c coverage) distributionOf(environment *claircore.Environment) string {
	distribution := c.report.Distributions[environment.DistributionID]
	if distribution == nil || distribution.DID == "" {
		return ""
	}
	// Alpine's release is in version, that of the others in version_id.
	name := strings.TrimSpace(distribution.DID + " " + cmp.Or(distribution.VersionID, distribution.Version))
	end := min(len(name), v1alpha1.MaxNotCoveredBytes)
	for end < len(name) && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}

// notCovered returns the gaps of a report: first those of the image, then what Clair never analyzes, up to the maximum number.
func notCovered(held []string) []string {
	all := slices.Concat(held, NotCovered)
	return all[:min(len(all), v1alpha1.MaxNotCovered)]
}

// updatersRan returns a function that reports whether Clair currently has data of an updater that fits a pattern.
func (i *instance) updatersRan() func(pattern string) bool {
	i.mu.Lock()
	latest := i.data.latest[api.Vulnerabilities] // the map never changes once it is set
	i.mu.Unlock()
	return func(pattern string) bool { return matchesAny(pattern, latest) }
}
