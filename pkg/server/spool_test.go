package server

import (
	"net/http"
	"os"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// spoolHolds compares files on disk and the bytes that are counted.
func (a *ingestAPI) spoolHolds(files int, bytes int) {
	a.t.Helper()
	if got := a.spooled(); got != files {
		a.t.Errorf("%d files wait, want %d", got, files)
	}
	if got := a.ingest.spool.used; got != int64(bytes) {
		a.t.Errorf("%d bytes of the spool are taken, want %d", got, bytes)
	}
}

// TestSpoolLeaks: the files of a result that is refused go with it.
func TestSpoolLeaks(t *testing.T) {
	for name, change := range map[string]func(*workerapi.CatalogResult){
		"another platform": func(r *workerapi.CatalogResult) { r.Platform = "linux/arm64" },
		"another SBOM":     func(r *workerapi.CatalogResult) { r.SBOMDigest = digest("another") },
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			w := a.job(store.JobCatalog, "catalog")
			w.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM")))
			w.put(workerapi.PathCatalogMatchInput, compressed(t, []byte("input")))
			refused := result
			change(&refused)
			if got := w.post(workerapi.PathCatalogResult, refused, nil); got.status < 400 {
				t.Errorf("the answer is %s, want a refusal", got)
			}
			a.spoolHolds(0, 0)
		})
	}
}

// TestTidy: uploads stay as long as the manager has a record of their Job.
func TestTidy(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	body := compressed(t, []byte("SBOM"))
	for _, name := range []string{"alive", "dead"} {
		w := a.job(store.JobCatalog, name)
		w.want(w.put(workerapi.PathCatalogSBOM, body), http.StatusNoContent, "")
	}
	a.must(a.store.DeleteJob(t.Context(), operatorNamespace, "dead"))
	a.must(a.ingest.Tidy(t.Context()))
	a.spoolHolds(1, len(body))
	if _, err := os.Stat(a.ingest.spool.path("uid-of-alive", store.ArtifactSBOM)); err != nil {
		t.Errorf("the upload of the Job that lives: %v", err)
	}
}

// TestOneUploadAtATime: a Job whose pod sends several at once does not get more room or time for it.
func TestOneUploadAtATime(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	if !a.ingest.spool.enter("uid-of-catalog") {
		t.Fatal("the first request is refused")
	}
	for _, got := range []answer{
		w.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM"))), w.post(workerapi.PathCatalogResult, result, nil),
	} {
		w.want(got, http.StatusTooManyRequests, "another upload of this Job")
		if got.retryAfter != "1" {
			t.Errorf("Retry-After is %q, want 1", got.retryAfter)
		}
	}
	other := a.job(store.JobCatalog, "other")
	other.want(other.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM"))), http.StatusNoContent, "")
	a.ingest.spool.leave("uid-of-catalog")
	w.catalogs()
}

// TestFullSpool: what does not fit is put off, leaves nothing behind, and is taken when there is room.
func TestFullSpool(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	first, second := a.job(store.JobCatalog, "first"), a.job(store.JobCatalog, "second")
	body := compressed(t, []byte("SBOM"))
	a.ingest.spool.limit = int64(2*len(body)) + 1
	for range 3 { // each in the place of the one before
		first.want(first.put(workerapi.PathCatalogSBOM, body), http.StatusNoContent, "")
	}
	a.spoolHolds(1, len(body))
	first.want(first.put(workerapi.PathCatalogMatchInput, body), http.StatusNoContent, "")
	got := second.put(workerapi.PathCatalogSBOM, body)
	second.want(got, http.StatusServiceUnavailable, "too many uploads at once")
	if got.retryAfter != "10" {
		t.Errorf("Retry-After is %q, want 10", got.retryAfter)
	}
	a.spoolHolds(2, 2*len(body))
	a.ingest.spool.discard("uid-of-first")
	second.want(second.put(workerapi.PathCatalogSBOM, body), http.StatusNoContent, "")
	a.spoolHolds(1, len(body))
}

// TestUnverifiedUpload: a file that is no zstd never takes the place of one that is, so that it cannot be stored.
func TestUnverifiedUpload(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	whole := compressed(t, []byte("SBOM"))
	w.want(w.put(workerapi.PathCatalogSBOM, whole), http.StatusNoContent, "")
	w.want(w.put(workerapi.PathCatalogSBOM, []byte("plain text")), http.StatusBadRequest, "not whole zstd")
	if got, err := os.ReadFile(a.ingest.spool.path("uid-of-catalog", store.ArtifactSBOM)); err != nil || string(got) != string(whole) {
		t.Errorf("the file has %q, %v, want what was verified", got, err)
	}
	a.spoolHolds(1, len(whole))
}

// TestResultOfOtherFiles: a result speaks of the files that it was made of, or is refused.
func TestResultOfOtherFiles(t *testing.T) {
	for name, change := range map[string]func(*workerapi.CatalogResult){
		"another match input": func(r *workerapi.CatalogResult) { r.MatchInputDigest = digest("another") },
		"no digest":           func(r *workerapi.CatalogResult) { r.MatchInputDigest = "" },
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			w := a.job(store.JobCatalog, "catalog")
			w.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM")))
			w.put(workerapi.PathCatalogMatchInput, compressed(t, []byte("input")))
			other := result
			change(&other)
			w.want(w.post(workerapi.PathCatalogResult, other, nil), http.StatusConflict, "upload it again")
			if _, err := a.store.Catalogued(t.Context(), "grype", web, store.Cluster); err == nil {
				t.Error("the catalogue is visible")
			}
		})
	}
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	none := result
	none.SBOMDigest, none.MatchInputDigest = "", ""
	w.want(w.post(workerapi.PathCatalogResult, none, nil), http.StatusConflict, "was not uploaded")
}

// TestMountedSpool: the directory itself stays, because a volume may be mounted on it.
func TestMountedSpool(t *testing.T) {
	s := newSpool(t.TempDir(), 1)
	before, err := os.Stat(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.reset(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(s.dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("the directory is another one: %v", err)
	}
}
