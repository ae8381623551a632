package e2e

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/story"
)

// grypeVersion is what the worker links; the command must be the same to be compared with.
const grypeVersion = "0.121.2"

// atLeast is how many matches an image must have, so that nothing is equal only because it is empty.
var atLeast = map[string]int{images.Web: 40, images.API: 10, images.Migrate: 3, images.Cache: 8, images.Rocky: 6, images.Bastion: 6, images.Static: 0}

// What the store has is what the grype command prints for the same image and the same database, match by match.
func TestParity(t *testing.T) {
	grype := grypeCommand(t)
	ns := namespace(t, "parity")
	must(t, env.RunPods(t.Context(), ns, scannedImages()...))
	must(t, env.MakeScanner(t.Context(), ns, story.ScannerSettings{}))
	must(t, env.Covered(t.Context(), ns, int32(len(atLeast)), 0))
	stored, err := env.Findings(t.Context(), ns)
	must(t, err)
	for _, name := range images.Scanned() {
		t.Run(path.Base(name), func(t *testing.T) {
			img := imageNamed(t, stored, name)
			want := grype.matches(t, strings.TrimSuffix(img.References[0], ":1.0")+"@"+img.Digest)
			t.Logf("grype prints %d matches", len(want))
			if len(want) < atLeast[name] {
				t.Errorf("grype prints %d matches, expected at least %d", len(want), atLeast[name])
			}
			if diff := cmp.Diff(want, expand(img.Findings)); diff != "" {
				t.Errorf("matches (-grype +operator):\n%s", diff)
			}
		})
	}
}

// scannedImages are pods that run every image of which a test knows what is in it.
func scannedImages() []story.Pod {
	return []story.Pod{
		{Name: "web", Image: env.Reference(images.Web)},
		{Name: "api", Image: env.Reference(images.API), Init: env.Reference(images.Migrate)},
		{Name: "cache", Image: env.Reference(images.Cache)},
		{Name: "rocky", Image: env.Reference(images.Rocky)},
		{Name: "bastion", Image: env.Reference(images.Bastion)},
		{Name: "static", Image: env.Reference(images.Static)},
	}
}

// imageNamed finds the image of a reference among what the store has.
func imageNamed(t *testing.T, stored []story.ImageFindings, name string) story.ImageFindings {
	t.Helper()
	for _, img := range stored {
		if slices.Contains(img.References, env.Reference(name)) {
			if img.DataVersion == "" {
				t.Fatalf("the store has no report of %s", name)
			}
			return img
		}
	}
	t.Fatalf("the store does not know %s", name)
	return story.ImageFindings{}
}

// match is one match in one place, with all that must be equal.
type match struct{ Vulnerability, Package, Version, Type, Path, FixState, FixVersions, Severity string }

func sorted(matches []match) []match {
	slices.SortFunc(matches, func(a, b match) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(matches)
}

// expand undoes what the store unites: advisories of one vulnerability, places of one package.
func expand(findings []finding.Finding) []match {
	matches := []match{}
	for _, f := range findings {
		for _, a := range f.Advisories {
			for _, path := range f.Paths {
				matches = append(matches, match{
					Vulnerability: a.ID, Package: f.Package.Name, Version: f.Package.Version, Type: f.Package.Type, Path: path,
					FixState: a.FixState, FixVersions: versions(a.FixVersions), Severity: a.Severity,
				})
			}
		}
	}
	return sorted(matches)
}

func versions(all []string) string {
	all = slices.Clone(all)
	slices.Sort(all)
	return strings.Join(all, " ")
}

// grypeCLI is the grype command with the story's database.
type grypeCLI struct {
	file string
	env  []string
}

// grypeCommand takes the command from GRYPE and refuses another version.
func grypeCommand(t *testing.T) grypeCLI {
	t.Helper()
	g := grypeCLI{file: os.Getenv("GRYPE"), env: append(os.Environ(),
		"GRYPE_DB_CACHE_DIR="+env.Database.Cache, "GRYPE_DB_AUTO_UPDATE=false", "GRYPE_DB_VALIDATE_AGE=false",
		"GRYPE_CHECK_FOR_APP_UPDATE=false", "GRYPE_REGISTRY_INSECURE_USE_HTTP=true",
		// Neither a configuration nor a cache of the machine's user takes part.
		"HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir(),
	)}
	if g.file == "" {
		t.Fatal("GRYPE does not name the grype command; run this by make e2e, which builds it")
	}
	info, err := buildinfo.ReadFile(g.file)
	must(t, err)
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path == "github.com/anchore/grype" && module.Version == "v"+grypeVersion {
			return g
		}
	}
	t.Fatalf("%s is not grype %s", g.file, grypeVersion)
	return grypeCLI{}
}

// matches are what the command prints about an image in the registry.
func (g grypeCLI) matches(t *testing.T, reference string) []match {
	t.Helper()
	platform, err := env.Kubectl(t.Context(), "get", "nodes", "--output", "jsonpath={.items[0].status.nodeInfo.operatingSystem}/{.items[0].status.nodeInfo.architecture}")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, g.file, "registry:"+reference, "--platform", platform, "--output", "json")
	command.Env = g.env
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	if err := command.Run(); err != nil {
		t.Fatalf("grype %s: %v\n%s", reference, err, complaints.String())
	}
	return readGrype(t, out.Bytes())
}

// readGrype reads the document that grype prints (https://github.com/anchore/grype, grype/presenter/models/document.go).
func readGrype(t *testing.T, raw []byte) []match {
	t.Helper()
	var document struct {
		Matches []struct {
			Vulnerability struct {
				ID, Severity string
				Fix          struct {
					Versions []string
					State    string
				}
			}
			Artifact struct {
				Name, Version, Type string
				Locations           []struct{ Path string }
			}
		}
	}
	must(t, json.Unmarshal(raw, &document))
	matches := []match{}
	for _, m := range document.Matches {
		for _, location := range m.Artifact.Locations {
			matches = append(matches, match{
				Vulnerability: m.Vulnerability.ID, Package: m.Artifact.Name, Version: m.Artifact.Version, Type: m.Artifact.Type, Path: location.Path,
				FixState: m.Vulnerability.Fix.State, FixVersions: versions(m.Vulnerability.Fix.Versions), Severity: m.Vulnerability.Severity,
			})
		}
	}
	return sorted(matches)
}
