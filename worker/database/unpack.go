package database

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of decompression. It is the largest window that zstd's own command line tool
// accepts by default (without "--long").
const maxWindow = 128 << 20

// archiveFormat returns "zst" or "gz" for an archive that can be read, and "" for any other.
func archiveFormat(name string) string {
	switch {
	case strings.HasSuffix(name, ".tar.zst"):
		return "zst"
	case strings.HasSuffix(name, ".tar.gz"):
		return "gz"
	}
	return ""
}

// unpack writes the database file in an archive to target. It writes nothing else of the
// archive, and returns an error if the archive has no database file.
func unpack(archive, format, target string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	content, closeContent, err := decompress(in, format)
	if err != nil {
		return fmt.Errorf("unpacking the database: %w", err)
	}
	defer closeContent()

	files := tar.NewReader(content)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the database's archive has no %s", v6.VulnerabilityDBFileName)
		}
		if err != nil {
			return fmt.Errorf("unpacking the database: %w", err)
		}
		// A database archive needs no links, directories or other paths.
		if header.Typeflag == tar.TypeReg && path.Clean(header.Name) == v6.VulnerabilityDBFileName {
			return extract(files, target)
		}
	}
}

// decompress returns the uncompressed content, and a function that closes it.
func decompress(in io.Reader, format string) (io.Reader, func(), error) {
	if format == "gz" {
		reader, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, err
		}
		return reader, func() { reader.Close() }, nil
	}
	reader, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, nil, err
	}
	return reader, reader.Close, nil
}

// extract writes the database file, and returns an error if it exceeds maxDatabaseBytes.
func extract(from io.Reader, target string) (err error) {
	out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	size, err := io.Copy(out, io.LimitReader(from, maxDatabaseBytes+1))
	if err != nil {
		return fmt.Errorf("unpacking the database, after %d bytes: %w", size, err)
	}
	if size > maxDatabaseBytes {
		return fmt.Errorf("the database is larger than %d MiB", maxDatabaseBytes>>20)
	}
	return nil
}
