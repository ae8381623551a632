package clair

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
)

// holding returns a report on an image with one package. Each distribution or repository in parts gives the package one environment with
// this package database; nil gives an environment without either.
func holding(database string, parts ...any) *claircore.VulnerabilityReport {
	report := &claircore.VulnerabilityReport{
		Packages:      map[string]*claircore.Package{"1": {Name: "x"}},
		Distributions: map[string]*claircore.Distribution{}, Repositories: map[string]*claircore.Repository{},
		Environments: map[string][]*claircore.Environment{},
	}
	for n, part := range parts {
		id, environment := string(rune('a'+n)), &claircore.Environment{PackageDB: database}
		switch part := part.(type) {
		case *claircore.Distribution:
			report.Distributions[id], environment.DistributionID = part, id
		case *claircore.Repository:
			report.Repositories[id], environment.RepositoryIDs = part, []string{id}
		}
		report.Environments["1"] = append(report.Environments["1"], environment)
	}
	return report
}

// TestUncovered: packages that Clair indexes but matches with nothing are reported. The distributions are as claircore's scanners report
// them.
func TestUncovered(t *testing.T) {
	const dpkg, apk, rpm = "var/lib/dpkg/status", "lib/apk/db/installed", "sqlite:var/lib/rpm"
	redHat := &claircore.Distribution{DID: "rhel", Name: "Red Hat Enterprise Linux Server", Version: "9", VersionID: "9"}
	products := &claircore.Repository{Key: "rhel-cpe-repository"}
	for name, tt := range map[string]struct {
		report *claircore.VulnerabilityReport
		// updater that makes the difference; empty if none does.
		updater, want string
	}{
		"Debian":        {holding(dpkg, &claircore.Distribution{DID: "debian", VersionID: "12", VersionCodeName: "bookworm"}), "debian/updater", "debian 12"},
		"distroless":    {holding("var/lib/dpkg/status.d/base", &claircore.Distribution{DID: "debian", VersionID: "12"}), "debian/updater", "debian 12"},
		"Ubuntu":        {holding(dpkg, &claircore.Distribution{DID: "ubuntu", VersionID: "22.04", VersionCodeName: "jammy"}), "ubuntu/updater/jammy", "ubuntu 22.04"},
		"Alpine":        {holding(apk, &claircore.Distribution{DID: "alpine", Version: "3.19"}), "alpine-community-v3.19-updater", "alpine 3.19"},
		"Alpine's edge": {holding(apk, &claircore.Distribution{DID: "alpine", Version: "edge"}), "alpine-main-edge-updater", "alpine edge"},
		"SLES": {
			holding(rpm, nil, &claircore.Distribution{DID: "sles", VersionID: "15", PrettyName: "SUSE Linux Enterprise Server 15"}),
			"suse-updater-suse.linux.enterprise.server.15", "sles 15",
		},
		"Leap": {
			holding(rpm, &claircore.Distribution{DID: "opensuse-leap", VersionID: "15.5", PrettyName: "openSUSE Leap 15.5"}, nil),
			"suse-updater-opensuse.leap.15.5", "opensuse-leap 15.5",
		},
		"Oracle":               {holding(rpm, &claircore.Distribution{DID: "ol", VersionID: "9"}), "oracle-2024-updater", "ol 9"},
		"the first Amazon":     {holding(rpm, &claircore.Distribution{DID: "amzn", Version: "2018.03", VersionID: "2018.03"}), "aws-AL1-updater", "amzn 2018.03"},
		"Amazon":               {holding(rpm, &claircore.Distribution{DID: "amzn", Version: "2023", VersionID: "2023"}), "aws-AL2023-updater", "amzn 2023"},
		"Photon":               {holding(rpm, &claircore.Distribution{DID: "photon", Version: "3.0", VersionID: "3.0"}), "photon-updater-photon3", "photon 3.0"},
		"Red Hat":              {holding(rpm, nil, redHat, products), "rhel-vex", "rhel 9"},
		"CentOS Stream":        {holding(rpm, redHat), "", "rhel 9"},
		"Rocky, Alma, Fedora":  {holding(rpm, nil, nil), "", "OS packages (rpm)"},
		"Wolfi":                {holding(apk, nil), "", "OS packages (apk)"},
		"Kali":                 {holding(dpkg, nil), "", "OS packages (deb)"},
		"another distribution": {holding("bdb:var/lib/rpm", &claircore.Distribution{DID: strings.Repeat("d", 63) + "ü", VersionID: "1"}), "", strings.Repeat("d", 63)},
		"an unknown database":  {holding("opt/x", nil), "", ""},
		"Go":                   {holding("go:usr/bin/app", nil), "osv/go", "Go"},
		"Python":               {holding("python:usr/lib", nil), "osv/pypi", "Python (PyPI)"},
		"Java":                 {holding("maven:app.jar", nil), "osv/maven", "Java (Maven)"},
		"Ruby":                 {holding("ruby:usr/lib", nil), "osv/rubygems", "Ruby (RubyGems)"},
		"Red Hat's containers": {holding("root/buildinfo/x", nil), "rhel-vex", "Red Hat containers"},
		"no environment":       {&claircore.VulnerabilityReport{Environments: map[string][]*claircore.Environment{"1": {nil}}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(len(tt.want)).To(BeNumerically("<=", v1alpha1.MaxNotCoveredBytes))
			others := func(pattern string) bool { return tt.updater == "" || !matches(pattern, tt.updater) }
			g.Expect(strings.Join(uncovered(tt.report, others), ", ")).To(Equal(tt.want), "all other updaters ran")
			if tt.updater != "" {
				only := func(pattern string) bool { return matches(pattern, tt.updater) }
				g.Expect(uncovered(tt.report, only)).To(BeEmpty(), "only that updater ran")
			}
		})
	}
}

