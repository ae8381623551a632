package match_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/anchore/grype/grype/distro"
	grypematch "github.com/anchore/grype/grype/match"
	"github.com/anchore/grype/grype/pkg"
	"github.com/anchore/grype/grype/search"
	"github.com/anchore/grype/grype/vulnerability"
	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/cpe"
	"github.com/anchore/syft/syft/file"
	syftpkg "github.com/anchore/syft/syft/pkg"
	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestDifferentPackagesShareNoMatches matches packages that differ in one property, after each other with one database. Each must have the
// findings that it has alone, which differ from those of the others.
func TestDifferentPackagesShareNoMatches(t *testing.T) {
	bookworm := distro.New(distro.Debian, "12", "bookworm")
	deb := pkg.Package{ID: "1", Name: "libssl3", Version: "3.0.9-1", Type: syftpkg.DebPkg, Distro: bookworm,
		Upstreams: []pkg.UpstreamPackage{{Name: "openssl"}}}
	binary := pkg.Package{ID: "1", Name: "go", Version: "1.19.0", Type: syftpkg.BinaryPkg,
		CPEs: []cpe.CPE{cpe.Must("cpe:2.3:a:golang:go:1.19.0:*:*:*:*:*:*:*", "")}}
	plain, module, epoch, none := "", "bash:5", 9, 0
	rpm := pkg.Package{ID: "1", Name: "openssl", Version: "3.0.7-6.el9_2", Type: syftpkg.RpmPkg, Distro: distro.New(distro.RockyLinux, "9.2", ""),
		Metadata: pkg.RpmMetadata{Epoch: &none}}
	bash := rpm
	bash.Name, bash.Version, bash.Metadata = "bash", "5.1.8-1.el9", pkg.RpmMetadata{Epoch: &none, ModularityLabel: &plain}
	golang := pkg.Package{ID: "1", Name: "stdlib", Version: "go1.22.0", Type: syftpkg.GoModulePkg, Language: syftpkg.Go,
		Metadata: pkg.GolangBinMetadata{MainModule: "example.org/server"}}
	development := golang
	development.Name, development.Version = "golang.org/x/net", "v0.0.0-20220101000000-000000000000"

	with := func(p pkg.Package, change func(*pkg.Package)) pkg.Package {
		change(&p)
		return p
	}
	for name, pair := range map[string][2]pkg.Package{
		"version":         {deb, with(deb, func(p *pkg.Package) { p.Version = "3.0.13-1~deb12u1" })},
		"release":         {deb, with(deb, func(p *pkg.Package) { p.Distro = distro.New(distro.Debian, "11", "bullseye") })},
		"distribution":    {deb, with(deb, func(p *pkg.Package) { p.Distro = distro.New(distro.Ubuntu, "12", "") })},
		"no distribution": {deb, with(deb, func(p *pkg.Package) { p.Distro = nil })},
		"upstream":        {deb, with(deb, func(p *pkg.Package) { p.Upstreams = nil })},
		"upstream version": {deb, with(deb, func(p *pkg.Package) {
			p.Upstreams = []pkg.UpstreamPackage{{Name: "openssl", Version: "3.0.13-1~deb12u1"}}
		})},
		"type": {deb, with(deb, func(p *pkg.Package) { p.Type = syftpkg.RpmPkg })},
		"CPE": {binary, with(binary, func(p *pkg.Package) {
			p.CPEs = []cpe.CPE{cpe.Must("cpe:2.3:a:golang:go:1.22.0:*:*:*:*:*:*:*", "")}
		})},
		"no CPE":     {binary, with(binary, func(p *pkg.Package) { p.CPEs = nil })},
		"epoch":      {rpm, with(rpm, func(p *pkg.Package) { p.Metadata = pkg.RpmMetadata{Epoch: &epoch} })},
		"RPM module": {bash, with(bash, func(p *pkg.Package) { p.Metadata = pkg.RpmMetadata{Epoch: &none, ModularityLabel: &module} })},
		"functions": {golang, with(golang, func(p *pkg.Package) {
			p.Metadata = pkg.GolangBinMetadata{MainModule: "example.org/server", Symbols: map[string][]string{"os": {"ReadFile"}}}
		})},
		"main module": {development, with(development, func(p *pkg.Package) { p.Metadata = pkg.GolangBinMetadata{MainModule: "golang.org/x/net"} })},
		"location":    {deb, with(deb, func(p *pkg.Package) { p.Locations = file.NewLocationSet(file.NewLocation("/other")) })},
	} {
		t.Run(name, func(t *testing.T) {
			version := install(t, t.TempDir(), fixture.Advisories(t, ownAdvisories))
			report := func(p pkg.Package) *workerapi.Report {
				r, err := match.PackagesWithoutCache(t.Context(), open(t, version), []pkg.Package{p}, pkg.Context{Distro: p.Distro})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			alone := []*workerapi.Report{report(pair[0]), report(pair[1])}
			if cmp.Equal(alone[0].Findings, alone[1].Findings) {
				t.Fatal("both packages have the same findings, so that the test shows nothing")
			}
			db := open(t, version)
			for _, i := range []int{0, 1, 0} {
				got, err := match.Packages(t.Context(), db, []pkg.Package{pair[i]}, pkg.Context{Distro: pair[i].Distro})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(alone[i], got); diff != "" {
					t.Errorf("report of package %d (-alone +after the other):\n%s", i, diff)
				}
			}
		})
	}
}

// countingMatcher finds one vulnerability in each package and counts its runs. more adds ignores and an error.
type countingMatcher struct {
	runs int
	more func(provider vulnerability.Provider, p pkg.Package) (grypematch.IgnoreFilter, error)
}

func (m *countingMatcher) PackageTypes() []syftpkg.Type { return []syftpkg.Type{syftpkg.DebPkg} }

func (m *countingMatcher) Type() grypematch.MatcherType { return grypematch.DpkgMatcher }

func (m *countingMatcher) Match(provider vulnerability.Provider, p pkg.Package) ([]grypematch.Match, []grypematch.IgnoreFilter, error) {
	m.runs++
	v := vulnerability.Vulnerability{Reference: vulnerability.Reference{ID: "CVE-2024-0001"}, Fix: vulnerability.Fix{Versions: []string{"2", "1"}}}
	ignore, err := m.more(provider, p)
	return []grypematch.Match{{Package: p, Vulnerability: v}}, []grypematch.IgnoreFilter{ignore}, err
}

// TestWhichMatchesAreCached checks which results of a matcher serve the equal package of the next image, and that the result is about the
// package of that image.
func TestWhichMatchesAreCached(t *testing.T) {
	type ignore = grypematch.IgnoreFilter
	about := func(id pkg.ID) ignore { return grypematch.IgnoreRelatedPackage{RelatedPackageID: id} }
	in := func(location string) ignore {
		return grypematch.IgnoreRule{Vulnerability: "CVE-2024-0002", Package: grypematch.IgnoreRulePackage{Location: location}}
	}
	for name, c := range map[string]struct {
		more          func(provider vulnerability.Provider, p pkg.Package) (ignore, error)
		owner, closed bool
		cached        bool
	}{
		"a rule for all packages": {
			more: func(vulnerability.Provider, pkg.Package) (ignore, error) { return in(""), nil }, cached: true,
		},
		"a rule for the package's files": {
			more: func(_ vulnerability.Provider, p pkg.Package) (ignore, error) { return about(p.ID), nil }, cached: true,
		},
		"a rule for the package's files, some of which are other packages": {
			more: func(_ vulnerability.Provider, p pkg.Package) (ignore, error) { return about(p.ID), nil }, owner: true,
		},
		"a rule for another package's files": {
			more: func(vulnerability.Provider, pkg.Package) (ignore, error) { return about("other"), nil },
		},
		"a rule for a location": {
			more: func(vulnerability.Provider, pkg.Package) (ignore, error) { return in("/usr/bin/tool"), nil },
		},
		"an error": {
			more: func(vulnerability.Provider, pkg.Package) (ignore, error) { return in(""), errors.New("no version") },
		},
		"a failed query that the matcher does not report": {
			more: func(provider vulnerability.Provider, _ pkg.Package) (ignore, error) {
				_, _ = provider.FindVulnerabilities(search.ByPackageName("openssl"))
				return in(""), nil
			}, closed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := store(t)
			if c.closed {
				db.Close()
			}
			lookups, done := db.BorrowLookups()
			defer done()
			matcher := &countingMatcher{more: c.more}
			for i := range 3 {
				p := pkg.Package{ID: pkg.ID(fmt.Sprint("id-", i)), Name: "tool", Locations: file.NewLocationSet(file.NewLocation(fmt.Sprint("/layer", i)))}
				image := []pkg.Package{p}
				if c.owner {
					image = append(image, pkg.Package{RelatedPackages: map[artifact.RelationshipType][]*pkg.Package{"owns": {&p}}})
				}
				matches, ignores, _ := match.WithCache(matcher, db, image...).Match(lookups, p)
				if len(matches) != 1 || !reflect.DeepEqual(matches[0].Package, p) || !slices.Equal(matches[0].Vulnerability.Fix.Versions, []string{"2", "1"}) {
					t.Fatalf("image %d: got %+v, want the vulnerability in %+v", i, matches, p)
				}
				if c.owner && !slices.Equal(ignores, []ignore{about(p.ID)}) {
					t.Errorf("image %d: got the ignores %+v, want the one about this image's package", i, ignores)
				}
				if rule, _ := c.more(lookups, p); rule == in("") && !slices.Equal(ignores, []ignore{in("")}) {
					t.Errorf("image %d: got the ignores %+v, want the rule for all packages", i, ignores)
				}
				// Grype changes its results in place. Such a change must not reach the cache.
				matches[0].Vulnerability.Fix.Versions[0] = "changed"
			}
			want := 3
			if c.cached {
				want = 1
			}
			if matcher.runs != want {
				t.Errorf("the matcher ran %d times for three images, want %d", matcher.runs, want)
			}
		})
	}
}
