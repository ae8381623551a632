package storetest

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// uploadOf returns an SBOM that jane uploads for an index, for its manifest of a platform; "" for a platform's manifest itself.
func uploadOf(namespace, platform, sum string) store.UploadedSBOM {
	return store.UploadedSBOM{
		Namespace: namespace, Digest: key("web").Digest, Platform: platform, PlatformDigest: digest("web on " + platform), Sum: sum, User: "jane",
	}
}

func (f fixture) upload(t testing.TB, u store.UploadedSBOM, content string, budget int64) store.SavedUpload {
	t.Helper()
	reader := strings.NewReader(content)
	got[int64](t)(reader.Seek(0, io.SeekEnd)) // as a caller leaves it that has read the content
	return got[store.SavedUpload](t)(f.SaveUploadedSBOM(t.Context(), u, reader, budget))
}

// uploaded returns the SBOM that counts for an image on a platform, with its content; "" if there is none.
func (f fixture) uploaded(t testing.TB, namespace, platform string) (u store.UploadedSBOM, content string) {
	t.Helper()
	k := image.Key{Digest: key("web").Digest, Platform: got[image.Platform](t)(image.ParsePlatform(platform))}
	u, err := f.UploadedSBOM(t.Context(), namespace, k)
	if errors.Is(err, store.ErrNotFound) {
		return u, ""
	}
	must(t, err)
	reader, size, err := f.OpenUploadedSBOM(t.Context(), u)
	must(t, err)
	defer reader.Close()
	all := got[[]byte](t)(io.ReadAll(reader))
	if size != int64(len(all)) {
		t.Errorf("the content has %d bytes, and its size is %d", len(all), size)
	}
	return u, string(all)
}

// testUploadedSBOMs: an upload counts for its platform in its namespace, is replaced by another content, and writes nothing if it is the same.
func (on suite) testUploadedSBOMs(t *testing.T) {
	f := on.newStore(t)
	first := f.upload(t, uploadOf("shop", "linux/amd64", "1"), "first", 0)
	if !first.First || first.Unchanged || !store.IsUpload(first.Policy) {
		t.Errorf("the first upload is %+v, want the first one with a policy", first)
	}
	want := uploadOf("shop", "linux/amd64", "")
	want.SavedAt, want.Policy = f.clock.Now().UTC(), first.Policy
	u, content := f.uploaded(t, "shop", "linux/amd64")
	if diff := cmp.Diff(want, u); diff != "" || content != "first" {
		t.Errorf("the content %q, and the upload (-want +got):\n%s", content, diff)
	}
	byPolicy := got[store.UploadedSBOM](t)(f.UploadedSBOMByPolicy(t.Context(), first.Policy))
	if diff := cmp.Diff(want, byPolicy); diff != "" {
		t.Errorf("the upload by its policy (-want +got):\n%s", diff)
	}
	for _, other := range [][2]string{{"shop", "linux/arm64"}, {"bank", "linux/amd64"}} {
		if _, content := f.uploaded(t, other[0], other[1]); content != "" {
			t.Errorf("the upload counts for %s in %s, too", other[1], other[0])
		}
	}

	f.clock.pass(time.Hour)
	before := f.revision(t)
	again := uploadOf("shop", "linux/amd64", "1")
	again.User = "joe"
	if saved := f.upload(t, again, "first", 0); !saved.Unchanged || saved.First || saved.User != "jane" {
		t.Errorf("the same upload is %+v, want it to be unchanged, by jane", saved)
	}
	if after := f.revision(t); after != before {
		t.Errorf("the same upload has raised the revision from %d to %d", before, after)
	}

	again.Sum = "2"
	second := f.upload(t, again, "second", 0)
	if second.Unchanged || second.First || second.User != "joe" || second.Policy == first.Policy {
		t.Errorf("the second upload is %+v, want another policy than %s, by joe", second, first.Policy)
	}
	if _, err := f.UploadedSBOMByPolicy(t.Context(), first.Policy); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the policy of the former upload: got %v, want ErrNotFound", err)
	}
	if _, content := f.uploaded(t, "shop", "linux/amd64"); content != "second" {
		t.Errorf("the content is %q, want that of the second upload", content)
	}
	if n := f.count(t, "artifacts"); n != 1 {
		t.Errorf("%d contents are stored, want 1", n)
	}

	// What two namespaces upload is never the same, and one of a manifest itself counts for each platform.
	if other := f.upload(t, uploadOf("bank", "linux/amd64", "1"), "first", 0); other.Policy == first.Policy {
		t.Error("two namespaces have the same policy")
	}
	f.upload(t, uploadOf("shop", "", "3"), "of the manifest", 0)
	if _, content := f.uploaded(t, "shop", "linux/arm64"); content != "of the manifest" {
		t.Errorf("on another platform, the content is %q, want that of the manifest", content)
	}

	must(t, f.DeleteUploadedSBOMs(t.Context(), "shop", key("web").Digest))
	if err := f.DeleteUploadedSBOMs(t.Context(), "shop", key("web").Digest); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting what is gone: got %v, want ErrNotFound", err)
	}
	if _, content := f.uploaded(t, "shop", "linux/amd64"); content != "" {
		t.Errorf("after it was deleted, the content is %q", content)
	}
	if _, content := f.uploaded(t, "bank", "linux/amd64"); content != "first" {
		t.Errorf("after another namespace has deleted its own, the content is %q", content)
	}
}

