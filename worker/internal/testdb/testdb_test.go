package testdb_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/search"
	"github.com/anchore/grype/grype/vulnerability"
	syftpkg "github.com/anchore/syft/syft/pkg"
	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/internal/testdb"
)

// provider opens the cache of a database.
func provider(t *testing.T, result *testdb.Result) vulnerability.Provider {
	t.Helper()
	reader, err := v6.NewReader(v6.Config{DBDirPath: filepath.Join(result.Cache, "6")})
	if err != nil {
		t.Fatal(err)
	}
	p := v6.NewVulnerabilityProvider(reader)
	t.Cleanup(func() { p.Close() })
	return p
}

// constraints returns severity, fix state and affected versions of a package by vulnerability.
func constraints(t *testing.T, p vulnerability.Provider, criteria ...vulnerability.Criteria) map[string]string {
	t.Helper()
	found, err := p.FindVulnerabilities(criteria...)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, v := range found {
		described := strings.Join([]string{v.Metadata.Severity, string(v.Fix.State), v.Constraint.String()}, " ")
		if before := all[v.ID]; before != "" {
			described = before + "; " + described
		}
		all[v.ID] = described
	}
	return all
}

func TestBuildFromFiles(t *testing.T) {
	dir := fixture.Advisories(t, map[string]string{
		"debian-12.json": `[
			{"id": "CVE-1", "package": "app", "fixed": "1.2-3", "fixedOn": "2026-01-02", "severity": "High", "description": "d"},
			{"id": "CVE-2", "package": "app", "fixed": "", "severity": "Low", "description": "d"},
			{"id": "CVE-3", "package": "app", "fixed": "", "wontFix": true, "severity": "Negligible", "description": "d"}]`,
		"alpine-3.18.json":    `[{"id": "CVE-1", "package": "app", "fixed": "1.2-r0", "severity": "", "description": "d"}]`,
		"rhel-9.json":         `[{"id": "CVE-1", "package": "app", "fixed": "1:1.2-3.el9", "severity": "Medium", "description": "d"}]`,
		"cvss.json":           `{"CVE-1": {"vector": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", "score": 9.8, "severity": "Critical"}}`,
		"golang/GO-1.json":    `{"id": "GO-1", "aliases": ["CVE-1"], "affected": [{"package": {"name": "example.org/app"}, "ranges": [{"events": [{"introduced": "0"}, {"fixed": "1.2.0"}, {"introduced": "2.0.0"}]}]}]}`,
		"golang/GO-2.json":    `{"id": "GO-2", "aliases": ["CVE-2", "GHSA-x"], "affected": [{"package": {"name": "example.org/app"}, "ranges": [{"events": [{"introduced": "0"}]}], "ecosystem_specific": {"custom_ranges": [{"events": [{"introduced": "0"}, {"fixed": "0.9.0"}]}]}}]}`,
		"golang/IGNORED.md":   `not an advisory`,
		"README.md":           `not an advisory`,
		"golang/GO-std.json":  `{"id": "GO-std", "aliases": ["CVE-4"], "affected": [{"package": {"name": "stdlib"}, "ranges": [{"events": [{"introduced": "1.20.0-0"}, {"fixed": "1.20.3"}]}]}, {"package": {"name": "toolchain"}, "ranges": []}]}`,
		"golang/GO-back.json": `{"id": "GO-back", "withdrawn": "2026-01-01T00:00:00Z", "aliases": ["CVE-5"], "affected": [{"package": {"name": "example.org/back"}, "ranges": [{"events": [{"introduced": "0"}]}]}]}`,
	})
	advisories, err := testdb.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	result, err := testdb.Build(t.Context(), advisories, t.TempDir(), fixture.Built)
	if err != nil {
		t.Fatal(err)
	}
	p := provider(t, result)
	for what, c := range map[string]struct {
		criteria []vulnerability.Criteria
		want     map[string]string
	}{
		"Debian": {
			[]vulnerability.Criteria{search.ByPackageName("app"), search.ByDistro(*distro.New(distro.Debian, "12", ""))},
			map[string]string{"CVE-1": "High fixed < 1.2-3 (deb)", "CVE-2": "Low not-fixed none (unknown)", "CVE-3": "Negligible wont-fix none (unknown)"},
		},
		"Alpine, its severity from the rating": {
			[]vulnerability.Criteria{search.ByPackageName("app"), search.ByDistro(*distro.New(distro.Alpine, "3.18.2", ""))},
			map[string]string{"CVE-1": "Critical fixed < 1.2-r0 (apk)"},
		},
		"Rocky, by Red Hat's advisories": {
			[]vulnerability.Criteria{search.ByPackageName("app"), search.ByDistro(*distro.New(distro.RockyLinux, "9.2", ""))},
			map[string]string{"CVE-1": "Medium fixed < 1:1.2-3.el9 (rpm)"},
		},
		"Go modules, pseudo-versions included": {
			[]vulnerability.Criteria{search.ByPackageName("example.org/app"), search.ByEcosystem(syftpkg.Go, syftpkg.GoModulePkg)},
			map[string]string{"GO-1": "Critical fixed <1.2.0 (go); Critical not-fixed >=2.0.0 (go)", "GHSA-x": "Unknown fixed <0.9.0 (go)"},
		},
		"the standard library, by the functions that are affected": {
			[]vulnerability.Criteria{search.ByPackageName("stdlib"), search.ByEcosystem(syftpkg.Go, syftpkg.GoModulePkg)},
			map[string]string{"GO-std": "Unknown fixed >=1.20.0-0,<1.20.3 (go)"},
		},
		"withdrawn advisories": {
			[]vulnerability.Criteria{search.ByPackageName("example.org/back"), search.ByEcosystem(syftpkg.Go, syftpkg.GoModulePkg)},
			map[string]string{},
		},
	} {
		t.Run(what, func(t *testing.T) {
			if diff := cmp.Diff(c.want, constraints(t, p, c.criteria...)); diff != "" {
				t.Errorf("advisories (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing at all":          {map[string]string{"README.md": ""}, "no advisories"},
		"an unknown file":         {map[string]string{"debian.json": "[]"}, "the name must be"},
		"an unknown distribution": {map[string]string{"haiku-4.json": "[]"}, `"haiku" is not known`},
		"a misspelt field":        {map[string]string{"debian-12.json": `[{"id": "CVE-1", "package": "p", "fixedIn": "1"}]`}, "fixedIn"},
		"no package":              {map[string]string{"debian-12.json": `[{"id": "CVE-1"}]`}, "id and package"},
		"fixed and not":           {map[string]string{"debian-12.json": `[{"id": "CVE-1", "package": "p", "fixed": "1", "wontFix": true}]`}, "will not be fixed"},
		"an unknown severity":     {map[string]string{"debian-12.json": `[{"id": "CVE-1", "package": "p", "severity": "Important"}]`}, "Important"},
		"no OSV record":           {map[string]string{"golang/x.json": `{}`}, "not an OSV record"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := testdb.Read(fixture.Advisories(t, c.files))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestOneMoreAdvisory checks the directories of the demonstration's later steps: the first adds exactly one vulnerability, and the second
// adds its fix.
func TestOneMoreAdvisory(t *testing.T) {
	count := func(result *testdb.Result) map[string]string {
		all := map[string]string{}
		p := provider(t, result)
		for _, source := range []string{"openssl", "curl", "glibc", "expat", "zlib"} {
			for id, v := range constraints(t, p, search.ByPackageName(source), search.ByDistro(*distro.New(distro.Debian, "12", ""))) {
				all[source+" "+id] = v
			}
		}
		return all
	}
	before := count(fixture.Database(t, fixture.Built))
	after := count(fixture.Database(t, fixture.Built.Add(time.Hour), fixture.NextAdvisoriesDir()))
	before["openssl CVE-2099-10001"] = "Critical not-fixed none (unknown)"
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("advisories (-before and the new one +after):\n%s", diff)
	}
	fixed := count(fixture.Database(t, fixture.Built.Add(2*time.Hour), fixture.NextAdvisoriesDir(), fixture.FixAdvisoriesDir()))
	before["openssl CVE-2099-10001"] = "Critical fixed < 3.0.19-1~deb12u9 (deb)"
	if diff := cmp.Diff(before, fixed); diff != "" {
		t.Errorf("advisories (-before and the fix +after):\n%s", diff)
	}
}

// TestShippedAdvisories checks that the project's own advisories have what the demonstration needs.
func TestShippedAdvisories(t *testing.T) {
	p := provider(t, fixture.Database(t, fixture.Built))
	debian := map[string]int{}
	for _, source := range []string{"openssl", "curl", "glibc", "expat", "perl", "tar"} {
		for _, v := range constraints(t, p, search.ByPackageName(source), search.ByDistro(*distro.New(distro.Debian, "12", ""))) {
			severity, rest, _ := strings.Cut(v, " ")
			state, _, _ := strings.Cut(rest, " ")
			debian[severity+" "+state]++
		}
	}
	for _, want := range []string{"Critical fixed", "High fixed", "High not-fixed", "Medium fixed", "Low fixed", "Negligible not-fixed", "Unknown not-fixed"} {
		if debian[want] == 0 {
			t.Errorf("no advisory of Debian 12 is %s: %v", want, debian)
		}
	}
	var severities []string
	for module, least := range map[string]int{
		"golang.org/x/net": 6, "golang.org/x/crypto": 4, "golang.org/x/text": 2, "google.golang.org/protobuf": 1,
		"gopkg.in/yaml.v3": 1, "github.com/gin-gonic/gin": 2, "github.com/golang-jwt/jwt/v4": 2,
	} {
		found := constraints(t, p, search.ByPackageName(module), search.ByEcosystem(syftpkg.Go, syftpkg.GoModulePkg))
		if len(found) < least {
			t.Errorf("%d advisories of %s, want at least %d", len(found), module, least)
		}
		for _, v := range found {
			severity, _, _ := strings.Cut(v, " ")
			severities = append(severities, severity)
		}
	}
	for _, want := range []string{"Critical", "High", "Medium", "Unknown"} {
		if !slices.Contains(severities, want) {
			t.Errorf("no Go module has a vulnerability of severity %s", want)
		}
	}
}

// TestNoAdvisoryOfThePresentGo checks that a program of the current toolchain has no findings: every advisory of the standard library is
// fixed before Go 1.26.
func TestNoAdvisoryOfThePresentGo(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixture.AdvisoriesDir(), "golang", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d records, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var record struct {
			Affected []struct {
				Package struct{ Name string }
				Ranges  []struct {
					Events []map[string]string
				}
			}
		}
		if err := json.Unmarshal(raw, &record); err != nil {
			t.Fatal(err)
		}
		for _, a := range record.Affected {
			if a.Package.Name != "stdlib" {
				continue
			}
			events := a.Ranges[0].Events
			if fixed := events[len(events)-1]["fixed"]; fixed == "" || strings.HasPrefix(fixed, "1.26") {
				t.Errorf("%s: the standard library is affected up to %q, want it fixed before Go 1.26", filepath.Base(file), fixed)
			}
		}
	}
}
