package match_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/anchore/syft/syft/format/syftjson"

	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// TestFiftyThousandPackages checks that such an SBOM can be cataloged, uploaded, matched and reported within the limits of
// the ingest API. It logs time and memory.
func TestFiftyThousandPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute of computing time")
	}
	const packages, vulnerable = 50_000, 1_000
	modules := make([]fixture.Module, packages)
	for i := range modules {
		modules[i] = fixture.Module{Path: fmt.Sprintf("example.org/team-%d/module-%d", i%100, i), Version: "v1.2.3"}
		if i < vulnerable {
			modules[i] = fixture.Module{Path: "golang.org/x/net", Version: fmt.Sprintf("v0.1.%d", i)}
		}
	}
	image := registrytest.Image(t, fixture.OSRelease("debian", "12"), registrytest.Files{"app": fixture.GoBinary("go1.22.0", "example.org/app", modules...)})

	passed := lap()
	contents := contents(t, image)
	if got := contents.Artifacts.Packages.PackageCount(); got < packages {
		t.Fatalf("%d packages were found, want at least %d", got, packages)
	}
	t.Logf("catalog: %s", passed())
	full, err := catalog.Write(t.TempDir(), syftjson.ToFormatModel(*contents, syftjson.DefaultEncoderConfig()), workerapi.MaxSBOMContentBytes)
	if err != nil {
		t.Fatal(err)
	}
	compact := input.Compact(contents)
	artifact, err := catalog.Write(t.TempDir(), compact, workerapi.MaxMatchInputContentBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("documents: %s; SBOM %d KiB of %d, match input %d KiB of %d", passed(), full.Size>>10, full.ContentSize>>10, artifact.Size>>10, artifact.ContentSize>>10)
	if artifact.ContentSize > input.MaxBytes {
		t.Errorf("the match input has %d bytes, a match worker takes %d", artifact.ContentSize, input.MaxBytes)
	}

	db, file := store(t), input.Open(write(t, compact))
	_ = passed()
	report, err := match.SBOM(t.Context(), db, file)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("match: %s; %d findings, report %d KiB", passed(), len(report.Findings), len(raw)>>10)
	if n := len(report.Findings); n < vulnerable || n > workerapi.MaxReportFindings || len(raw) > workerapi.MaxReportContentBytes {
		t.Errorf("%d findings in %d bytes, want at least %d and what the ingest API takes", n, len(raw), vulnerable)
	}
}

// lap returns a function that returns the time and the allocated memory since its last call.
func lap() func() string {
	var last runtime.MemStats
	runtime.ReadMemStats(&last)
	start := time.Now()
	return func() string {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		text := fmt.Sprintf("%s, %d MiB allocated, %d MiB of heap in use", time.Since(start).Round(time.Millisecond),
			(now.TotalAlloc-last.TotalAlloc)>>20, now.HeapInuse>>20)
		start, last = time.Now(), now
		return text
	}
}
