package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// spooled are the files that wait.
func (a *ingestAPI) spooled() int {
	a.t.Helper()
	files, err := os.ReadDir(a.spool)
	a.must(err)
	return len(files)
}

// TestCatalogStory: both files, then the result; only then is there anything to see, under the image that the
// manager's record names.
func TestCatalogStory(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	sbom, input := compressed(t, []byte("SBOM")), compressed(t, []byte("input"))
	w.want(w.put(workerapi.PathCatalogSBOM, sbom), http.StatusNoContent, "")
	w.want(w.put(workerapi.PathCatalogMatchInput, input), http.StatusNoContent, "")
	if _, err := a.store.Catalogued(t.Context(), "grype", web, store.Cluster); err == nil {
		t.Error("the catalogue is visible before its result")
	}
	claimed := result
	claimed.Image = "docker.io/library/another"
	w.want(w.post(workerapi.PathCatalogResult, claimed, nil), http.StatusNoContent, "")
	got, err := a.store.Catalogued(t.Context(), "grype", web, store.Cluster)
	a.must(err)
	want := store.Catalogued{
		Engine: "grype", Key: web, Scope: store.Cluster, PlatformDigest: result.PlatformDigest, Distro: "debian 12", Packages: 7, Tool: "syft 1.42.3", CataloguedAt: noon,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("catalogue (-want +got):\n%s", diff)
	}
	for artifact, body := range map[store.Artifact][]byte{store.ArtifactSBOM: sbom, store.ArtifactMatchInput: input} {
		content, size, err := a.store.OpenArtifact(t.Context(), result.PlatformDigest, store.Cluster, artifact)
		a.must(err)
		stored, err := io.ReadAll(content)
		a.must(err)
		_ = content.Close()
		if !bytes.Equal(stored, body) || size != int64(len(body)) {
			t.Errorf("%s has %d bytes, %d are announced, want the %d that were sent", artifact, len(stored), size, len(body))
		}
	}
	if len(a.engine.catalogued) != 1 || a.engine.catalogued[0].Key != web {
		t.Errorf("the engine hears of %+v, want the image once", a.engine.catalogued)
	}
	if got := a.spooled(); got != 0 {
		t.Errorf("%d files are left behind", got)
	}
}

// TestUploadsThatAreRefused: nothing of them stays.
func TestUploadsThatAreRefused(t *testing.T) {
	whole := compressed(t, []byte(strings.Repeat("an SBOM, ", 1000)))
	bomb := compressed(t, make([]byte, 10<<20))
	for name, tt := range map[string]struct {
		body   []byte
		digest string // as announced; the body's own if empty
		status int
		text   string
	}{
		"whole":               {whole, "", http.StatusNoContent, ""},
		"truncated":           {whole[:len(whole)-5], digest(string(whole)), http.StatusBadRequest, "damaged on the way"},
		"for another digest":  {whole, digest("another"), http.StatusBadRequest, "damaged on the way"},
		"no digest":           {whole, "-", http.StatusBadRequest, "damaged on the way"},
		"not zstd":            {[]byte("plain text"), "", http.StatusBadRequest, "not whole zstd"},
		"truncated zstd":      {whole[:len(whole)-5], "", http.StatusBadRequest, "not whole zstd"},
		"zstd, damaged":       {damaged(whole), "", http.StatusBadRequest, "not whole zstd"},
		"junk after it":       {append(bytes.Clone(whole), "junk"...), "", http.StatusBadRequest, "not whole zstd"},
		"too large":           {bytes.Repeat([]byte("x"), 1<<20), "", http.StatusRequestEntityTooLarge, "the body is too large"},
		"too large unpacked":  {bomb, "", http.StatusRequestEntityTooLarge, "the body is too large"},
		"a window of 512 MiB": {windowOf512MiB(), "", http.StatusBadRequest, "not whole zstd"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{Artifact: 512 << 10, ArtifactContent: 1 << 20, JSON: 1 << 10})
			w := a.job(store.JobCatalog, "catalog")
			announced := tt.digest
			if announced == "" {
				announced = digest(string(tt.body))
			}
			w.want(w.send(http.MethodPut, workerapi.PathCatalogSBOM, bytes.NewReader(tt.body), workerapi.DigestHeader, announced), tt.status, tt.text)
			left := 0
			if tt.status == http.StatusNoContent {
				left = 1
			}
			if got := a.spooled(); got != left {
				t.Errorf("%d files wait, want %d", got, left)
			}
		})
	}
}

// damaged has one bit that is another.
func damaged(body []byte) []byte {
	body = bytes.Clone(body)
	body[len(body)/2] ^= 1
	return body
}

