package store

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

func TestArtifactsComeBackAsTheyWere(t *testing.T) {
	f := newStore(t)
	random := rand.NewChaCha8([32]byte{})
	for _, size := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3*chunkBytes + 7} {
		content := make([]byte, size)
		got[int](t)(random.Read(content))
		// However a reader splits its content, the chunks are the same.
		saved := map[Artifact]io.Reader{ArtifactSBOM: iotest.HalfReader(bytes.NewReader(content)), ArtifactMatchInput: bytes.NewReader([]byte("input"))}
		must(t, f.SaveCatalog(t.Context(), catalogOf("app", f.clock.Now()), saved))
		reader, length, err := f.OpenArtifact(t.Context(), digest("app"), Cluster, ArtifactSBOM)
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

func TestArtifactsOfAnotherScopeAreNotFound(t *testing.T) {
	f := newStore(t)
	private := catalogOf("app", f.clock.Now())
	private.Scope = "shop"
	must(t, f.SaveCatalog(t.Context(), private, artifacts(map[Artifact]string{ArtifactSBOM: "sbom"})))
	for _, test := range []struct {
		scope    Scope
		artifact Artifact
	}{{Cluster, ArtifactSBOM}, {"bank", ArtifactSBOM}, {"shop", ArtifactMatchInput}} {
		if _, _, err := f.OpenArtifact(t.Context(), digest("app"), test.scope, test.artifact); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s in scope %q: got %v, want ErrNotFound", test.artifact, test.scope, err)
		}
	}
}

func TestCatalogReplacesAllArtifacts(t *testing.T) {
	f := newStore(t)
	c := catalogOf("app", f.clock.Now())
	must(t, f.SaveCatalog(t.Context(), c, artifacts(map[Artifact]string{ArtifactSBOM: "old sbom", ArtifactMatchInput: "old input"})))
	must(t, f.SaveCatalog(t.Context(), c, artifacts(map[Artifact]string{ArtifactSBOM: "new sbom"})))
	equal(t, "the SBOM", f.artifact(t, "app", ArtifactSBOM), "new sbom")
	if _, _, err := f.OpenArtifact(t.Context(), digest("app"), Cluster, ArtifactMatchInput); !errors.Is(err, ErrNotFound) {
		t.Errorf("the former catalog's match input: got %v, want ErrNotFound", err)
	}
	must(t, f.SaveCatalog(t.Context(), c, nil))
	equal(t, "the SBOM after a catalog without artifacts", f.artifact(t, "app", ArtifactSBOM), "new sbom")
	var chunks int
	must(t, f.reader.QueryRow(`SELECT count(*) FROM chunks`).Scan(&chunks))
	equal(t, "chunks that are kept", chunks, 1)
}

func (f fixture) artifact(t *testing.T, name string, a Artifact) string {
	t.Helper()
	reader, _, err := f.OpenArtifact(t.Context(), digest(name), Cluster, a)
	must(t, err)
	defer reader.Close()
	return string(got[[]byte](t)(io.ReadAll(reader)))
}

// TestAReplacedArtifactEndsItsReaders checks that a reader never gets the beginning of one artifact and the end of another.
func TestAReplacedArtifactEndsItsReaders(t *testing.T) {
	f := newStore(t)
	c := catalogOf("app", f.clock.Now())
	save := func(fill byte) {
		must(t, f.SaveCatalog(t.Context(), c, map[Artifact]io.Reader{
			ArtifactSBOM: bytes.NewReader(bytes.Repeat([]byte{fill}, 2*chunkBytes)),
		}))
	}
	save('a')
	reader, _, err := f.OpenArtifact(t.Context(), digest("app"), Cluster, ArtifactSBOM)
	must(t, err)
	got[int](t)(io.ReadFull(reader, make([]byte, chunkBytes)))
	save('b')
	if n, err := io.Copy(io.Discard, reader); !errors.Is(err, ErrReplaced) {
		t.Errorf("reading on gives %d bytes and %v, want ErrReplaced", n, err)
	} else {
		f.requireContext(t, err, "read artifact")
	}
}

func TestAnArtifactThatCannotBeReadLeavesTheFormerOne(t *testing.T) {
	f := newStore(t)
	c := catalogOf("app", f.clock.Now())
	must(t, f.SaveCatalog(t.Context(), c, artifacts(map[Artifact]string{ArtifactSBOM: "old sbom"})))
	broken := io.MultiReader(zeros(chunkBytes), iotest.ErrReader(errors.New("the spool file is gone")))
	err := f.SaveCatalog(t.Context(), c, map[Artifact]io.Reader{ArtifactSBOM: broken})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("artifact sbom: read: the spool file is gone")) {
		t.Errorf("got %v, want an error that names the artifact and its cause", err)
	}
	equal(t, "the SBOM", f.artifact(t, "app", ArtifactSBOM), "old sbom")
}
