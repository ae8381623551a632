package bench

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/internal/testdb"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// The bounds, and the size of the database, which is about that of the Grype project's published one.
const (
	databaseBytes = 950_000_000
	minSpeedup    = 20.0
	maxEach       = 40 * time.Millisecond
	// core is the processor that worker and command are confined to.
	core = 0
	// rounds is how often the worker matches all SBOMs. In each round, the command matches its share of them, so that a slow minute
	// of the machine affects both.
	rounds = 3
)

// sbom holds the documents of one image as the worker uploads them.
type sbom struct {
	digest, base string
	packages     int
	// full is the file with the syft-json document.
	full string
	// Both documents as sent.
	fullSent, compactSent []byte
	// Sizes before compression.
	fullBytes, compactBytes int
}

// TestRematch measures matching every SBOM again after a change of the database.
func TestRematch(t *testing.T) {
	s := setUp(t)
	sboms := s.catalogAll(t)
	database, source := publish(t)
	dir := t.TempDir()
	installed := s.runMatch(t, source, dir, nil, nil)

	var compact, full []run
	var stock run
	var want, got []outcome
	for round := range rounds {
		var result run
		result, got = s.matchAll(t, source, dir, sboms, func(s sbom) []byte { return s.compactSent })
		compact = append(compact, result)
		result, _ = s.matchAll(t, source, dir, sboms, func(s sbom) []byte { return s.fullSent })
		full = append(full, result)
		result, outcomes := s.runStock(t, database.Cache, sboms[round*len(sboms)/rounds:(round+1)*len(sboms)/rounds])
		stock, want = stock.plus(result), append(want, outcomes...)
	}
	different, findings := 0, 0
	for i := range sboms {
		findings += len(want[i].matches)
		if diff := cmp.Diff(want[i], got[i], cmp.AllowUnexported(outcome{})); diff != "" {
			different++
			t.Errorf("findings of %s on %s (-grype +worker):\n%s", sboms[i].digest, sboms[i].base, diff)
		}
	}
	// Processor time, which other load on the machine changes less than the time that passes.
	taken := spreadOf(cpus(compact)).median
	each, faster := taken/time.Duration(len(sboms)), float64(stock.CPU)/float64(taken)
	s.write(t, section{
		Text: describe(sboms, findings, database, installed, stock, compact, full),
		Bounds: []bound{
			{fmt.Sprintf("at most %d ms of processor time for each SBOM: %d ms", maxEach.Milliseconds(), each.Milliseconds()), each <= maxEach},
			{fmt.Sprintf("at least %.0f times less processor time than the stock command, once per SBOM: %.1f times", minSpeedup, faster), faster >= minSpeedup},
			{fmt.Sprintf("identical findings: %d of %d SBOMs differ, %d findings compared", different, len(sboms), findings), different == 0 && findings > len(sboms)},
			{fmt.Sprintf("the database file has at least %d MB: %d MB", databaseBytes/1_000_000, fileSize(t, database)/1_000_000), fileSize(t, database) >= databaseBytes},
			{fmt.Sprintf("SBOMs with digests of their own: %d", distinct(sboms)), distinct(sboms) == perBase*len(bases(t))},
		},
	})
}

// catalogAll generates the images and catalogs each through a registry, as the worker does.
func (s settings) catalogAll(t *testing.T) []sbom {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	host := registrytest.NewRegistry(t, nil)
	dir := t.TempDir()
	all := bases(t)
	sboms := make([]sbom, len(all)*perBase)
	// In parallel, since nothing is measured here.
	var group sync.WaitGroup
	next := make(chan int)
	for range 2 {
		group.Go(func() {
			for i := range next {
				b := all[i/perBase]
				reference := host.Push(t, fmt.Sprintf("bench/image%d:1", i), b.image(t, i%perBase))
				sboms[i] = catalogOne(t, host.Host, reference, filepath.Join(dir, fmt.Sprintf("%d.json", i)))
				sboms[i].base = b.name
			}
		})
	}
	for i := range sboms {
		next <- i
	}
	close(next)
	group.Wait()
	return sboms
}

// catalogOne catalogs one image.
func catalogOne(t *testing.T, host, reference, file string) sbom {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	puller := registry.Puller{Registries: []workerapi.Registry{{Host: host, PlainHTTP: true}}, Log: log, Now: time.Now}
	img, err := puller.Pull(t.Context(), []string{reference}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Error(err)
		return sbom{}
	}
	contents, err := catalog.Limits{}.SBOM(t.Context(), img, log)
	if err != nil {
		t.Error(err)
		return sbom{}
	}
	result := sbom{digest: img.Digest.String(), packages: contents.Artifacts.Packages.PackageCount(), full: file}
	raw := encoded(t, syftjson.ToFormatModel(*contents, syftjson.DefaultEncoderConfig()))
	result.fullBytes, result.fullSent = len(raw), fixture.Compress(raw)
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Error(err)
	}
	raw = encoded(t, input.Compact(contents))
	result.compactBytes, result.compactSent = len(raw), fixture.Compress(raw)
	return result
}

