package catalog_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anchore/syft/syft/format/syftjson/model"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// pulled pushes an image and pulls it.
func pulled(t *testing.T, image v1.Image) *registry.Image {
	t.Helper()
	server := registrytest.NewRegistry(t, nil)
	puller := registry.Puller{
		Registries: []workerapi.Registry{{Host: server.Host, PlainHTTP: true}},
		Log:        slog.New(slog.DiscardHandler), Now: time.Now,
	}
	img, err := puller.Pull(t.Context(), []string{server.Push(t, "app:1", image)}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// setTempDir sets an empty temporary directory for the test, and returns it.
func setTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

func remainingFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestSBOMOfImages(t *testing.T) {
	for what, c := range map[string]struct {
		files    registrytest.Files
		distro   string
		packages []string // "name version" that must be among the packages
	}{
		"Debian": {fixture.Debian(), "debian 12", []string{"libssl3 3.0.9-1", "golang.org/x/net v0.7.0"}},
		"Alpine": {fixture.Alpine(), "alpine 3.18.2", []string{"musl 1.2.4-r0", "stdlib go1.22.0"}},
		// Only the packages show that the RPM database was read: an unreadable one is no error.
		"Rocky":     {fixture.Rocky(t), "rocky 9.2", []string{"openssl-libs 1:3.0.7-6.el9_2", "tar 2:1.34-6.el9"}},
		"no distro": {registrytest.Files{"hello": "world"}, "", nil},
	} {
		t.Run(what, func(t *testing.T) {
			dir := setTempDir(t)
			s, err := catalog.Limits{}.SBOM(t.Context(), pulled(t, registrytest.Image(t, c.files)), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if got := catalog.Distro(s); got != c.distro {
				t.Errorf("distro %q, want %q", got, c.distro)
			}
			var found []string
			for p := range s.Artifacts.Packages.Enumerate() {
				found = append(found, p.Name+" "+p.Version)
			}
			for _, want := range c.packages {
				if !slices.Contains(found, want) {
					t.Errorf("package %q is missing, found are %q", want, found)
				}
			}
			if names := remainingFiles(t, dir); len(names) > 0 {
				t.Errorf("left in the temporary directory: %q", names)
			}
		})
	}
}

func TestUnreadableLayers(t *testing.T) {
	gzipped := types.DockerLayer
	for what, c := range map[string]struct {
		content   string
		mediaType types.MediaType
	}{
		"corrupt gzip":            {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + strings.Repeat("\xff", 64), gzipped},
		"not a tar archive":       {strings.Repeat("not a tar archive ", 100), types.OCIUncompressedLayer},
		"unknown kind of a layer": {"anything", "application/vnd.example.layer"},
	} {
		t.Run(what, func(t *testing.T) {
			image, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(c.content), c.mediaType))
			if err != nil {
				t.Fatal(err)
			}
			dir := setTempDir(t)
			_, err = catalog.Limits{}.SBOM(t.Context(), pulled(t, image), slog.New(slog.DiscardHandler))
			var known *failure.Error
			if !errors.As(err, &known) || known.Reason != workerapi.ReasonNotAnImage {
				t.Errorf("got %v, want reason %s", err, workerapi.ReasonNotAnImage)
			}
			if names := remainingFiles(t, dir); len(names) > 0 {
				t.Errorf("left in the temporary directory: %q", names)
			}
		})
	}
}

// TestLayersMustBeThoseOfTheConfiguration checks the diff IDs of layers: no node runs an image whose layers differ from its
// configuration.
func TestLayersMustBeThoseOfTheConfiguration(t *testing.T) {
	image := registrytest.Image(t, fixture.Alpine(), registrytest.Files{"etc/motd": "hello\n"})
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	other := config.RootFS.DiffIDs[0]
	config.RootFS.DiffIDs[1] = v1.Hash{Algorithm: other.Algorithm, Hex: strings.Repeat("0", len(other.Hex))}
	altered, err := mutate.ConfigFile(image, config)
	if err != nil {
		t.Fatal(err)
	}
	dir := setTempDir(t)
	_, err = catalog.Limits{}.SBOM(t.Context(), pulled(t, altered), slog.New(slog.DiscardHandler))
	var known *failure.Error
	if !errors.As(err, &known) || known.Reason != workerapi.ReasonNotAnImage || !strings.Contains(err.Error(), "layer 2 of 2") {
		t.Errorf("got %v, want %s about layer 2", err, workerapi.ReasonNotAnImage)
	}
	if names := remainingFiles(t, dir); len(names) > 0 {
		t.Errorf("left in the temporary directory: %q", names)
	}
}

func TestTheSameLayerTwiceTakesItsSpaceOnce(t *testing.T) {
	setTempDir(t)
	files := registrytest.Files{"lib/apk/db/installed": fixture.Alpine()["lib/apk/db/installed"], "big": strings.Repeat("x", 1<<20)}
	image := registrytest.Image(t, files, files, files)
	s, err := catalog.Limits{Scratch: 2 << 20}.SBOM(t.Context(), pulled(t, image), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if s.Artifacts.Packages.PackageCount() == 0 {
		t.Error("no package was found")
	}
}

// TestTemporaryDirectoryProblems checks that a full or read-only disk is the pod's problem, not the image's.
func TestTemporaryDirectoryProblems(t *testing.T) {
	img := pulled(t, registrytest.Image(t, registrytest.Files{"a": "b"}))
	t.Setenv("TMPDIR", "/proc/no-such-directory")
	_, err := catalog.Limits{}.SBOM(t.Context(), img, slog.New(slog.DiscardHandler))
	var known *failure.Error
	if !errors.As(err, &known) || known.Reason != workerapi.ReasonCatalogFailed {
		t.Errorf("got %v, want reason %s", err, workerapi.ReasonCatalogFailed)
	}
}

// TestSQLiteDriverIsRegistered checks the name of the driver, without which Syft silently skips RPM databases.
func TestSQLiteDriverIsRegistered(t *testing.T) {
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Errorf("no SQL driver is called sqlite: %q", sql.Drivers())
	}
}

func TestWrite(t *testing.T) {
	document := model.Document{Source: model.Source{Name: "a & b"}, Schema: model.Schema{Version: "1.2.3"}}
	artifact, err := catalog.Write(t.TempDir(), document, workerapi.MaxSBOMContentBytes)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(artifact.Path)
	if err != nil {
		t.Fatal(err)
	}
	if artifact.Size != int64(len(raw)) {
		t.Errorf("artifact says %d bytes, the file has %d", artifact.Size, len(raw))
	}
	decoder, err := zstd.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	content, err := io.ReadAll(decoder)
	if err != nil {
		t.Fatal(err)
	}
	var got model.Document
	if err := json.Unmarshal(content, &got); err != nil || got.Source.Name != "a & b" || artifact.ContentSize != int64(len(content)) {
		t.Errorf("read back %+v (%v) of %d bytes, want the document of %d bytes", got.Source, err, len(content), artifact.ContentSize)
	}
}

// TestWriteWhatIsTooLarge checks that a document beyond the limit has a reason that names the limit, and leaves no file.
func TestWriteWhatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	document := model.Document{Source: model.Source{Name: strings.Repeat("x", 2<<20)}}
	_, err := catalog.Write(dir, document, 1<<20)
	var known *failure.Error
	if !errors.As(err, &known) || known.Reason != workerapi.ReasonImageTooLarge || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("got %v, want %s that names the limit", err, workerapi.ReasonImageTooLarge)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
