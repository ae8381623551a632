package build_test

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

var amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}

func TestFilesWritesEntriesSortedWithParentsAndModes(t *testing.T) {
	layer := mustFiles(t, map[string]build.File{
		"/usr/bin/tool": {Content: []byte("#!"), Mode: 0o755},
		"/etc/hostname": {Content: []byte("shop\n"), UID: 7, GID: 8},
		"/etc/link":     {Link: "hostname"},
		"/tmp":          {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	})
	want := []entry{
		{Name: "etc/", Type: tar.TypeDir, Mode: 0o755},
		{Name: "etc/hostname", Type: tar.TypeReg, Mode: 0o644, Content: "shop\n", UID: 7, GID: 8},
		{Name: "etc/link", Type: tar.TypeSymlink, Mode: 0o777, Link: "hostname"},
		{Name: "tmp/", Type: tar.TypeDir, Mode: 0o1777},
		{Name: "usr/", Type: tar.TypeDir, Mode: 0o755},
		{Name: "usr/bin/", Type: tar.TypeDir, Mode: 0o755},
		{Name: "usr/bin/tool", Type: tar.TypeReg, Mode: 0o755, Content: "#!"},
	}
	if diff := cmp.Diff(want, entries(t, layer)); diff != "" {
		t.Errorf("entries of the layer (-want +got):\n%s", diff)
	}
}

func TestFilesHaveAFixedTimeOrTheirOwn(t *testing.T) {
	own := time.Date(2026, 11, 21, 10, 0, 0, 500, time.UTC)
	content, err := mustFiles(t, map[string]build.File{"/fixed": {}, "/own": {Modified: own}}).Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	archive := tar.NewReader(content)
	for header, err := archive.Next(); err == nil; header, err = archive.Next() {
		got[header.Name] = header.ModTime.Unix()
	}
	if diff := cmp.Diff(map[string]int64{"fixed": 1, "own": own.Unix()}, got); diff != "" {
		t.Errorf("seconds since 1970 of the entries (-want +got):\n%s", diff)
	}
}

func TestFilesRefusesPathsThatAreNotPlain(t *testing.T) {
	for _, path := range []string{"relative", "/", "/a/../b", "/a//b", "/a/"} {
		if _, err := build.Files(map[string]build.File{path: {}}); err == nil {
			t.Errorf("path %q was accepted in a layer", path)
		}
	}
}

func TestFilesRefusesDevices(t *testing.T) {
	if _, err := build.Files(map[string]build.File{"/dev/null": {Mode: fs.ModeDevice | 0o666}}); err == nil {
		t.Error("a device was accepted in a layer")
	}
}

func TestImageDigestIsReproducible(t *testing.T) {
	digest := func() v1.Hash {
		image := mustImage(t, build.Config{Platform: amd64, Entrypoint: []string{"/a"}},
			mustFiles(t, map[string]build.File{"/a": {Content: []byte("a")}, "/b": {}, "/c": {}, "/d": {}}))
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	first := digest()
	for range 20 {
		if again := digest(); again != first {
			t.Fatalf("the same input gave the digests %s and %s", first, again)
		}
	}
}

func TestImageConfiguration(t *testing.T) {
	arm := v1.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}
	tests := map[string]struct {
		config build.Config
		want   v1.Config
	}{
		"nothing said: no permissions, root directory, a search path": {
			config: build.Config{Platform: arm},
			want:   v1.Config{User: "65532:65532", WorkingDir: "/", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		},
		"all said": {
			config: build.Config{Platform: arm, User: "0:0", WorkingDir: "/srv", Env: []string{"PATH=/x"}, Entrypoint: []string{"/e"}, Cmd: []string{"c"}},
			want:   v1.Config{User: "0:0", WorkingDir: "/srv", Env: []string{"PATH=/x"}, Entrypoint: []string{"/e"}, Cmd: []string{"c"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file, err := mustImage(t, test.config, mustFiles(t, map[string]build.File{"/f": {}})).ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, file.Config); diff != "" {
				t.Errorf("configuration of the image (-want +got):\n%s", diff)
			}
			if got := file.Platform().String(); got != "linux/arm/v7" {
				t.Errorf("platform of the image: want linux/arm/v7, got %s", got)
			}
		})
	}
}

func TestImageNeedsAPlatform(t *testing.T) {
	if _, err := build.Image(build.Config{}); err == nil {
		t.Error("an image without a platform was accepted; a runtime would refuse it")
	}
}

func TestImageMediaTypesAreOCI(t *testing.T) {
	manifest, err := mustImage(t, build.Config{Platform: amd64}, mustFiles(t, map[string]build.File{"/f": {}})).Manifest()
	if err != nil {
		t.Fatal(err)
	}
	got := []types.MediaType{manifest.MediaType, manifest.Config.MediaType, manifest.Layers[0].MediaType}
	want := []types.MediaType{types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("media types of manifest, config, layer (-want +got):\n%s", diff)
	}
}

func TestPushedImageCanBePulledByTheReturnedDigest(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	image := mustImage(t, build.Config{Platform: amd64}, mustFiles(t, map[string]build.File{"/f": {Content: []byte("x")}}))

	digest, err := build.Push(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/shop/web:1", image)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(digest)
	if err != nil {
		t.Fatalf("pull %s: %v", digest, err)
	}
	layers, err := pulled.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if got := entries(t, layers[0])[0].Content; got != "x" {
		t.Errorf("content of /f after push and pull: want x, got %q", got)
	}
}

func TestPushedIndexHasOneManifestForEachPlatform(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	layer := mustFiles(t, map[string]build.File{"/f": {}})
	arm64 := v1.Platform{OS: "linux", Architecture: "arm64"}
	index, err := build.Index(mustImage(t, build.Config{Platform: amd64}, layer), mustImage(t, build.Config{Platform: arm64}, layer))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := build.Push(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/shop/web:1", index)
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []v1.Platform{amd64, arm64} {
		image, err := remote.Image(digest, remote.WithPlatform(platform))
		if err != nil {
			t.Fatalf("pull %s for %s: %v", digest, platform, err)
		}
		if file, err := image.ConfigFile(); err != nil || file.Architecture != platform.Architecture {
			t.Errorf("pulled for %s: want that architecture, got %+v (error %v)", platform, file, err)
		}
	}
}

func TestLocalRegistryUsesPlainHTTP(t *testing.T) {
	tests := map[string]string{
		build.LocalRegistry + "/a/b:1":    "http",
		"registry.example:5000/a/b:1":     "http", // passed as insecure below
		"registry.example/a/b:1":          "https",
		"ghcr.io/scanner-operator/a:v0.1": "https",
	}
	for reference, want := range tests {
		parsed, err := build.ParseReference(reference, "registry.example:5000")
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Context().Scheme(); got != want {
			t.Errorf("%s: want %s, got %s", reference, want, got)
		}
	}
}

func TestSavedImageLoadsWithTheSameDigest(t *testing.T) {
	image := mustImage(t, build.Config{Platform: amd64}, mustFiles(t, map[string]build.File{"/f": {}}))
	index, err := build.Index(image)
	if err != nil {
		t.Fatal(err)
	}
	for name, saved := range map[string]build.Pushable{"image": image, "index": index} {
		dir := filepath.Join(t.TempDir(), name)
		// Saving twice checks that Save replaces: an old build must never be pushed beside a new one.
		if err := errors.Join(build.Save(dir, saved), build.Save(dir, saved)); err != nil {
			t.Fatal(err)
		}
		loaded, err := build.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := saved.Digest()
		if got, err := loaded.Digest(); err != nil || got != want {
			t.Errorf("%s: saved with digest %s, loaded with %s (error %v)", name, want, got, err)
		}
	}
}

func TestLoadWithoutBuildIsAnError(t *testing.T) {
	if _, err := build.Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "build it first") {
		t.Errorf("loading from an empty directory: want advice to build first, got %v", err)
	}
}

func TestBinaryIsBuiltForThePlatformWithItsVariables(t *testing.T) {
	dir := writeModule(t, "package main\n\nimport \"runtime\"\n\nvar version string\n\nfunc main() { println(version, runtime.GOARCH) }\n")
	program := build.Program{Name: "tool", Dir: dir, Package: ".", Variables: map[string]string{"main.version": "v9.8.7"}}

	layer, err := build.Binary(t.Context(), program, v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	only := entries(t, layer)[0]
	if only.Name != "tool" || only.Mode != 0o755 {
		t.Errorf("want the executable /tool, got %s with mode %o", only.Name, only.Mode)
	}
	const machineAArch64 = 0xb7 // ELF header, e_machine
	if machine := only.Content[18]; machine != machineAArch64 {
		t.Errorf("the program is for ELF machine %#x; want arm64", machine)
	}
	if !strings.Contains(only.Content, "v9.8.7") {
		t.Error("the program does not have the version that the linker got")
	}
	if strings.Contains(only.Content, dir) {
		t.Errorf("the program holds a path of this machine: %s", dir)
	}
}

func TestBinaryErrorContainsCompilerOutput(t *testing.T) {
	dir := writeModule(t, "package main\n\nfunc main() { undefinedFunction() }\n")
	_, err := build.Binary(context.Background(), build.Program{Name: "tool", Dir: dir, Package: "."}, amd64)
	if err == nil || !strings.Contains(err.Error(), "undefinedFunction") {
		t.Errorf("want the compiler's complaint about undefinedFunction, got %v", err)
	}
}

// entry holds the checked parts of a layer's entry.
type entry struct {
	Name, Link, Content string
	Type                byte
	Mode                int64
	UID, GID            int
}

func entries(t *testing.T, layer v1.Layer) []entry {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var found []entry
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, entry{header.Name, header.Linkname, string(body), header.Typeflag, header.Mode, header.Uid, header.Gid})
	}
}

func mustFiles(t *testing.T, files map[string]build.File) v1.Layer {
	t.Helper()
	layer, err := build.Files(files)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func mustImage(t *testing.T, config build.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := build.Image(config, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// writeModule writes a Go module with one file.
func writeModule(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.test/tool\n\ngo 1.26.0\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
