package storetest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func (on suite) testArtifactsComeBackAsTheyWere(t *testing.T) {
	f := on.newStore(t)
	random := rand.NewChaCha8([32]byte{})
	for _, size := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3*chunkBytes + 7} {
		content := make([]byte, size)
		got[int](t)(random.Read(content))
		// However a reader splits its content, the chunks are the same.
		whole := bytes.NewReader(content)
		split := struct {
			io.Reader
			io.Seeker
		}{iotest.HalfReader(whole), whole}
		saved := map[store.Artifact]io.Reader{store.ArtifactSBOM: split, store.ArtifactMatchInput: bytes.NewReader([]byte("input"))}
		must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), saved))
		reader, length, err := f.OpenArtifact(t.Context(), digest("app"), store.Cluster, store.ArtifactSBOM)
		must(t, err)
		if length != int64(size) {
			t.Errorf("the artifact's size is %d, want %d", length, size)
		}
		if err := iotest.TestReader(reader, content); err != nil {
			t.Errorf("an artifact of %d bytes: %v", size, err)
		}
		must(t, reader.Close())
	}
}

func (on suite) testArtifactsOfAnotherScopeAreNotFound(t *testing.T) {
	f := on.newStore(t)
	private := catalogOf("app", f.clock.Now())
	private.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), private, artifacts(map[store.Artifact]string{store.ArtifactSBOM: "sbom"})))
	for _, test := range []struct {
		scope    store.Scope
		artifact store.Artifact
	}{{store.Cluster, store.ArtifactSBOM}, {"bank", store.ArtifactSBOM}, {"shop", store.ArtifactMatchInput}} {
		if _, _, err := f.OpenArtifact(t.Context(), digest("app"), test.scope, test.artifact); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s in scope %q: got %v, want ErrNotFound", test.artifact, test.scope, err)
		}
	}
}

func (on suite) testCatalogReplacesAllArtifacts(t *testing.T) {
	f := on.newStore(t)
	c := catalogOf("app", f.clock.Now())
	must(t, f.SaveCatalog(t.Context(), c, artifacts(map[store.Artifact]string{store.ArtifactSBOM: "old sbom", store.ArtifactMatchInput: "old input"})))
	must(t, f.SaveCatalog(t.Context(), c, artifacts(map[store.Artifact]string{store.ArtifactSBOM: "new sbom"})))
	equal(t, "the SBOM", f.artifact(t, "app", store.ArtifactSBOM), "new sbom")
	if _, _, err := f.OpenArtifact(t.Context(), digest("app"), store.Cluster, store.ArtifactMatchInput); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the former catalog's match input: got %v, want ErrNotFound", err)
	}
	must(t, f.SaveCatalog(t.Context(), c, nil))
	equal(t, "the SBOM after a catalog without artifacts", f.artifact(t, "app", store.ArtifactSBOM), "new sbom")
	equal(t, "chunks that are kept", f.count(t, "chunks"), 1)
}

func (f fixture) artifact(t *testing.T, name string, a store.Artifact) string {
	t.Helper()
	reader, _, err := f.OpenArtifact(t.Context(), digest(name), store.Cluster, a)
	must(t, err)
	defer reader.Close()
	return string(got[[]byte](t)(io.ReadAll(reader)))
}

// testAReplacedArtifactEndsItsReaders checks that a reader never gets the beginning of one artifact and the end of another.
func (on suite) testAReplacedArtifactEndsItsReaders(t *testing.T) {
	f := on.newStore(t)
	c := catalogOf("app", f.clock.Now())
	save := func(fill byte) {
		must(t, f.SaveCatalog(t.Context(), c, map[store.Artifact]io.Reader{
			store.ArtifactSBOM: bytes.NewReader(bytes.Repeat([]byte{fill}, 2*chunkBytes)),
		}))
	}
	save('a')
	reader, _, err := f.OpenArtifact(t.Context(), digest("app"), store.Cluster, store.ArtifactSBOM)
	must(t, err)
	got[int](t)(io.ReadFull(reader, make([]byte, chunkBytes)))
	save('b')
	if n, err := io.Copy(io.Discard, reader); !errors.Is(err, store.ErrReplaced) {
		t.Errorf("reading on gives %d bytes and %v, want ErrReplaced", n, err)
	} else {
		f.requireContext(t, err, "read artifact")
	}
}

func (on suite) testAnArtifactThatCannotBeReadLeavesTheFormerOne(t *testing.T) {
	f := on.newStore(t)
	c := catalogOf("app", f.clock.Now())
	must(t, f.SaveCatalog(t.Context(), c, artifacts(map[store.Artifact]string{store.ArtifactSBOM: "old sbom"})))
	broken := io.MultiReader(zeros(chunkBytes), iotest.ErrReader(errors.New("the spool file is gone")))
	err := f.SaveCatalog(t.Context(), c, map[store.Artifact]io.Reader{store.ArtifactSBOM: broken})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("artifact sbom: read: the spool file is gone")) {
		t.Errorf("got %v, want an error that names the artifact and its cause", err)
	}
	equal(t, "the SBOM", f.artifact(t, "app", store.ArtifactSBOM), "old sbom")
}
