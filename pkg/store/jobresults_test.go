package store

import (
	"database/sql"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// jobResult returns the result of a live catalog Job, for the budget of the namespace "shop".
func (f fixture) jobResult(t *testing.T, job, name, sbom string) JobResult {
	t.Helper()
	must(t, f.SaveJob(t.Context(), catalogJob(f, job, "uid-of-"+job)))
	c := catalogOf(name, f.clock.Now())
	c.Namespace = "shop"
	return JobResult{
		Catalog: c, JobUID: "uid-of-" + job, Digest: digest("upload of " + job),
		Artifacts: artifacts(map[Artifact]string{ArtifactSBOM: sbom}), Size: int64(len(sbom)),
	}
}

// TestJobResultIsTakenOnce checks that the same upload again changes nothing, and that another one, or one after the Job's end,
// is refused.
func TestJobResultIsTakenOnce(t *testing.T) {
	f := newStore(t)
	result := f.jobResult(t, "one", "app", "SBOM")
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), result)); !kept {
		t.Error("the first result is not kept")
	}
	equal(t, "the record's result", got[Job](t)(f.JobByUID(t.Context(), "uid-of-one")).Result, result.Digest)

	result.Artifacts = artifacts(map[Artifact]string{ArtifactSBOM: "never read"})
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), result)); kept {
		t.Error("the same upload is kept twice")
	}
	other := result
	other.Digest, other.Catalog = digest("another upload"), catalogOf("other", f.clock.Now())
	if _, err := f.SaveJobResult(t.Context(), other); !errors.Is(err, ErrResultTaken) {
		t.Errorf("another upload of the Job: got %v, want ErrResultTaken", err)
	}
	equal(t, "the SBOM", f.artifact(t, "app", ArtifactSBOM), "SBOM")

	must(t, f.EndJob(t.Context(), "operator", "one", f.clock.Now(), false))
	if _, err := f.SaveJobResult(t.Context(), result); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the Job has ended: got %v, want ErrNotFound", err)
	}
}

// TestAnotherJobOfTheSameName checks that a new Job of the same name has no result yet.
func TestAnotherJobOfTheSameName(t *testing.T) {
	f := newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "one", "app", "SBOM")))
	must(t, f.SaveJob(t.Context(), catalogJob(f, "one", "uid-2")))
	if result := got[Job](t)(f.JobByUID(t.Context(), "uid-2")).Result; result != "" {
		t.Errorf("another Job of the same name has brought %q already", result)
	}
}

// TestAResultReplacesNoOtherImages checks two images that share a platform manifest: what the first Job stored for it stays, and
// the second image resolves to it.
func TestAResultReplacesNoOtherImages(t *testing.T) {
	f := newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "victim", "app", "SBOM of the victim")))
	hostile := f.jobResult(t, "hostile", "app", "poisoned")
	hostile.Key, hostile.Packages = key("another index"), 0
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), hostile)); kept {
		t.Error("the SBOM of a known manifest is replaced")
	}
	equal(t, "the SBOM", f.artifact(t, "app", ArtifactSBOM), "SBOM of the victim")
	for _, k := range []string{"app", "another index"} {
		equal(t, k, got[Catalog](t)(f.Catalog(t.Context(), "grype", key(k), Cluster)), withKey(catalogOf("app", f.clock.Now()), key(k)))
	}

	// After a catalog was deleted, the next Job's result is stored.
	must(t, f.DeleteCatalog(t.Context(), "grype", digest("app")))
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "later", "app", "newer SBOM"))); !kept {
		t.Error("the SBOM of a forgotten manifest is not kept")
	}
	equal(t, "the SBOM after the catalog was forgotten", f.artifact(t, "app", ArtifactSBOM), "newer SBOM")
}

// TestBudget checks that a result over the namespace's budget leaves no trace, and that freed bytes can be used again.
func TestBudget(t *testing.T) {
	f := newStore(t)
	const budget = 10
	save := func(job, name, namespace, sbom string) error {
		result := f.jobResult(t, job, name, sbom)
		result.Namespace, result.Budget = namespace, budget
		_, err := f.SaveJobResult(t.Context(), result)
		return err
	}
	must(t, save("one", "app", "shop", "12345678"))
	if err := save("two", "web", "shop", "123"); !errors.Is(err, ErrOverBudget) {
		t.Errorf("3 more bytes than 8 of 10: got %v, want ErrOverBudget", err)
	}
	if _, err := f.Catalog(t.Context(), "grype", key("web"), Cluster); !errors.Is(err, ErrNotFound) {
		t.Errorf("what did not fit: got %v, want ErrNotFound", err)
	}
	must(t, save("three", "bank app", "bank", "12345678"))
	must(t, save("four", "web", "shop", "12"))
	equal(t, "stored for shop", got[int64](t)(f.StoredBytes(t.Context(), "shop")), int64(budget))
	equal(t, "stored", got[map[string]int64](t)(f.StoredByNamespace(t.Context())), map[string]int64{"shop": 10, "bank": 8})

	f.clock.pass(time.Hour)
	got[int](t)(f.Sweep(t.Context(), f.clock.Now()))
	equal(t, "stored after a sweep", got[map[string]int64](t)(f.StoredByNamespace(t.Context())), map[string]int64{})
	must(t, save("five", "web", "shop", "1234567890"))
}