// windowOf512MiB asks the decoder for as much memory (https://datatracker.ietf.org/doc/html/rfc8878#name-window-descriptor).
func windowOf512MiB() []byte {
	body := binary.LittleEndian.AppendUint32(nil, 0xFD2FB528) // magic number
	body = append(body, 0)                                    // frame header: a window descriptor follows, no size
	body = append(body, (29-10)<<3)                           // 2^29
	return append(body, 1, 0, 0)                              // a last, empty, raw block
}

// TestGoneInTheMiddle: a worker whose connection breaks leaves nothing behind.
func TestGoneInTheMiddle(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	reader, writer := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, a.url+workerapi.PathCatalogSBOM, reader)
	a.must(err)
	request.Header.Set("Authorization", "Bearer "+w.token)
	go func() {
		_, _ = writer.Write(make([]byte, 1<<20))
		writer.CloseWithError(errTrouble)
	}()
	if response, err := a.http.Do(request); err == nil {
		_ = response.Body.Close()
		t.Errorf("the answer is %d, want none", response.StatusCode)
	}
	for deadline := time.Now().Add(10 * time.Second); a.spooled() > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d files wait for ever", a.spooled())
		}
	}
}

// TestResultsThatAreRefused: what cannot be about the Job's image, or is not said in JSON.
func TestResultsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*workerapi.CatalogResult)
		status int
		text   string
	}{
		"another platform":      {func(r *workerapi.CatalogResult) { r.Platform = "linux/arm64" }, http.StatusUnprocessableEntity, "platform: linux/arm64 was cataloged, linux/amd64 runs"},
		"another system":        {func(r *workerapi.CatalogResult) { r.Platform = "windows/amd64" }, http.StatusUnprocessableEntity, "platform:"},
		"no platform":           {func(r *workerapi.CatalogResult) { r.Platform = "" }, http.StatusUnprocessableEntity, "platform:"},
		"a variant":             {func(r *workerapi.CatalogResult) { r.Platform = "linux/amd64/v2" }, http.StatusNoContent, ""},
		"no digest":             {func(r *workerapi.CatalogResult) { r.PlatformDigest = "" }, http.StatusUnprocessableEntity, "platformDigest:"},
		"a path for a digest":   {func(r *workerapi.CatalogResult) { r.PlatformDigest = "../../etc" }, http.StatusUnprocessableEntity, "platformDigest:"},
		"less than no packages": {func(r *workerapi.CatalogResult) { r.Packages = -1 }, http.StatusUnprocessableEntity, "packages:"},
		"a very long tool":      {func(r *workerapi.CatalogResult) { r.Tool = "a" + strings.Repeat("ü", 300) }, http.StatusNoContent, ""},
		"far too long":          {func(r *workerapi.CatalogResult) { r.Tool = strings.Repeat("x", 2<<20) }, http.StatusRequestEntityTooLarge, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newIngestAPI(t, Limits{})
			w := a.job(store.JobCatalog, "catalog")
			w.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM")))
			w.put(workerapi.PathCatalogMatchInput, compressed(t, []byte("input")))
			r := result
			tt.change(&r)
			w.want(w.post(workerapi.PathCatalogResult, r, nil), tt.status, tt.text)
			catalogued, err := a.store.Catalogued(t.Context(), "grype", web, store.Cluster)
			if (err == nil) != (tt.status == http.StatusNoContent) {
				t.Errorf("the catalogue: %v", err)
			}
			if len(catalogued.Tool) > maxText || !utf8.ValidString(catalogued.Tool) {
				t.Errorf("the tool is %q, want at most %d bytes of text", catalogued.Tool, maxText)
			}
		})
	}
	w := newIngestAPI(t, Limits{}).job(store.JobCatalog, "catalog")
	w.want(w.send(http.MethodPost, workerapi.PathCatalogResult, strings.NewReader("{")), http.StatusBadRequest, "not the JSON that is wanted")
	w.want(w.send(http.MethodPost, workerapi.PathCatalogResult, http.NoBody), http.StatusBadRequest, "not the JSON that is wanted")
}

// TestResultBeforeUpload: it says what is missing, so that the worker sends it (again, after a restart of the manager).
func TestResultBeforeUpload(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	w.want(w.post(workerapi.PathCatalogResult, result, nil), http.StatusConflict, "sbom was not uploaded")
	w.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM")))
	w.want(w.post(workerapi.PathCatalogResult, result, nil), http.StatusConflict, "match-input was not uploaded")
	w.catalogs()
}

