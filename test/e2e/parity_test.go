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
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// grypeVersion is the version that the worker links. The command must have the same version.
const grypeVersion = "0.121.2"

// atLeast is the minimum number of matches in each image, so that empty results do not count as equal.
var atLeast = map[string]int{images.Web: 40, images.API: 10, images.Migrate: 3, images.Cache: 8, images.Rocky: 6, images.Bastion: 6, images.Static: 0}

// The store has the same matches as the grype command prints for the same image and database.
func TestParity(t *testing.T) {
	t.Parallel()
	grype := grypeCommand(t)
	ns := namespace(t, "parity")
	must(t, env.RunPods(t.Context(), ns, scannedImages()...))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, int32(len(atLeast)), 0))
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

// scannedImages returns pods that run every image with known content.
func scannedImages() []scenario.Pod {
	return []scenario.Pod{
		{Name: "web", Image: env.Reference(images.Web)},
		{Name: "api", Image: env.Reference(images.API), Init: env.Reference(images.Migrate)},
		{Name: "cache", Image: env.Reference(images.Cache)},
		{Name: "rocky", Image: env.Reference(images.Rocky)},
		{Name: "bastion", Image: env.Reference(images.Bastion)},
		{Name: "static", Image: env.Reference(images.Static)},
	}
}

// imageNamed returns the stored image with a reference.
func imageNamed(t *testing.T, stored []scenario.ImageFindings, name string) scenario.ImageFindings {
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
	return scenario.ImageFindings{}
}

// match is one match at one path, with all compared properties.
type match struct{ Vulnerability, Package, Version, Type, Path, FixState, FixVersions, Severity string }

func sorted(matches []match) []match {
	slices.SortFunc(matches, func(a, b match) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(matches)
}

// expand undoes the aggregation of the store: of advisories of one vulnerability, and of paths of one package.
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

// grypeCLI is the grype command with the demo's database.
type grypeCLI struct {
	file string
	env  []string
}

// grypeCommand returns the command that GRYPE names. Another version than grypeVersion is an error.
func grypeCommand(t *testing.T) grypeCLI {
	t.Helper()
	g := grypeCLI{file: os.Getenv("GRYPE"), env: append(os.Environ(),
		"GRYPE_DB_CACHE_DIR="+env.Database.Cache, "GRYPE_DB_AUTO_UPDATE=false", "GRYPE_DB_VALIDATE_AGE=false",
		"GRYPE_CHECK_FOR_APP_UPDATE=false", "GRYPE_REGISTRY_INSECURE_USE_HTTP=true",
		// The configuration and the cache of the machine's user are not used.
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

// matches returns the matches that the command prints for an image in the registry.
func (g grypeCLI) matches(t *testing.T, reference string) []match {
	t.Helper()
	platform, err := env.Kubectl(t.Context(), "get", "nodes", "--output", "jsonpath={.items[0].status.nodeInfo.operatingSystem}/{.items[0].status.nodeInfo.architecture}")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, g.file, "registry:"+reference, "--platform", platform, "--output", "json")
	command.Env = g.env
	var out, stderr bytes.Buffer
	command.Stdout, command.Stderr = &out, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("grype %s: %v\n%s", reference, err, stderr.String())
	}
	return readGrype(t, out.Bytes())
}

// readGrype parses the document that grype prints (https://github.com/anchore/grype, grype/presenter/models/document.go).
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
