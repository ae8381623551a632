package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Bounds of the worker relative to the stock command, in time and in memory.
const (
	maxTimeRatio   = 1.3
	maxMemoryRatio = 1.3
	// catalogRounds is how often each of the two runs, in turns.
	catalogRounds = 7
)

// catalogImage is an image to catalog: one of the demonstration's, which cover all kinds of packages, or a large one.
type catalogImage struct {
	name  string
	image v1.Image
}

func catalogImages(t *testing.T, s settings) []catalogImage {
	t.Helper()
	saved := filepath.Join(s.bin, "fixtures", "images")
	return []catalogImage{
		{"Debian 12, a Go program", load(t, filepath.Join(saved, "shop_web"))},
		{"Alpine 3.18, a Go program", load(t, filepath.Join(saved, "shop_cache"))},
		{"Rocky Linux 9, a Go program", load(t, filepath.Join(saved, "test_rocky"))},
		{"a Go program with modules", load(t, filepath.Join(saved, "shop_api"))},
		{"Debian 12, full, with two large Go programs", large(t, s)},
	}
}

// load reads an image that the demonstration has saved in dir.
func load(t *testing.T, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatalf("make fixture-images: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// large returns an image with many packages, and with programs that link hundreds of modules.
func large(t *testing.T, s settings) v1.Image {
	t.Helper()
	programs := registrytest.Files{}
	for _, name := range []string{"scanner-grype", "kwok"} {
		raw, err := os.ReadFile(s.program(name))
		if err != nil {
			t.Fatal(err)
		}
		programs["usr/local/bin/"+name] = string(raw)
	}
	return registrytest.Image(t, bases(t)[1].files, programs)
}

// TestCatalog compares the worker with the stock command on the same images, from the same local registry.
func TestCatalog(t *testing.T) {
	s := setUp(t)
	registry := registrytest.NewRegistry(t, nil)
	rows := [][]string{{"image", "packages", "`syft`: time", "worker: time", "times", "`syft`: peak memory", "worker: peak memory", "times"}}
	var bounds []bound
	for i, c := range catalogImages(t, s) {
		reference := registry.Push(t, fmt.Sprintf("bench/image%d:1", i), c.image)
		var stock, worker []run
		var want, got []string
		for range catalogRounds {
			var result run
			result, want = s.runSyft(t, reference)
			stock = append(stock, result)
			result, got = s.runCatalog(t, registry.Host, reference)
			worker = append(worker, result)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
			t.Errorf("packages of %s (-syft +worker):\n%s", c.name, diff)
		}
		time, memory := ratio(worker, stock), float64(spreadOf(peaks(worker)).median)/float64(spreadOf(peaks(stock)).median)
		rows = append(rows, []string{
			c.name, fmt.Sprint(len(want)), seconds(spreadOf(walls(stock))), seconds(spreadOf(walls(worker))), fmt.Sprintf("%.2f", time),
			mebibytes(spreadOf(peaks(stock))), mebibytes(spreadOf(peaks(worker))), fmt.Sprintf("%.2f", memory),
		})
		bounds = append(bounds, bound{
			fmt.Sprintf("%s: at most %.1f times the time and %.1f times the memory of the stock command, the same packages: %.2f, %.2f, %d packages",
				c.name, maxTimeRatio, maxMemoryRatio, time, memory, len(want)),
			time <= maxTimeRatio && memory <= maxMemoryRatio && slices.Equal(want, got),
		})
	}
	s.write(t, section{
		Text: fmt.Sprintf("`scanner-grype catalog` beside `syft scan registry:IMAGE -o syft-json` of the same version, each a process of its own, in turns, %d times. "+
			"The registry is on this machine. The worker also makes the compact match input, compresses both documents and uploads them over TLS. "+
			"Figures are the median with the smallest and the largest.\n\n", catalogRounds) + table(rows...),
		Bounds: bounds,
	})
}

// runSyft runs the stock command as documented, but with the functions of Go programs, since the worker records them as well.
func (s settings) runSyft(t *testing.T, reference string) (run, []string) {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out.json")
	took := s.measure(t, program{
		args: []string{s.program("syft"), "scan", "registry:" + reference, "-q", "-o", "syft-json=" + out},
		environment: []string{
			"SYFT_CHECK_FOR_APP_UPDATE=false", "SYFT_REGISTRY_INSECURE_USE_HTTP=true", "SYFT_GOLANG_CAPTURE_SYMBOLS=all", "XDG_CONFIG_HOME=" + dir, "XDG_CACHE_HOME=" + dir, "HOME=" + dir, "TMPDIR=" + dir,
		},
		core: -1,
	})
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return run{wall: took.Wall, usage: took}, packages(t, raw)
}

// runCatalog runs the worker in the same way as a Job.
func (s settings) runCatalog(t *testing.T, host, reference string) (run, []string) {
	t.Helper()
	server := fixture.NewIngest(t)
	took := s.measureCatalog(t, server, fmt.Sprintf(`[{"host": %q, "plainHTTP": true}]`, host), reference)
	raw, err := fixture.Decompress(server.SBOM)
	if err != nil {
		t.Fatal(err)
	}
	return run{wall: took.Wall, usage: took}, packages(t, raw)
}

// measureCatalog runs the worker in the same way as a Job, which uploads to a server. registries is the configuration of registries.
func (s settings) measureCatalog(t *testing.T, to *fixture.Ingest, registries, reference string, args ...string) usage {
	t.Helper()
	return s.measure(t, program{
		args: append([]string{s.program("scanner-grype"), "catalog", "--image", reference, "--platform", "linux/amd64"}, args...),
		environment: []string{
			workerapi.EnvServer + "=" + to.URL, workerapi.EnvServerCA + "=" + to.CA, workerapi.EnvRegistries + "=" + registries, "TMPDIR=" + t.TempDir(),
		},
		core: -1, asWorker: true,
	})
}

// packages returns the packages of a document in a form that can be compared. It omits those without a version, as Grype does.
func packages(t *testing.T, raw []byte) []string {
	t.Helper()
	var document model.Document
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range document.Artifacts {
		// The command writes UNKNOWN for a missing version.
		if p.Version == "" || p.Version == "UNKNOWN" {
			continue
		}
		var places []string
		for _, l := range p.Locations {
			places = append(places, l.RealPath)
		}
		slices.Sort(places)
		all = append(all, strings.Join([]string{string(p.Type), p.Name, p.Version, p.PURL, strings.Join(places, " ")}, " | "))
	}
	slices.Sort(all)
	return all
}