func encoded(t *testing.T, document model.Document) []byte {
	t.Helper()
	raw, err := json.Marshal(&document)
	if err != nil {
		t.Error(err)
	}
	return raw
}

// publish builds the database and serves it in the same way as the Grype project.
func publish(t *testing.T) (database *testdb.Result, source string) {
	t.Helper()
	advisories, err := testdb.Read(fixture.AdvisoriesDir(), writeOldAdvisories(t))
	if err != nil {
		t.Fatal(err)
	}
	if database, err = testdb.BuildPadded(t.Context(), advisories, t.TempDir(), fixture.Built, databaseBytes); err != nil {
		t.Fatal(err)
	}
	return database, fixture.Publish(t, database).URL
}

// run is one pass over all SBOMs.
type run struct {
	// wall is the time from the start of the first process to the last result.
	wall time.Duration
	usage
}

// plus returns the sum of two passes over different SBOMs.
func (r run) plus(other run) run {
	r.wall += other.wall
	r.CPU += other.CPU
	r.PeakRSS = max(r.PeakRSS, other.PeakRSS)
	return r
}

// outcome is the result for one SBOM.
type outcome struct {
	matches []string
	ignored int
}

// matchAll runs the worker for all SBOMs, in the form that choose returns.
func (s settings) matchAll(t *testing.T, source, dir string, sboms []sbom, choose func(sbom) []byte) (run, []outcome) {
	t.Helper()
	inputs := map[string][]byte{}
	for i, sbom := range sboms {
		inputs[fmt.Sprint(i)] = choose(sbom)
	}
	outcomes := make([]outcome, len(sboms))
	result := s.runMatch(t, source, dir, inputs, func(lease string, report workerapi.Report) {
		var i int
		if _, err := fmt.Sscan(lease, &i); err != nil {
			t.Fatal(err)
		}
		outcomes[i] = outcome{matches: fixture.Lines(report.Findings), ignored: report.Ignored}
	})
	return result, outcomes
}

// runMatch runs the worker until it has no work left: it receives each input, decodes and matches it, and uploads a report.
func (s settings) runMatch(t *testing.T, source, dir string, inputs map[string][]byte, each func(lease string, report workerapi.Report)) run {
	t.Helper()
	server := fixture.NewIngest(t)
	for lease, input := range inputs {
		server.AddLease(lease, input)
	}
	var last time.Time
	server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		// Without a report, the first request counts: it says that the database is installed.
		if r.Method == http.MethodPut || last.IsZero() {
			last = time.Now()
		}
		return false
	}
	start := time.Now()
	took := s.measure(t, program{
		args:        []string{s.program("scanner-grype"), "match", "--database-url", source, "--database-dir", dir, "--idle-timeout", "1s"},
		environment: []string{workerapi.EnvServer + "=" + server.URL, workerapi.EnvServerCA + "=" + server.CA},
		core:        core, asWorker: true,
	})
	for lease, failure := range server.Failures {
		t.Errorf("SBOM %s: %+v", lease, failure)
	}
	if len(server.Reports) != len(inputs) {
		t.Fatalf("%d reports for %d SBOMs", len(server.Reports), len(inputs))
	}
	for lease, report := range server.Reports {
		each(lease, report)
	}
	return run{wall: last.Sub(start), usage: took}
}

// runStock runs the grype command for each SBOM.
func (s settings) runStock(t *testing.T, cache string, sboms []sbom) (run, []outcome) {
	t.Helper()
	var total run
	outcomes := make([]outcome, len(sboms))
	out := filepath.Join(t.TempDir(), "out.json")
	home := t.TempDir()
	for i, sbom := range sboms {
		took := s.measure(t, program{
			args: []string{s.program("grype"), "sbom:" + sbom.full, "-q", "-o", "json"},
			environment: []string{
				"GRYPE_DB_CACHE_DIR=" + cache, "GRYPE_DB_AUTO_UPDATE=false", "GRYPE_DB_VALIDATE_AGE=false",
				"GRYPE_CHECK_FOR_APP_UPDATE=false", "XDG_CONFIG_HOME=" + home, "HOME=" + home,
			},
			core: core, output: out,
		})
		total = total.plus(run{wall: took.Wall, usage: took})
		raw, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		outcomes[i].matches, outcomes[i].ignored = fixture.ParseGrypeOutput(t, raw)
	}
	return total, outcomes
}
