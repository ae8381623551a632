package grype

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/config"
)

// listingServer answers every request with a listing.
type listingServer []byte

// RoundTrip implements http.RoundTripper.
func (l listingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(l)), Request: r}, nil
}

// FuzzReadListing: a listing is refused with an error that names its host and not the rest of its address, or it has the time of a build, in UTC.
func FuzzReadListing(f *testing.F) {
	for _, seed := range []string{`{"built":"2026-01-01T01:00:00+01:00","schemaVersion":"v6.1.4","checksum":"sha256:a"}`, `{"built":"0001-01-01T00:00:00Z"}`, `{"built":1}`, `[]`, `<html>`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		settings := config.Default()
		settings.Grype.Database.URL = "https://mirror.example.com/databases?token=t0ken-of-the-mirror"
		b := &Backend{Options: Options{Config: settings, HTTP: &http.Client{Transport: listingServer(document)}}}
		database, err := b.readListing(t.Context())
		switch {
		case err != nil && (!strings.Contains(err.Error(), "mirror.example.com") || strings.Contains(err.Error(), "t0ken-of")):
			t.Errorf("%q is refused with %v", document, err)
		case err == nil && (database.Built.IsZero() || database.Built.Location() != time.UTC):
			t.Errorf("%q is taken for a build of %s", document, database.Built)
		}
	})
}
