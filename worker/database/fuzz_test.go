package database

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/klauspost/compress/zstd"
)

// listingServer answers every request with a listing.
type listingServer []byte

// RoundTrip implements http.RoundTripper.
func (l listingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(l)), Request: r}, nil
}

// FuzzListing: a listing is refused, or it names an archive below the address of the source, with the credentials and the query of that address and no
// others, and a build whose directory has a valid name. The error never has the credentials.
func FuzzListing(f *testing.F) {
	const sum = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, name := range []string{"vulnerability-db.tar.zst", "../../other.tar.gz", "https://elsewhere.example.com/a.tar.zst", "//elsewhere/a.tar.zst", "a.tar.zst?x#y", "a%2f..%2fb.tar.gz", "a.zip"} {
		f.Add([]byte(`{"status":"active","schemaVersion":"v6.1.4","built":"2026-01-01T00:00:00Z","path":"` + name + `","checksum":"` + sum + `"}`))
	}
	f.Add([]byte(`{"schemaVersion":"v5.0.0"}`))
	f.Add([]byte(`[]`))
	const user, query = "robot:p4ssw0rd-of-the-robot", "token=t0ken-of-the-mirror"
	f.Fuzz(func(t *testing.T, document []byte) {
		source, err := NewSource("https://"+user+"@db.example.com/mirror/databases?"+query, listingServer(document))
		if err != nil {
			t.Fatal(err)
		}
		listing, err := source.Latest(t.Context())
		if err != nil {
			if text := err.Error() + source.String(); strings.Contains(text, "p4ssw0rd") || strings.Contains(text, "t0ken-of") {
				t.Errorf("the error discloses credentials: %s", text)
			}
			return
		}
		archive := listing.Archive
		if archive.Scheme != "https" || archive.Host != "db.example.com" || archive.User.String() != user || archive.RawQuery != query || !strings.HasPrefix(archive.Path, "/mirror/databases/v6/") {
			t.Errorf("%s leads to %s, want a file below /mirror/databases/v6 of the same host, with the same credentials", document, archive)
		}
		if parsed, err := archive.Parse(archive.String()); err != nil || parsed.Path != archive.Path || archiveFormat(parsed.Path) == "" {
			t.Errorf("%s leads to %s, which is read as %v, %v", document, archive, parsed, err)
		}
		if name := versionName(listing.Database); !isVersionName(name) || filepath.Base(name) != name {
			t.Errorf("%s would be installed in %q", document, name)
		}
	})
}

// maxPacked bounds a fuzzed archive: a few bytes can be the compressed form of many megabytes.
const maxPacked = 2 << 10

// FuzzUnpack: of an archive, only the database is written, with exactly its content. Any other archive is an error.
func FuzzUnpack(f *testing.F) {
	for _, entries := range [][]string{{v6.VulnerabilityDBFileName}, {"./" + v6.VulnerabilityDBFileName}, {"import.json", v6.VulnerabilityDBFileName}, {"../" + v6.VulnerabilityDBFileName}, {"/etc/passwd"}, nil} {
		var archive, zipped bytes.Buffer
		writer := tar.NewWriter(&archive)
		for _, name := range entries {
			content := "content of " + name
			if err := writer.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content))}); err != nil {
				f.Fatal(err)
			}
			if _, err := io.WriteString(writer, content); err != nil {
				f.Fatal(err)
			}
		}
		if err := writer.Close(); err != nil {
			f.Fatal(err)
		}
		encoder, err := zstd.NewWriter(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoder.EncodeAll(archive.Bytes(), nil), false)
		gz := gzip.NewWriter(&zipped)
		if _, err := gz.Write(archive.Bytes()); err != nil {
			f.Fatal(err)
		}
		if err := gz.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(zipped.Bytes(), true)
		f.Add(zipped.Bytes()[:zipped.Len()/2], true)
	}
	dir := f.TempDir()
	packed, target := filepath.Join(dir, "archive"), filepath.Join(dir, "target")
	f.Fuzz(func(t *testing.T, content []byte, gzipped bool) {
		if len(content) > maxPacked {
			t.Skip("it could take many megabytes")
		}
		if err := os.WriteFile(packed, content, 0o600); err != nil {
			t.Fatal(err)
		}
		format := "zst"
		if gzipped {
			format = "gz"
		}
		err := unpack(packed, format, target)
		written, missing := os.ReadFile(target)
		if missing == nil {
			if err := os.Remove(target); err != nil {
				t.Fatal(err)
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("beside the archive, there are %v, %v", entries, err)
		}
		want, found := databaseIn(content, format)
		if (err == nil) != found || err == nil && !bytes.Equal(want, written) {
			t.Errorf("unpacked %d bytes, %v; the archive has a database: %v, of %d bytes", len(written), err, found, len(want))
		}
	})
}

// databaseIn returns the database of an archive that is read into memory. found is false unless the database can be read to its end.
func databaseIn(packed []byte, format string) (content []byte, found bool) {
	unpacked, stop, err := decompress(bytes.NewReader(packed), format)
	if err != nil {
		return nil, false
	}
	defer stop()
	archive := tar.NewReader(unpacked)
	for {
		header, err := archive.Next()
		if err != nil {
			return nil, false
		}
		if header.Typeflag == tar.TypeReg && filepath.Clean(header.Name) == v6.VulnerabilityDBFileName {
			content, err = io.ReadAll(archive)
			return content, err == nil
		}
	}
}
