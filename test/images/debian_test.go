package images

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

func TestFilesOfAPackage(t *testing.T) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, header := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./usr/bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./usr/bin/psql", Mode: 0o755, Size: 4},
		{Typeflag: tar.TypeLink, Name: "./usr/bin/also", Linkname: "./usr/bin/psql"},
		{Typeflag: tar.TypeSymlink, Name: "./bin/sh", Linkname: "dash"},
		{Typeflag: tar.TypeReg, Name: "./usr/share/doc/psql/copyright", Mode: 0o644, Size: 4},
	} {
		if err := writer.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			if _, err := writer.Write([]byte("psql")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	got := map[string]build.File{}
	if err := readTar(tar.NewReader(&archive), got); err != nil {
		t.Fatal(err)
	}
	program := build.File{Content: []byte("psql"), Mode: 0o755}
	want := map[string]build.File{"/usr/bin/psql": program, "/usr/bin/also": program, "/bin/sh": {Link: "dash"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files of the image (-want +got):\n%s", diff)
	}
}
