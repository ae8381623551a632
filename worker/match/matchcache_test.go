package match_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestEarlierMatchesChangeNothing checks that cached lookups of one image do not change the report of a similar one: with other
// versions, another release or another distribution, or the same image again.
func TestEarlierMatchesChangeNothing(t *testing.T) {
	openssl := func(version string) registrytest.Files {
		return fixture.Dpkg(fixture.Deb{Name: "libssl3", Version: version, Source: "openssl"}, fixture.Deb{Name: "curl", Version: "7.88.1-10"})
	}
	files := map[string]*input.File{}
	for name, image := range map[string]registrytest.Files{
		"debian": fixture.Debian(), "alpine": fixture.Alpine(), "rocky": fixture.Rocky(t),
		"old":             fixture.Merge(fixture.OSRelease("debian", "12"), openssl("3.0.9-1")),
		"newer":           fixture.Merge(fixture.OSRelease("debian", "12"), openssl("3.0.13-1~deb12u1")),
		"another release": fixture.Merge(fixture.OSRelease("debian", "11"), openssl("3.0.9-1")),
		"no release":      openssl("3.0.9-1"),
		"go":              {"tool": fixture.GoBinary("go1.19.0", "example.org/tool", fixture.Module{Path: "golang.org/x/net", Version: "v0.7.0"})},
		"newer go":        {"tool": fixture.GoBinary("go1.22.0", "example.org/tool", fixture.Module{Path: "golang.org/x/net", Version: "v0.17.0"})},
	} {
		files[name] = input.Open(write(t, input.Compact(contents(t, registrytest.Image(t, image)))))
	}
	version := install(t, t.TempDir(), fixture.Advisories(t, ownAdvisories))
	alone := map[string]*workerapi.Report{}
	different := map[int]bool{}
	for name, file := range files {
		report, err := match.SBOM(t.Context(), open(t, version), file)
		if err != nil {
			t.Fatal(err)
		}
		alone[name] = report
		different[len(report.Findings)] = true
	}
	if len(different) < 5 {
		t.Fatalf("the images have %d different numbers of findings; with fewer than 5 this shows nothing", len(different))
	}
	db := open(t, version)
	for round := range 3 {
		// The iteration order of a map differs each time.
		for name, file := range files {
			got, err := match.SBOM(t.Context(), db, file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(alone[name], got); diff != "" {
				t.Errorf("round %d, %s (-alone +after others):\n%s", round, name, diff)
			}
		}
	}
}