// TestUncoveredOfSeveral: distributions come first, each name appears once, and there are never more names than an ImageScan may hold.
func TestUncoveredOfSeveral(t *testing.T) {
	g := NewWithT(t)
	report := recorded(t, "registry")
	g.Expect(uncovered(report, func(string) bool { return true })).To(BeEmpty())
	g.Expect(uncovered(report, func(string) bool { return false })).To(Equal([]string{"debian 12", "Go"}))
	g.Expect(notCovered([]string{"debian 12"})[:2]).To(Equal([]string{"debian 12", NotCovered[0]}))
	many := notCovered(slices.Repeat([]string{"x"}, v1alpha1.MaxNotCovered))
	g.Expect(many).To(HaveLen(v1alpha1.MaxNotCovered))
	// With all languages except Red Hat containers, a distribution and everything that Clair never analyzes still fit.
	g.Expect(len(ecosystems) - 1 + 1 + len(NotCovered)).To(BeNumerically("<=", v1alpha1.MaxNotCovered))
}

// TestCoverageOfReports: packages whose updater has not run are reported as not covered, until the updater has run.
func TestCoverageOfReports(t *testing.T) {
	w := newWorld(t)
	scanner := w.scanner("shop")
	img := w.run(scanner, "web", w.push("web", registrytest.Image(t, files("web"))))
	w.scan(scanner, img)
	subject := store.Subject{PlatformDigest: img.Key.Digest, Engine: w.For(scanner).Engine()}
	uncoveredNow := func() ([]string, error) {
		summary, err := w.store.Summary(t.Context(), subject, store.ImageExceptions{})
		return summary.NotCovered, err
	}
	w.Expect(uncoveredNow()).To(Equal(slices.Concat([]string{"ol 9"}, NotCovered)))
	w.clair.update("oracle-2024-updater", w.clock.Now())
	w.Eventually(func() ([]string, error) {
		w.advance(w.options.Config.Clair.PollInterval.Duration)
		w.For(scanner) // as in the Scanner's reconcile every minute
		return uncoveredNow()
	}).Should(Equal(NotCovered))
}
