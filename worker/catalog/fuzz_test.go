package catalog

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	stereoscopefile "github.com/anchore/stereoscope/pkg/file"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// archiveOf returns a layer's archive with these entries, of which each regular file has some content.
func archiveOf(f *testing.F, entries ...tar.Header) []byte {
	f.Helper()
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, entry := range entries {
		content := []byte("content of " + entry.Name)
		if entry.Typeflag == tar.TypeReg {
			entry.Size = int64(len(content))
		} else {
			content = nil
		}
		if err := writer.WriteHeader(&entry); err != nil {
			f.Fatal(err)
		}
		if _, err := writer.Write(content); err != nil {
			f.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		f.Fatal(err)
	}
	return archive.Bytes()
}

// FuzzLayers: any two archives as the layers of an image are indexed, or the image is refused for its content. Nothing is left on the disk, and
// nothing is written but the unpacked layers.
func FuzzLayers(f *testing.F) {
	lower := archiveOf(f, tar.Header{Name: "etc/", Typeflag: tar.TypeDir}, tar.Header{Name: "etc/os-release", Typeflag: tar.TypeReg}, tar.Header{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "etc"})
	f.Add(lower, archiveOf(f, tar.Header{Name: "etc/.wh.os-release", Typeflag: tar.TypeReg}, tar.Header{Name: "lib/x", Typeflag: tar.TypeLink, Linkname: "etc/os-release"}))
	f.Add(lower, archiveOf(f, tar.Header{Name: "../../outside", Typeflag: tar.TypeReg}, tar.Header{Name: "/absolute", Typeflag: tar.TypeReg}, tar.Header{Name: "lib/.wh..wh..opq", Typeflag: tar.TypeReg}))
	f.Add(archiveOf(f, tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "b"}, tar.Header{Name: "b", Typeflag: tar.TypeSymlink, Linkname: "a"}), lower[:len(lower)/2])
	f.Add([]byte("no archive"), archiveOf(f, tar.Header{Name: strings.Repeat("d/", maxPath/2) + "f", Typeflag: tar.TypeReg, Format: tar.FormatPAX}))
	dir := f.TempDir()
	f.Setenv("TMPDIR", dir)
	reference := name.MustParseReference("registry.example.com/team/app:1")
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		content, err := mutate.AppendLayers(empty.Image, static.NewLayer(lower, types.OCIUncompressedLayer), static.NewLayer(upper, types.OCIUncompressedLayer))
		if err != nil {
			t.Fatal(err)
		}
		img := &registry.Image{Content: content, Reference: reference, Root: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}}
		temp := stereoscopefile.NewTempDirGenerator("scanner-catalog")
		source, err := Limits{Scratch: 64 << 10}.open(t.Context(), img, temp)
		if err == nil {
			err = source.Close()
		} else {
			var failed *failure.Error
			if err = wrapReadError(img, err); !errors.As(err, &failed) || failed.Reason != workerapi.ReasonNotAnImage && failed.Reason != workerapi.ReasonImageTooLarge {
				t.Errorf("the failure is not about the image: %v", err)
			}
			err = nil
		}
		if err := errors.Join(err, temp.Cleanup()); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
	})
}