// testUploadedSBOMsOfAnotherManifest: an upload for another manifest of the same platform replaces the former one.
func (on suite) testUploadedSBOMsOfAnotherManifest(t *testing.T) {
	f := on.newStore(t)
	f.upload(t, uploadOf("shop", "linux/amd64", "1"), "first", 0)
	moved := uploadOf("shop", "linux/amd64", "moved")
	moved.PlatformDigest = digest("another manifest")
	if saved := f.upload(t, moved, "moved", 0); saved.First || saved.PlatformDigest != moved.PlatformDigest {
		t.Errorf("an upload for another manifest of the platform is %+v", saved)
	}
	if u, content := f.uploaded(t, "shop", "linux/amd64"); content != "moved" || u.PlatformDigest != moved.PlatformDigest {
		t.Errorf("the content %q of %+v", content, u)
	}
	if bytes := got[int64](t)(f.StoredBytes(t.Context(), "shop")); bytes != int64(len("moved")) {
		t.Errorf("%d bytes are stored, want those of the latest upload", bytes)
	}
}

// testUploadedSBOMsHaveABudget: an upload that does not fit leaves the former one as it is.
func (on suite) testUploadedSBOMsHaveABudget(t *testing.T) {
	f := on.newStore(t)
	f.upload(t, uploadOf("shop", "", "1"), "12345", 5)
	_, err := f.SaveUploadedSBOM(t.Context(), uploadOf("shop", "", "2"), strings.NewReader("123456"), 5)
	requireError(t, err, store.ErrOverBudget)
	if _, content := f.uploaded(t, "shop", "linux/amd64"); content != "12345" {
		t.Errorf("the content is %q, want the former one", content)
	}
	equal(t, "the bytes of the namespace", got[int64](t)(f.StoredBytes(t.Context(), "shop")), int64(5))
}

// testSweepUploadedSBOMs: an upload is kept while its image runs in its namespace, and for the retention before and afterwards.
func (on suite) testSweepUploadedSBOMs(t *testing.T) {
	f := on.newStore(t)
	exists := func(namespace string) bool {
		t.Helper()
		got[int](t)(f.Sweep(t.Context(), f.clock.Now().Add(-24*time.Hour)))
		_, content := f.uploaded(t, namespace, "linux/amd64")
		return content != ""
	}
	f.upload(t, uploadOf("shop", "", "1"), "text", 0)
	f.upload(t, uploadOf("bank", "", "1"), "text", 0)
	f.clock.pass(23 * time.Hour)
	if !exists("shop") {
		t.Fatal("the upload is gone before its image runs")
	}
	f.use(t, "scanner", "web", workload("web", "web"))
	f.clock.pass(72 * time.Hour)
	if !exists("shop") || exists("bank") {
		t.Fatalf("kept where the image runs: %v, and where it does not: %v", exists("shop"), exists("bank"))
	}
	must(t, f.ReleaseImage(t.Context(), store.ScannerImage{Scanner: "scanner", Namespace: "shop", Key: key("web")}, false))
	if !exists("shop") {
		t.Fatal("the upload is gone at once when its image does not run any more")
	}
	f.clock.pass(25 * time.Hour)
	if exists("shop") {
		t.Error("the upload is kept longer than its image")
	}
	if n := f.count(t, "artifacts"); n != 0 {
		t.Errorf("%d contents are left, want none", n)
	}
}

// testCatalogsOfUploadedSBOMs: a catalog of an uploaded SBOM counts as long as the upload is the latest one, and says who uploaded it.
func (on suite) testCatalogsOfUploadedSBOMs(t *testing.T) {
	f := on.newStore(t)
	u := f.upload(t, uploadOf("shop", "", "1"), "text", 0)
	result := f.jobResult(t, "one", "app", "SBOM")
	result.Scope, result.Origin = "shop", store.Origin{Policy: u.Policy, Uploader: u.User, UploadedAt: u.SavedAt, Problem: "not pulled"}
	got[bool](t)(f.SaveJobResult(t.Context(), result))
	catalog := got[store.Catalog](t)(f.Catalog(t.Context(), "grype", key("app"), "shop"))
	equal(t, "the origin", catalog.Origin, result.Origin)
	if next := f.upload(t, uploadOf("shop", "", "2"), "text", 0); !catalog.CountsWith(u.Policy) || catalog.CountsWith(next.Policy) || catalog.CountsWith("") {
		t.Error("the catalog must count with its own upload, and neither with the next one nor with none")
	}
}
