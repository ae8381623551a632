package match_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// ownAdvisories are advisories for packages of these tests only. Alpine declares that its tool is not affected by one
// vulnerability and has a fix for another. Both are therefore hidden in the binary that the package owns.
var ownAdvisories = map[string]string{
	"alpine-3.18.json": `[
		{"id": "CVE-2023-39325", "package": "packaged-tool", "fixed": "0", "severity": "", "description": "never affected"},
		{"id": "CVE-2023-3978", "package": "packaged-tool", "fixed": "0.9-r0", "severity": "", "description": "fixed before"}
	]`,
	// Both affect every version of Go, but a program only if it contains the function.
	"golang/GO-2099-1.json": `{"id": "GO-2099-1", "aliases": ["CVE-2099-20001"], "affected": [{"package": {"name": "stdlib"},
		"ranges": [{"events": [{"introduced": "0"}, {"fixed": "1.999.0"}]}], "ecosystem_specific": {"imports": [{"path": "os", "symbols": ["ReadFile"]}]}}]}`,
	"golang/GO-2099-2.json": `{"id": "GO-2099-2", "aliases": ["CVE-2099-20002"], "affected": [{"package": {"name": "stdlib"},
		"ranges": [{"events": [{"introduced": "0"}, {"fixed": "1.999.0"}]}], "ecosystem_specific": {"imports": [{"path": "net/http", "symbols": ["Get"]}]}}]}`,
}

// program reads a file and does not use HTTP.
const program = `package main

import "os"

func main() {
	content, _ := os.ReadFile(os.Args[1])
	os.Stdout.Write(content)
}
`

// images returns the images of the tests with their minimum numbers of findings, so that two empty results do not count
// as equal.
func images(t *testing.T) map[string]struct {
	image   v1.Image
	atLeast int
} {
	type testImage = struct {
		image   v1.Image
		atLeast int
	}
	return map[string]testImage{
		"debian": {registrytest.Image(t, fixture.Debian()), 40},
		"alpine": {registrytest.Image(t, fixture.Alpine()), 10},
		"rocky":  {registrytest.Image(t, fixture.Rocky(t)), 6},
		"go": {registrytest.Image(t, registrytest.Files{"tool": fixture.GoBinary("go1.19.0", "example.org/tool",
			fixture.Module{Path: "golang.org/x/crypto", Version: "v0.14.0"},
			fixture.Module{Path: "gopkg.in/yaml.v3", Version: "v3.0.0"},
			fixture.Module{Path: "github.com/gin-gonic/gin", Version: "v1.7.0"},
			fixture.Module{Path: "github.com/golang-jwt/jwt/v4", Version: "v4.4.0"},
			fixture.Module{Path: "google.golang.org/protobuf", Version: "v1.28.0"})}), 10},
		"a Go program with a table of its functions": {registrytest.Image(t, registrytest.Files{"program": fixture.GoProgram(t, program)}), 1},
		// Distributions without a package manager keep one file for each package.
		"distroless": {registrytest.Image(t, fixture.OSRelease("debian", "12"), registrytest.Files{
			"var/lib/dpkg/status.d/openssl": "Package: libssl3\nSource: openssl\nVersion: 3.0.9-1\nArchitecture: amd64\nMaintainer: x\nDescription: x\n"}), 5},
		// Builds for several platforms declare wrong architectures, and runtimes still run such images.
		"mistaken architecture": {registrytest.WithPlatform(t, registrytest.Image(t, fixture.Debian()), v1.Platform{OS: "linux", Architecture: "s390x"}), 40},
		"no architecture":       {registrytest.WithPlatform(t, registrytest.Image(t, fixture.Alpine()), v1.Platform{OS: "linux"}), 10},
		"two layers":            {registrytest.Image(t, fixture.Debian(), fixture.Dpkg(fixture.Deb{Name: "curl", Version: "7.88.1-10"})), 5},
		"empty":                 {registrytest.Image(t, registrytest.Files{"hello": "world\n"}), 0},
	}
}

// contents catalogs an image through a registry, as the worker does.
func contents(t *testing.T, image v1.Image) *sbom.SBOM {
	t.Helper()
	server := registrytest.NewRegistry(t, nil)
	return cataloged(t, server.Host, server.Push(t, "test/image:1", image))
}

