package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one entry of a layer. The zero value is an empty regular file with mode 0644, owned by root.
type File struct {
	Content []byte
	// Mode holds the permission bits, with fs.ModeDir for a directory. 0 means 0644, or 0755 for a directory. fs.ModeSticky is kept;
	// other type bits are an error.
	Mode fs.FileMode
	// Link makes the entry a symbolic link to this target. Content and Mode are then ignored.
	Link string
	// UID and GID are the owner of the entry.
	UID, GID int
	// Modified is the modification time, for content whose age matters. The zero value means a fixed time.
	Modified time.Time
}

// timestamp is the time of every image, and of every file without a time of its own. It is fixed, since a digest must depend on content
// alone. It is not zero, since some tools treat a zero time as missing.
var timestamp = time.Unix(1, 0).UTC()

// Files returns a layer with the given files, by absolute path. Parent directories are added with mode 0755 unless they are given. The
// entries are sorted by path.
func Files(files map[string]File) (v1.Layer, error) {
	all, err := withParents(files)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, name := range sortedKeys(all) {
		if err := writeEntry(writer, name, all[name]); err != nil {
			return nil, fmt.Errorf("layer entry %s: %w", name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	// The layer is compressed once, since the digest, the push and a saved copy need the same bytes. Speed matters more than size: these
	// images rarely leave the machine.
	return tarball.LayerFromOpener(open, tarball.WithCompressedCaching, tarball.WithCompressionLevel(gzip.BestSpeed))
}

// withParents checks the paths and adds their parent directories.
func withParents(files map[string]File) (map[string]File, error) {
	all := maps.Clone(files)
	for name := range files {
		if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
			return nil, fmt.Errorf("layer entry %q: the path must be absolute, clean and not the root", name)
		}
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			if _, listed := all[dir]; !listed {
				all[dir] = File{Mode: fs.ModeDir | 0o755}
			}
		}
	}
	return all, nil
}

func writeEntry(writer *tar.Writer, name string, file File) error {
	header, err := entryHeader(name, file)
	if err != nil {
		return err
	}
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	_, err = writer.Write(file.Content)
	return err
}

// entryHeader returns the tar header in the form of image layers: no leading slash, a trailing slash for directories.
func entryHeader(name string, file File) (*tar.Header, error) {
	header := &tar.Header{Name: strings.TrimPrefix(name, "/"), ModTime: timestamp, Uid: file.UID, Gid: file.GID, Format: tar.FormatPAX}
	if !file.Modified.IsZero() {
		header.ModTime = file.Modified.UTC().Truncate(time.Second)
	}
	switch {
	case file.Link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, file.Link, 0o777
	case file.Mode.IsDir():
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, header.Name+"/", tarMode(file.Mode, 0o755)
	case file.Mode.IsRegular():
		header.Typeflag, header.Size, header.Mode = tar.TypeReg, int64(len(file.Content)), tarMode(file.Mode, 0o644)
	default:
		return nil, fmt.Errorf("mode %v is neither a file, a directory nor a link", file.Mode)
	}
	return header, nil
}

// tarMode converts Go's mode to the bits of a tar header. The sticky bit has another position there.
func tarMode(mode, otherwise fs.FileMode) int64 {
	const tarSticky = 0o1000 // POSIX ustar, TSVTX
	bits := int64(mode.Perm())
	if bits == 0 {
		bits = int64(otherwise)
	}
	if mode&fs.ModeSticky != 0 {
		bits |= tarSticky
	}
	return bits
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
