package storetest

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// jobResult returns the result of a live catalog Job, for the budget of the namespace "shop".
func (f fixture) jobResult(t *testing.T, job, name, sbom string) store.JobResult {
	t.Helper()
	must(t, f.SaveJob(t.Context(), catalogJob(f, job, "uid-of-"+job)))
	c := catalogOf(name, f.clock.Now())
	c.Namespace = "shop"
	return store.JobResult{
		Catalog: c, JobUID: "uid-of-" + job, Digest: digest("upload of " + job),
		Artifacts: artifacts(map[store.Artifact]string{store.ArtifactSBOM: sbom}), Size: int64(len(sbom)),
	}
}

// testJobResultIsTakenOnce checks that the same upload again changes nothing, and that another one, or one after the Job's end,
// is refused.
func (on suite) testJobResultIsTakenOnce(t *testing.T) {
	f := on.newStore(t)
	result := f.jobResult(t, "one", "app", "SBOM")
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), result)); !kept {
		t.Error("the first result is not kept")
	}
	equal(t, "the record's result", got[store.Job](t)(f.JobByUID(t.Context(), "uid-of-one")).Result, result.Digest)

	result.Artifacts = artifacts(map[store.Artifact]string{store.ArtifactSBOM: "never read"})
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), result)); kept {
		t.Error("the same upload is kept twice")
	}
	other := result
	other.Digest, other.Catalog = digest("another upload"), catalogOf("other", f.clock.Now())
	if _, err := f.SaveJobResult(t.Context(), other); !errors.Is(err, store.ErrResultTaken) {
		t.Errorf("another upload of the Job: got %v, want ErrResultTaken", err)
	}
	equal(t, "the SBOM", f.artifact(t, "app", store.ArtifactSBOM), "SBOM")

	must(t, f.EndJob(t.Context(), "operator", "one", f.clock.Now(), false))
	if _, err := f.SaveJobResult(t.Context(), result); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the Job has ended: got %v, want ErrNotFound", err)
	}
}

// testAnotherJobOfTheSameName checks that a new Job of the same name has no result yet.
func (on suite) testAnotherJobOfTheSameName(t *testing.T) {
	f := on.newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "one", "app", "SBOM")))
	must(t, f.SaveJob(t.Context(), catalogJob(f, "one", "uid-2")))
	if result := got[store.Job](t)(f.JobByUID(t.Context(), "uid-2")).Result; result != "" {
		t.Errorf("another Job of the same name has brought %q already", result)
	}
}

// testAResultReplacesNoOtherImages checks two images that share a platform manifest: what the first Job stored for it stays, and
// the second image resolves to it.
func (on suite) testAResultReplacesNoOtherImages(t *testing.T) {
	f := on.newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "victim", "app", "SBOM of the victim")))
	hostile := f.jobResult(t, "hostile", "app", "poisoned")
	hostile.Key, hostile.Packages = key("another index"), 0
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), hostile)); kept {
		t.Error("the SBOM of a known manifest is replaced")
	}
	equal(t, "the SBOM", f.artifact(t, "app", store.ArtifactSBOM), "SBOM of the victim")
	for _, k := range []string{"app", "another index"} {
		equal(t, k, got[store.Catalog](t)(f.Catalog(t.Context(), "grype", key(k), store.Cluster)), withKey(catalogOf("app", f.clock.Now()), key(k)))
	}

	// After a catalog was deleted, the next Job's result is stored.
	must(t, f.DeleteCatalog(t.Context(), "grype", digest("app")))
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "later", "app", "newer SBOM"))); !kept {
		t.Error("the SBOM of a forgotten manifest is not kept")
	}
	equal(t, "the SBOM after the catalog was forgotten", f.artifact(t, "app", store.ArtifactSBOM), "newer SBOM")
}

// testAttestedResults checks who may replace an attested SBOM: only a result whose image it does not count for. A catalog of an image's content
// counts for every image, and stays.
func (on suite) testAttestedResults(t *testing.T) {
	f := on.newStore(t)
	save := func(job, policy string) bool {
		result := f.jobResult(t, job, "app", "SBOM of "+job)
		if result.Origin.Problem = "not signed"; policy != "" {
			result.Origin = store.Origin{Policy: policy, Signer: "signer of " + job}
		}
		return got[bool](t)(f.SaveJobResult(t.Context(), result))
	}
	scopes := func(policy string) int {
		return len(got[[]store.Scope](t)(f.CatalogScopes(t.Context(), "grype", key("app"), policy)))
	}
	for _, step := range []struct {
		job, policy string
		kept        bool
		sbom        string
		// counts are the scopes with a catalog that counts with the policies "a", "b" and none.
		counts [3]int
	}{
		{"one", "a", true, "SBOM of one", [3]int{1, 0, 0}},
		{"two", "a", false, "SBOM of one", [3]int{1, 0, 0}},
		{"three", "b", true, "SBOM of three", [3]int{0, 1, 0}},
		{"four", "", true, "SBOM of four", [3]int{1, 1, 1}},
		{"five", "a", false, "SBOM of four", [3]int{1, 1, 1}},
	} {
		if kept := save(step.job, step.policy); kept != step.kept {
			t.Errorf("the result of job %s is kept: %v, want %v", step.job, kept, step.kept)
		}
		equal(t, "the SBOM after job "+step.job, f.artifact(t, "app", store.ArtifactSBOM), step.sbom)
		equal(t, "the scopes after job "+step.job, [3]int{scopes("a"), scopes("b"), scopes("")}, step.counts)
	}
	equal(t, "the catalog", got[store.Catalog](t)(f.Catalog(t.Context(), "grype", key("app"), store.Cluster)).Origin, store.Origin{Problem: "not signed"})
}

