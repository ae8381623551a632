package match_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
)

// endedAdvisories are data about a release that has ended, and about one that ends in a far future.
var endedAdvisories = map[string]string{
	"debian-9.json":  `[{"id": "CVE-2021-3711", "package": "openssl", "fixed": "1.1.0l-1~deb9u4", "severity": "High", "description": "d"}]`,
	"debian-13.json": `[{"id": "CVE-2026-1", "package": "openssl", "fixed": "9", "severity": "High", "description": "d"}]`,
	"eol.json":       `[{"product": "debian", "name": "9", "eolFrom": "2022-06-30"}, {"product": "debian", "name": "13", "eolFrom": "2130-06-30"}]`,
}

// TestNotCovered checks that a report names packages of distributions of which the database knows nothing, and distributions that have ended.
func TestNotCovered(t *testing.T) {
	db := store(t, fixture.Advisories(t, endedAdvisories))
	packages := fixture.Dpkg(fixture.Deb{Name: "openssl", Version: "1.0.1-1"}, fixture.Deb{Name: "curl", Version: "7.1-1"})
	const unknown = "OS packages (deb)"
	for what, c := range map[string]struct {
		release registrytest.Files
		want    []string
	}{
		"no os-release":                 {registrytest.Files{}, []string{unknown}},
		"a distribution of nobody":      {fixture.OSRelease("myos", "1"), []string{unknown}},
		"openEuler":                     {fixture.OSRelease("openEuler", "22.03"), []string{unknown}},
		"a release without data":        {fixture.OSRelease("debian", "7"), []string{unknown + " of debian 7"}},
		"a release with data":           {fixture.OSRelease("debian", "12"), nil},
		"testing, without a VERSION_ID": {registrytest.Files{"etc/os-release": "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux forky/sid\"\n"}, nil},
		"ended":                         {fixture.OSRelease("debian", "9"), []string{"debian 9: no security updates since 2022-06-30"}},
		"ended, a point release":        {fixture.OSRelease("debian", "9.13"), []string{"debian 9.13: no security updates since 2022-06-30"}},
		"not ended yet":                 {fixture.OSRelease("debian", "13"), nil},
		"ended by os-release":           {fixture.OSRelease("debian", "12", "SUPPORT_END=2023-06-10"), []string{"debian 12: no security updates since 2023-06-10"}},
		"ends later by os-release":      {fixture.OSRelease("debian", "12", "SUPPORT_END=2130-06-10"), nil},
		"the database knows better":     {fixture.OSRelease("debian", "13", "SUPPORT_END=2023-06-10"), nil},
		"a derivative that has ended": {fixture.OSRelease("mydebian", "12", "ID_LIKE=debian", "SUPPORT_END=2023-06-10"),
			[]string{"debian 12: no security updates since 2023-06-10"}},
	} {
		t.Run(what, func(t *testing.T) {
			image := registrytest.Image(t, fixture.Merge(packages, c.release))
			report, err := match.SBOM(t.Context(), db, input.Open(write(t, input.Compact(contents(t, image)))))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, report.NotCovered); diff != "" {
				t.Errorf("not covered (-want +got):\n%s", diff)
			}
			if name := strings.TrimSpace(report.Distro); name != report.Distro {
				t.Errorf("the distribution is called %q, want %q", report.Distro, name)
			}
			if slices.Contains(report.NotCovered, unknown) && len(report.Findings) > 0 {
				t.Errorf("%d findings in packages of which nothing is known", len(report.Findings))
			}
		})
	}
	t.Run("no packages of a distribution", func(t *testing.T) {
		image := registrytest.Image(t, registrytest.Files{"app": fixture.GoBinary("go1.22.0", "example.org/app")}, fixture.OSRelease("debian", "9"))
		report, err := match.SBOM(t.Context(), db, input.Open(write(t, input.Compact(contents(t, image)))))
		if err != nil || report.NotCovered != nil {
			t.Errorf("not covered: %q, %v; want nothing", report.NotCovered, err)
		}
	})
}

// TestNotCoveredInForeignSBOMs checks the same for SBOMs of other tools, in which each package may be of another distribution.
func TestNotCoveredInForeignSBOMs(t *testing.T) {
	db := store(t, fixture.Advisories(t, endedAdvisories))
	for what, c := range map[string]struct {
		document string
		want     []string
	}{
		"qualifiers that Grype does not know": {
			spdxOf(packageOf("openssl", "3.0.9-1", "pkg:deb/debian/openssl@3.0.9-1?os_name=debian&os_version=12")), []string{"OS packages (deb)"},
		},
		"several distributions": {
			cyclonedxOf(componentOf("a", "1", "pkg:deb/debian/a@1?distro=debian-9"), componentOf("b", "1", "pkg:deb/debian/b@1?distro=debian-12"),
				componentOf("c", "1", "pkg:rpm/openeuler/c@1?distro=openEuler-22.03"), componentOf("d", "1", "pkg:apk/alpine/d@1"), componentOf("e", "1", "pkg:npm/e@1")),
			[]string{"OS packages (apk)", "OS packages (rpm) of openEuler 22.03", "debian 9: no security updates since 2022-06-30"},
		},
		"more distributions than are looked up": {
			cyclonedxOf(manyDistributions(65)...), []string{"OS packages of more than 64 distributions"},
		},
		"as many as are looked up": {cyclonedxOf(manyDistributions(64)...), nil},
		"a name that is too long": {
			cyclonedxOf(componentOf("a", "1", "pkg:deb/debian/a@1?distro=abcdefghijklmnopqrstuvwxyz-1")), []string{"OS packages (deb) of abcdefghijklmnopqrstu…"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			decoded, _, err := catalog.Decode([]byte(c.document))
			if err != nil {
				t.Fatal(err)
			}
			report, err := match.SBOM(t.Context(), db, input.Open(write(t, input.Compact(decoded))))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, report.NotCovered); diff != "" {
				t.Errorf("not covered (-want +got):\n%s", diff)
			}
		})
	}
}

// manyDistributions returns packages of as many point releases, about which the database knows.
func manyDistributions(n int) (components []string) {
	for i := range n {
		components = append(components, componentOf(fmt.Sprintf("a%d", i), "1", fmt.Sprintf("pkg:deb/debian/a%d@1?distro=debian-12.%d", i, i)))
	}
	return components
}
