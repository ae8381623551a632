package match_test

import (
	"slices"
	"testing"

	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestEarlierMatchesChangeNothing checks that cached lookups and matches of one image do not change the report of another: a similar one
// with other versions, another release or another distribution, the same image again, or with other layers and IDs of packages.
func TestEarlierMatchesChangeNothing(t *testing.T) {
	openssl := func(version string) registrytest.Files {
		return fixture.Dpkg(fixture.Deb{Name: "libssl3", Version: version, Source: "openssl"}, fixture.Deb{Name: "curl", Version: "7.88.1-10"})
	}
	files := map[string]*input.File{}
	add := func(name string, image v1.Image) {
		document := input.Compact(contents(t, image))
		files[name] = input.Open(write(t, document))
		files[name+", other IDs"] = input.Open(write(t, withOtherIDs(document)))
	}
	for name, c := range images(t) {
		add(name, c.image)
	}
	for name, image := range map[string]registrytest.Files{
		"old":             fixture.Merge(fixture.OSRelease("debian", "12"), openssl("3.0.9-1")),
		"newer":           fixture.Merge(fixture.OSRelease("debian", "12"), openssl("3.0.13-1~deb12u1")),
		"another release": fixture.Merge(fixture.OSRelease("debian", "11"), openssl("3.0.9-1")),
		"no release":      openssl("3.0.9-1"),
		"old go":          {"tool": fixture.GoBinary("go1.19.0", "example.org/tool", fixture.Module{Path: "golang.org/x/net", Version: "v0.7.0"})},
		"newer go":        {"tool": fixture.GoBinary("go1.22.0", "example.org/tool", fixture.Module{Path: "golang.org/x/net", Version: "v0.17.0"})},
	} {
		add(name, registrytest.Image(t, image))
	}
	version := install(t, t.TempDir(), fixture.Advisories(t, ownAdvisories))
	alone := map[string]*workerapi.Report{}
	different := map[int]bool{}
	for name, file := range files {
		report, err := match.SBOMWithoutCache(t.Context(), open(t, version), file)
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

// withOtherIDs returns an equal document in which packages have other IDs and are in other layers.
func withOtherIDs(document model.Document) model.Document {
	document.Artifacts, document.ArtifactRelationships = slices.Clone(document.Artifacts), slices.Clone(document.ArtifactRelationships)
	for i := range document.Artifacts {
		p := &document.Artifacts[i]
		p.ID = "other-" + p.ID
		p.Locations = slices.Clone(p.Locations)
		for k := range p.Locations {
			p.Locations[k].FileSystemID = "sha256:other"
		}
	}
	for i := range document.ArtifactRelationships {
		r := &document.ArtifactRelationships[i]
		r.Parent, r.Child = "other-"+r.Parent, "other-"+r.Child
	}
	return document
}
