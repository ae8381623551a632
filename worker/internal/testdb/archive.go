package testdb

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/db/v6/distribution"
	"github.com/klauspost/compress/zstd"
)

// archive writes the database in from as an archive into to, in the way that Grype distributes its own, with the listing beside it.
// Grype's own packaging needs the zstd program and the working directory, and never closes the database.
func archive(from, to string, built time.Time) error {
	version := fmt.Sprintf("v%d.%d.%d", v6.ModelVersion, v6.Revision, v6.Addition)
	// The name follows Grype's convention.
	name := fmt.Sprintf("vulnerability-db_%s_%s_%d.tar.zst", version, built.Format(time.RFC3339), built.Unix())
	digest, err := pack(filepath.Join(from, v6.VulnerabilityDBFileName), filepath.Join(to, name), built)
	if err != nil {
		return err
	}
	// The format of https://grype.anchore.io/databases/v6/latest.json.
	listing, err := json.MarshalIndent(map[string]string{
		"status": string(distribution.StatusActive), "schemaVersion": version, "built": built.Format(time.RFC3339),
		"path": name, "checksum": digest,
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, distribution.LatestFileName), append(listing, '\n'), 0o644)
}

// pack writes one file into a tar.zst archive and returns the archive's digest.
func pack(file, archive string, modified time.Time) (digest string, err error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return "", err
	}
	out, err := os.Create(archive)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	// The digest is that of the compressed archive.
	sum := sha256.New()
	encoder, err := zstd.NewWriter(io.MultiWriter(out, sum))
	if err != nil {
		return "", err
	}
	// One file, without owner or other traces of this machine.
	files := tar.NewWriter(encoder)
	header := &tar.Header{Name: filepath.Base(file), Size: info.Size(), Mode: 0o644, ModTime: modified, Typeflag: tar.TypeReg}
	if err := files.WriteHeader(header); err != nil {
		return "", err
	}
	if _, err := io.Copy(files, in); err != nil {
		return "", err
	}
	if err := errors.Join(files.Close(), encoder.Close()); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