// TestReplay: a result that is sent again after it was taken changes nothing.
func TestReplay(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	w.catalogs()
	other := result
	other.PlatformDigest = digest("another manifest")
	w.want(w.post(workerapi.PathCatalogResult, other, nil), http.StatusConflict, "was not uploaded")
	if got, err := a.store.Catalogued(t.Context(), "grype", web, store.Cluster); err != nil || got.PlatformDigest != result.PlatformDigest {
		t.Errorf("the catalogue is %+v, %v", got, err)
	}
}

// TestAfterTheJob: when the manager has removed the Job, its pod has nothing more to say.
func TestAfterTheJob(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	w.catalogs()
	a.must(a.store.DeleteJob(t.Context(), operatorNamespace, "catalog"))
	w.want(w.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM"))), http.StatusForbidden, "has ended")
}

// TestJobsDoNotMix: two Jobs that upload at the same time each get their own files.
func TestJobsDoNotMix(t *testing.T) {
	a := newIngestAPI(t, Limits{})
	one, two := a.job(store.JobCatalog, "one"), a.job(store.JobCatalog, "two")
	one.want(one.put(workerapi.PathCatalogSBOM, compressed(t, []byte("SBOM"))), http.StatusNoContent, "")
	two.want(two.put(workerapi.PathCatalogMatchInput, compressed(t, []byte("input"))), http.StatusNoContent, "")
	one.want(one.post(workerapi.PathCatalogResult, result, nil), http.StatusConflict, "match-input was not uploaded")
	two.want(two.post(workerapi.PathCatalogResult, result, nil), http.StatusConflict, "sbom was not uploaded")
}

// TestSpoolIsEmptiedAtStart: what a former process left belongs to nobody.
func TestSpoolIsEmptiedAtStart(t *testing.T) {
	s := spool{dir: t.TempDir() + "/spool"}
	for range 2 {
		if err := s.reset(); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(s.dir); err != nil || len(files) != 0 {
			t.Fatalf("files %v, %v, want none", files, err)
		}
		if err := os.WriteFile(s.path("uid", "sbom"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if path := s.path("../../etc/passwd", "sbom"); path != s.dir+"/passwd.sbom" {
		t.Errorf("an upload goes to %s, outside of %s", path, s.dir)
	}
}

// TestMemory: an SBOM of 100 MB goes through the manager and back without ever being in its memory.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("uploads 100 MB")
	}
	const size, bound = 100 << 20, 32 << 20
	a := newIngestAPI(t, Limits{})
	w := a.job(store.JobCatalog, "catalog")
	body := func() io.Reader { return io.MultiReader(&frames{left: size / frameSize}) }
	sum := sha256.New()
	written, err := io.Copy(sum, body())
	a.must(err)
	w.put(workerapi.PathCatalogMatchInput, compressed(t, []byte("input")))

	defer debug.SetGCPercent(debug.SetGCPercent(10)) // so that the heap is little more than what is needed
	peak := watchHeap(t)
	w.want(w.send(http.MethodPut, workerapi.PathCatalogSBOM, body(), workerapi.DigestHeader, fmt.Sprintf("sha256:%x", sum.Sum(nil))), http.StatusNoContent, "")
	large := result
	large.SBOMDigest = fmt.Sprintf("sha256:%x", sum.Sum(nil))
	w.want(w.post(workerapi.PathCatalogResult, large, nil), http.StatusNoContent, "")
	content, stored, err := a.store.OpenArtifact(t.Context(), result.PlatformDigest, store.Cluster, store.ArtifactSBOM)
	a.must(err)
	read, err := io.Copy(io.Discard, content)
	a.must(err)
	_ = content.Close()
	if most := peak(); most > bound {
		t.Errorf("%d MiB of memory are needed for an SBOM of %d MiB, want at most %d", most>>20, written>>20, bound>>20)
	}
	if read != written || stored != written {
		t.Errorf("%d bytes come back of %d", read, written)
	}
}

// frameSize is that of one frame with a raw block.
const frameSize = 64 << 10

// frames is zstd that cannot be made smaller, frame after frame, made while it is read.
type frames struct {
	left int
	rest []byte
	rand *rand.ChaCha8
}

func (f *frames) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.left == 0 {
			return 0, io.EOF
		}
		f.left--
		if f.rand == nil {
			f.rand = rand.NewChaCha8([32]byte{1})
		}
		content := make([]byte, frameSize)
		_, _ = f.rand.Read(content)
		f.rest = encoder.EncodeAll(content, nil)
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

var encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))

// watchHeap returns a function that says how much the heap has grown at most since.
func watchHeap(t *testing.T) (peak func() uint64) {
	t.Helper()
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	before, most := stats.HeapAlloc, uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				if now.HeapAlloc > before {
					most = max(most, now.HeapAlloc-before)
				}
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		return most
	}
}
