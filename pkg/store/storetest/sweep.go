package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testSweepDeletesUnusedImages(t *testing.T) {
	const day = 24 * time.Hour
	f := on.newStore(t)
	for _, name := range []string{"running", "retained", "released", "released again", "never used", "recent"} {
		if name == "recent" {
			f.clock.pass(3 * day)
		}
		must(t, f.SaveCatalog(t.Context(), catalogOf(name, f.clock.Now()), artifacts(map[store.Artifact]string{store.ArtifactSBOM: "sbom"})))
		f.report(t, name, vulnerable("CVE-2026-0001", "shared"), vulnerable("CVE of "+name, "own"))
	}
	f.use(t, "scanner", "running", workload("api", "r"))
	f.use(t, "scanner", "retained")
	for _, name := range []string{"released", "released again"} {
		f.use(t, "scanner", name, workload("web", "r"))
		must(t, f.ReleaseImage(t.Context(), scannerImage(name), false))
	}
	f.clock.pass(day)
	f.use(t, "scanner", "released again", workload("web", "r"))
	must(t, f.ReleaseImage(t.Context(), scannerImage("released again"), false))

	equal(t, "images swept", got[int](t)(f.Sweep(t.Context(), f.clock.Now().Add(-day/2))), 3)
	for name, kept := range map[string]bool{
		"running": true, "retained": true, "released": false, "released again": true, "never used": false, "recent": false,
	} {
		_, catalogErr := f.Catalog(t.Context(), "grype", key(name), store.Cluster)
		_, _, artifactErr := f.OpenArtifact(t.Context(), digest(name), store.Cluster, store.ArtifactSBOM)
		_, reportErr := f.Findings(t.Context(), subject(name))
		for what, err := range map[string]error{"catalog": catalogErr, "artifact": artifactErr, "report": reportErr} {
			if kept && err != nil || !kept && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s of the image %q: got %v, want it kept: %t", what, name, err, kept)
			}
		}
	}
	equal(t, "rows that are left", f.rows(t), map[string]int{
		"manifests": 3, "images": 3, "artifacts": 3, "chunks": 3, "findings": 6, "vulnerabilities": 4,
	})
	equal(t, "images swept again", got[int](t)(f.Sweep(t.Context(), f.clock.Now().Add(-day/2))), 0)
}

func (f fixture) rows(t *testing.T) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, table := range []string{"manifests", "images", "artifacts", "chunks", "findings", "vulnerabilities"} {
		counts[table] = f.count(t, table)
	}
	return counts
}

func (on suite) testSweepGoesThroughAllBatches(t *testing.T) {
	f := on.newStore(t)
	const images = 2*sweepBatch + 3
	for i := range images {
		f.report(t, fmt.Sprint(i), vulnerable("CVE-2026-0001", "a"))
	}
	f.report(t, "with many findings", numbered(0, 2*vulnerabilityBatch+3)...)
	f.saveCatalogs(t, "stays")
	f.use(t, "scanner", "stays", workload("web", "r"))
	f.report(t, "stays", vulnerable("CVE-2027-0001", "a"))
	f.clock.pass(time.Hour)
	equal(t, "images swept", got[int](t)(f.Sweep(t.Context(), f.clock.Now())), images+1)
	equal(t, "vulnerabilities left", f.rows(t)["vulnerabilities"], 1)
}

// testASweptImageMayComeBack checks that an image that is used again after it was swept is a new image, to which no cached values
// of the former one apply.
func (on suite) testASweptImageMayComeBack(t *testing.T) {
	f := on.newStore(t)
	for round, want := range []finding.Counts{{High: 1}, {Low: 1, Fixable: 1}} {
		f.saveCatalogs(t, "app")
		f.use(t, "scanner", "app", workload("api", "r"))
		v := []finding.Finding{vulnerable("CVE-2026-0001", "a"), vulnerable("CVE-2026-0002", "a", fixed, severity(finding.Low))}[round]
		equal(t, "difference", f.report(t, "app", v), store.Difference{New: 1, First: true})
		equal(t, "counts", got[store.Totals](t)(f.ScannerTotals(t.Context(), "scanner", exception.Set{})).Counts, want)
		must(t, f.ReleaseImage(t.Context(), scannerImage("app"), false))
		f.clock.pass(time.Hour)
		equal(t, "images swept", got[int](t)(f.Sweep(t.Context(), f.clock.Now())), 1)
	}
}