// TestFindingsCount checks that findings count against the budget too, those of each engine.
func TestFindingsCount(t *testing.T) {
	f := newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "one", "app", "SBOM")))
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl"))
	equal(t, "stored for shop", got[int64](t)(f.StoredBytes(t.Context(), "shop")), int64(len("SBOM")+2*findingBytes))
	f.requireIndexes(t, `SELECT coalesce(sum(`+storedIn+`), 0) FROM manifests m WHERE m.namespace = @namespace`,
		[]any{sql.Named("namespace", "shop")}, "manifests_by_namespace")
}

// TestTextsOfFindingsCount: a finding with long texts counts with all of them, for as long as it has them.
func TestTextsOfFindingsCount(t *testing.T) {
	f := newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "one", "app", "SBOM")))
	long := strings.Repeat("x", 100<<10)
	f.report(t, "app", vulnerable("CVE-2026-0001", long), vulnerable("CVE-2026-0002", "openssl", version(long)),
		vulnerable("CVE-2026-0003", "openssl", func(f *finding.Finding) { f.Paths = []string{long, long} }))
	// The name is in an index as well.
	if stored := got[int64](t)(f.StoredBytes(t.Context(), "shop")); stored < 5*100<<10 {
		t.Errorf("findings with 500 KiB of texts count as %d bytes", stored)
	}
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	equal(t, "stored when they are gone", got[int64](t)(f.StoredBytes(t.Context(), "shop")), int64(len("SBOM")+findingBytes))
}

// TestFindingsOfAnImageThatIsSharedCount checks that a catalog without artifacts counts for the namespace that was first,
// whatever its scope.
func TestFindingsOfAnImageThatIsSharedCount(t *testing.T) {
	f := newStore(t)
	for _, namespace := range []string{"shop", "bank"} {
		c := catalogOf("app", f.clock.Now())
		c.Namespace = namespace
		must(t, f.SaveCatalog(t.Context(), c, nil))
	}
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	equal(t, "stored", got[map[string]int64](t)(f.StoredByNamespace(t.Context())), map[string]int64{"shop": findingBytes})
}

// TestAReplacedResultMakesRoom checks that cataloging an image again needs no more budget than the difference.
func TestAReplacedResultMakesRoom(t *testing.T) {
	f := newStore(t)
	for i, job := range []string{"one", "two"} {
		result := f.jobResult(t, job, "app", "12345678")
		result.Budget = 10
		if kept := got[bool](t)(f.SaveJobResult(t.Context(), result)); !kept {
			t.Errorf("result %d is not kept", i+1)
		}
		must(t, f.DeleteCatalog(t.Context(), "grype", digest("app")))
	}
}

// TestBudgetsOfOlderStores checks that what was stored before there were budgets counts for the namespace that uses it.
func TestBudgetsOfOlderStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	olderStore(t, path, 6,
		`INSERT INTO manifests (id, platform_digest, scope, last_used) VALUES (1, 'sha256:a', '', 0), (2, 'sha256:b', 'bank', 0), (3, 'sha256:c', '', 0)`,
		`INSERT INTO artifacts (manifest_id, name, size) VALUES (1, 'sbom', 100), (2, 'sbom', 200), (3, 'sbom', 300)`,
		`INSERT INTO reports (revision, manifest_id, engine, data_version, matched_at, distro, present) VALUES (1, 2, 'grype', 'v1', 0, '', 2)`,
		`INSERT INTO scanner_images (scanner, namespace, digest, platform, scope, engine, manifest_id) VALUES ('s', 'shop', 'sha256:i', 'linux/amd64', '', 'grype', 1)`)
	f := openStore(t, path)
	equal(t, "stored", got[map[string]int64](t)(f.StoredByNamespace(t.Context())), map[string]int64{"shop": 100, "bank": 200 + 2*findingBytes, "": 300})
}

// TestAResultThatCannotBeReadIsNone checks that after a failed upload the Job may upload again.
func TestAResultThatCannotBeReadIsNone(t *testing.T) {
	f := newStore(t)
	result := f.jobResult(t, "one", "app", "SBOM")
	result.Artifacts = map[Artifact]io.Reader{ArtifactSBOM: iotest.ErrReader(io.ErrClosedPipe)}
	if _, err := f.SaveJobResult(t.Context(), result); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want the reader's error", err)
	}
	again := f.jobResult(t, "one", "app", "SBOM")
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), again)); !kept {
		t.Error("the result is not kept when it is brought again")
	}
}