// testReplacedAttestationIsMatchedAgain checks that findings of an SBOM that was replaced do not stay: its image is matched again with the
// same data, and a match of the former SBOM that is running is not stored.
func (on suite) testReplacedAttestationIsMatchedAgain(t *testing.T) {
	f := on.newStore(t)
	attested := f.jobResult(t, "one", "app", "attested")
	attested.Origin = store.Origin{Policy: "a", Signer: "somebody"}
	got[bool](t)(f.SaveJobResult(t.Context(), attested))
	f.use(t, "scanner", "app")
	leases := f.lease(t, "worker")
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "two", "app", "cataloged")))
	if _, err := f.SaveReport(t.Context(), report("app"), leases[0].ID); !errors.Is(err, store.ErrLeaseEnded) {
		t.Errorf("a report about the former SBOM: got %v, want ErrLeaseEnded", err)
	}
	if again := f.lease(t, "worker"); len(again) != 1 {
		t.Errorf("%d images are leased after the SBOM was replaced, want 1", len(again))
	}
}

// testBudget checks that a result over the namespace's budget leaves no trace, and that freed bytes can be used again.
func (on suite) testBudget(t *testing.T) {
	f := on.newStore(t)
	const budget = 10
	save := func(job, name, namespace, sbom string) error {
		result := f.jobResult(t, job, name, sbom)
		result.Namespace, result.Budget = namespace, budget
		_, err := f.SaveJobResult(t.Context(), result)
		return err
	}
	must(t, save("one", "app", "shop", "12345678"))
	if err := save("two", "web", "shop", "123"); !errors.Is(err, store.ErrOverBudget) {
		t.Errorf("3 more bytes than 8 of 10: got %v, want ErrOverBudget", err)
	}
	if _, err := f.Catalog(t.Context(), "grype", key("web"), store.Cluster); !errors.Is(err, store.ErrNotFound) {
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

// testFindingsCount checks that findings count against the budget too, those of each engine.
func (on suite) testFindingsCount(t *testing.T) {
	f := on.newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "one", "app", "SBOM")))
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl"))
	equal(t, "stored for shop", got[int64](t)(f.StoredBytes(t.Context(), "shop")), int64(len("SBOM")+2*findingBytes))
}

// testTextsOfFindingsCount: a finding with long texts counts with all of them, also when it is gone, for as long as it is stored.
func (on suite) testTextsOfFindingsCount(t *testing.T) {
	f := on.newStore(t)
	got[bool](t)(f.SaveJobResult(t.Context(), f.jobResult(t, "one", "app", "SBOM")))
	long := strings.Repeat("x", 100<<10)
	f.report(t, "app", vulnerable("CVE-2026-0001", long), vulnerable("CVE-2026-0002", "openssl", version(long)),
		vulnerable("CVE-2026-0003", "openssl", func(f *finding.Finding) { f.Paths = []string{long, long} }))
	// The name is in an index as well.
	if stored := got[int64](t)(f.StoredBytes(t.Context(), "shop")); stored < 5*100<<10 {
		t.Errorf("findings with 500 KiB of texts count as %d bytes", stored)
	}
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	if stored := got[int64](t)(f.StoredBytes(t.Context(), "shop")); stored < 5*100<<10 {
		t.Errorf("findings with 500 KiB of texts count as %d bytes when they are gone", stored)
	}
	f.clock.pass(time.Hour)
	f.reportBy(t, "v2", "app", vulnerable("CVE-2026-0001", "openssl"))
	f.clock.pass(fixedFor + time.Hour)
	got[int](t)(f.Sweep(t.Context(), time.Time{}))
	equal(t, "stored when they are deleted", got[int64](t)(f.StoredBytes(t.Context(), "shop")), int64(len("SBOM")+findingBytes))
}

// testFindingsOfAnImageThatIsSharedCount checks that a catalog without artifacts counts for the namespace that was first,
// whatever its scope.
func (on suite) testFindingsOfAnImageThatIsSharedCount(t *testing.T) {
	f := on.newStore(t)
	for _, namespace := range []string{"shop", "bank"} {
		c := catalogOf("app", f.clock.Now())
		c.Namespace = namespace
		must(t, f.SaveCatalog(t.Context(), c, nil))
	}
	f.report(t, "app", vulnerable("CVE-2026-0001", "openssl"))
	equal(t, "stored", got[map[string]int64](t)(f.StoredByNamespace(t.Context())), map[string]int64{"shop": findingBytes})
}

// testAReplacedResultMakesRoom checks that cataloging an image again needs no more budget than the difference.
func (on suite) testAReplacedResultMakesRoom(t *testing.T) {
	f := on.newStore(t)
	for i, job := range []string{"one", "two"} {
		result := f.jobResult(t, job, "app", "12345678")
		result.Budget = 10
		if kept := got[bool](t)(f.SaveJobResult(t.Context(), result)); !kept {
			t.Errorf("result %d is not kept", i+1)
		}
		must(t, f.DeleteCatalog(t.Context(), "grype", digest("app")))
	}
}

// testAResultThatCannotBeReadIsNone checks that after a failed upload the Job may upload again.
func (on suite) testAResultThatCannotBeReadIsNone(t *testing.T) {
	f := on.newStore(t)
	result := f.jobResult(t, "one", "app", "SBOM")
	result.Artifacts = map[store.Artifact]io.Reader{store.ArtifactSBOM: iotest.ErrReader(io.ErrClosedPipe)}
	if _, err := f.SaveJobResult(t.Context(), result); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want the reader's error", err)
	}
	again := f.jobResult(t, "one", "app", "SBOM")
	if kept := got[bool](t)(f.SaveJobResult(t.Context(), again)); !kept {
		t.Error("the result is not kept when it is brought again")
	}
}
