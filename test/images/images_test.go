package images

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// contents returns an image's files as a container would see them.
func contents(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	stream := mutate.Extract(image)
	defer stream.Close()
	archive := tar.NewReader(stream)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files["/"+header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func built(t *testing.T, name string) map[string][]byte {
	t.Helper()
	d, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	image, err := d.build(t.Context(), Places{Root: filepath.Join("..", "..")}, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	return contents(t, image)
}

func TestDistributionsHaveTheirPackages(t *testing.T) {
	for distribution, want := range map[string]struct{ path, holds string }{
		"debian-12":   {"/var/lib/dpkg/status", "Package: openssl\n"},
		"alpine-3.18": {"/lib/apk/db/installed", "\nP:busybox\nV:1.36.1-r0\n"},
		"rocky-9":     {"/var/lib/rpm/rpmdb.sqlite", "SQLite format 3"},
	} {
		files, err := distributionFiles(distribution)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(files[want.path].Content), want.holds) {
			t.Errorf("%s: %s does not hold %q", distribution, want.path, want.holds)
		}
		if id, _, _ := strings.Cut(distribution, "-"); !strings.Contains(string(files["/etc/os-release"].Content), id) {
			t.Errorf("%s: /etc/os-release does not name it", distribution)
		}
	}
}

// The image must have no vulnerabilities in the future either, so it must not contain modules.
func TestStaticHasNoModules(t *testing.T) {
	info, err := buildinfo.Read(bytes.NewReader(built(t, Static)["/static"]))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Deps) > 0 {
		t.Errorf("the clean image links modules: %v", info.Deps)
	}
}

func TestWebRunsItsProgramAboveDebian(t *testing.T) {
	files := built(t, Web)
	for _, path := range []string{"/web", "/var/lib/dpkg/status", "/etc/os-release"} {
		if len(files[path]) == 0 {
			t.Errorf("%s is missing in %s", path, Web)
		}
	}
}

// Only the upgraded packages differ.
func TestWebUpdatedDiffersInOpenSSL(t *testing.T) {
	before, after := built(t, Web), built(t, WebUpdated)
	const status = "/var/lib/dpkg/status"
	want := strings.ReplaceAll(string(before[status]), "\nVersion: 3.0.9-1\n", "\nVersion: "+FixedOpenSSL+"\n")
	if diff := cmp.Diff(want, string(after[status])); diff != "" || strings.Count(want, FixedOpenSSL) != 2 {
		t.Errorf("want openssl and libssl3 to be newer, and nothing else (-want +got):\n%s", diff)
	}
	delete(before, status)
	delete(after, status)
	if !cmp.Equal(before, after) {
		t.Error("want no other file to differ")
	}
}

func TestLoadOfAnUnknownImageNamesIt(t *testing.T) {
	if _, err := Load(t.TempDir(), "shop/nothing"); err == nil || !strings.Contains(err.Error(), "shop/nothing") {
		t.Errorf("want an error that names the image, got %v", err)
	}
	if _, err := Load(t.TempDir(), Web); err == nil || !strings.Contains(err.Error(), "build it first") {
		t.Errorf("want advice to build the image first, got %v", err)
	}
}