func cataloged(t *testing.T, host, reference string) *sbom.SBOM {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	log := slog.New(slog.DiscardHandler)
	puller := registry.Puller{Registries: []workerapi.Registry{{Host: host, PlainHTTP: true}}, Log: log, Now: time.Now}
	img, err := puller.Pull(t.Context(), []string{reference}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := catalog.Limits{}.SBOM(t.Context(), img, log)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// store installs and opens a database in the same way as the worker.
func store(t *testing.T, advisories ...string) *database.DB {
	t.Helper()
	return open(t, install(t, t.TempDir(), advisories...))
}

func open(t *testing.T, version database.Version) *database.DB {
	t.Helper()
	db, err := database.Open(version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func install(t *testing.T, dir string, advisories ...string) database.Version {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	publisher := fixture.Publish(t, fixture.Database(t, fixture.Built, advisories...))
	source, err := database.NewSource(publisher.URL, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	store, err := database.OpenStore(dir, clock.System{}, log)
	if err != nil {
		t.Fatal(err)
	}
	listing, err := source.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version, err := store.Install(t.Context(), source, listing)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// write writes a document to a file and returns its path.
func write(t *testing.T, document model.Document) string {
	t.Helper()
	raw, err := json.Marshal(&document)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sbom.json")
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func full(s *sbom.SBOM) model.Document {
	return syftjson.ToFormatModel(*s, syftjson.DefaultEncoderConfig())
}

// TestCompactInputGivesTheSameReport checks that the compact input gives exactly the report of the full SBOM as Grype's reader reads it.
func TestCompactInputGivesTheSameReport(t *testing.T) {
	db := store(t, fixture.Advisories(t, ownAdvisories))
	list, err := db.VulnerabilityIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range images(t) {
		t.Run(name, func(t *testing.T) {
			s := contents(t, c.image)
			want, err := match.SBOMWithGrypeReader(t.Context(), db, write(t, full(s)))
			if err != nil {
				t.Fatal(err)
			}
			if len(want.Findings) < c.atLeast {
				t.Errorf("%d findings, want at least %d", len(want.Findings), c.atLeast)
			}
			got, err := match.SBOM(t.Context(), db, input.Open(write(t, input.Compact(s))))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("report of the compact input (-full +compact):\n%s", diff)
			}
			for _, f := range got.Findings {
				for _, id := range append([]string{f.ID}, f.Aliases...) {
					if !strings.Contains("\n"+list, "\n"+strings.ToUpper(id)+"\n") {
						t.Errorf("%s is not in the list of the database's IDs", id)
					}
				}
			}
		})
	}
}

// TestSameFindingsAsTheCommandLine checks that the findings are those of the grype command of the same version: for the image, which
// the command catalogs itself, for the full and for the compact SBOM.
func TestSameFindingsAsTheCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the grype command, which takes minutes the first time; run without -short")
	}
	grype := commandLine(t)
	advisories := fixture.Advisories(t, ownAdvisories)
	db := store(t, advisories)
	cache := fixture.Database(t, fixture.Built, advisories).Cache
	for name, c := range images(t) {
		t.Run(name, func(t *testing.T) {
			server := registrytest.NewRegistry(t, nil)
			reference := server.Push(t, "test/image:1", c.image)
			s := cataloged(t, server.Host, reference)
			compact := write(t, input.Compact(s))
			report, err := match.SBOM(t.Context(), db, input.Open(compact))
			if err != nil {
				t.Fatal(err)
			}
			// With --platform, the command trusts the configuration and refuses a wrong one. Without it, the command scans the image.
			asked := []string{"--platform", "linux/amd64"}
			if config, err := c.image.ConfigFile(); err != nil || config.Architecture != "amd64" {
				asked = nil
			}
			for what, target := range map[string]string{
				"image": "oci-registry:" + reference, "full SBOM": "sbom:" + write(t, full(s)), "compact SBOM": "sbom:" + compact,
			} {
				want, ignored := printed(t, grype, cache, target, asked...)
				if diff := cmp.Diff(want, fixture.Lines(report.Findings)); diff != "" {
					t.Errorf("findings (-grype for the %s +worker):\n%s", what, diff)
				}
				if report.Ignored != ignored {
					t.Errorf("%d matches ignored, grype ignores %d for the %s", report.Ignored, ignored, what)
				}
			}
		})
	}
}

var (
	buildOnce sync.Once
	built     string
	buildErr  error
)

// commandLine builds the grype command that go.mod pins as a tool, unless GRYPE_COMMAND names one.
func commandLine(t *testing.T) string {
	t.Helper()
	if given := os.Getenv("GRYPE_COMMAND"); given != "" {
		return given
	}
	buildOnce.Do(func() {
		dir, err := os.MkdirTemp("", "grype-command-")
		if err != nil {
			buildErr = err
			return
		}
		built = filepath.Join(dir, "grype")
		// The same build settings as for this test reuse most of the build cache.
		command := exec.Command("go", "build", "-o", built, "github.com/anchore/grype/cmd/grype")
		if out, err := command.CombinedOutput(); err != nil {
			buildErr = err
			t.Logf("%s", out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return built
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

// printed runs the command and returns its output as fixture.ParseGrypeOutput does.
func printed(t *testing.T, grype, cache, target string, more ...string) (matches []string, ignored int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), grype, append(more, target, "-q", "-o", "json")...)
	command.Env = append(os.Environ(), "GRYPE_DB_CACHE_DIR="+cache, "GRYPE_DB_AUTO_UPDATE=false", "GRYPE_DB_VALIDATE_AGE=false",
		"GRYPE_CHECK_FOR_APP_UPDATE=false",
		"GRYPE_REGISTRY_INSECURE_USE_HTTP=true", "XDG_CONFIG_HOME="+t.TempDir(), "HOME="+t.TempDir())
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return fixture.ParseGrypeOutput(t, out)
}

// TestRulesAcrossPackages checks that the rules about several packages are applied. Without them, the tests above would compare nothing.
func TestRulesAcrossPackages(t *testing.T) {
	db := store(t, fixture.Advisories(t, ownAdvisories))
	report := func(t *testing.T, files registrytest.Files) *workerapi.Report {
		t.Helper()
		r, err := match.SBOM(t.Context(), db, input.Open(write(t, input.Compact(contents(t, registrytest.Image(t, files))))))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	found := func(r *workerapi.Report, id, path string) bool {
		return slices.ContainsFunc(r.Findings, func(f workerapi.Finding) bool {
			return (f.ID == id || slices.Contains(f.Aliases, id)) &&
				slices.ContainsFunc(f.Locations, func(l workerapi.Location) bool { return l.Path == path })
		})
	}
	t.Run("a Debian package answers for a module in a file it owns, when their versions agree", func(t *testing.T) {
		r := report(t, fixture.Debian())
		if !found(r, "CVE-2023-39325", "/usr/local/bin/tool") || found(r, "CVE-2023-39325", "/usr/bin/packaged-tool") {
			t.Error("want the finding in /usr/local/bin/tool and not in /usr/bin/packaged-tool")
		}
		if !found(r, "CVE-2022-32149", "/usr/bin/packaged-tool") {
			t.Error("want the module with another version than the package to stay in /usr/bin/packaged-tool")
		}
	})
	t.Run("Alpine's word that its package is not affected counts for the files it owns", func(t *testing.T) {
		r := report(t, fixture.Alpine())
		for _, id := range []string{"CVE-2023-39325", "CVE-2023-3978"} {
			if !found(r, id, "/usr/local/bin/tool") || found(r, id, "/usr/bin/packaged-tool") {
				t.Errorf("%s: want the finding in /usr/local/bin/tool and not in /usr/bin/packaged-tool", id)
			}
		}
		if !found(r, "CVE-2023-45288", "/usr/bin/packaged-tool") {
			t.Error("want what Alpine says nothing of to stay in /usr/bin/packaged-tool")
		}
	})
	t.Run("a Go program has the vulnerabilities of the functions that are in it", func(t *testing.T) {
		r := report(t, registrytest.Files{"program": fixture.GoProgram(t, program)})
		if !found(r, "CVE-2099-20001", "/program") || found(r, "CVE-2099-20002", "/program") {
			t.Error("want the finding in os.ReadFile and not that in net/http.Get")
		}
	})
	t.Run("the kernel's vulnerabilities do not count in its headers", func(t *testing.T) {
		r := report(t, fixture.Debian())
		if r.Ignored != 1 || found(r, "CVE-2024-1086", "/var/lib/dpkg/status") {
			t.Errorf("%d matches ignored, want 1: CVE-2024-1086 in linux-libc-dev", r.Ignored)
		}
	})
	t.Run("an RPM module is not affected by the plain package's advisories, epochs count", func(t *testing.T) {
		r := report(t, fixture.Rocky(t))
		if found(r, "CVE-2022-3715", "/var/lib/rpm/rpmdb.sqlite") {
			t.Error("bash of a module has a finding of the plain package")
		}
		if !found(r, "CVE-2023-2650", "/var/lib/rpm/rpmdb.sqlite") || r.Distro != "rocky 9.2" {
			t.Errorf("distro %q, want rocky 9.2 with CVE-2023-2650 in openssl-libs", r.Distro)
		}
	})
}
