package database

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	v6 "github.com/anchore/grype/grype/db/v6"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// maxListingBytes bounds the listing, which is a few hundred bytes.
const maxListingBytes = 1 << 20

// Listing describes the newest build that a source offers.
type Listing struct {
	workerapi.Database
	// Archive is where the build is downloaded from.
	Archive *url.URL
	// Status is active, deprecated or eol.
	Status string
}

// Source is where builds are published.
type Source struct {
	url  *url.URL
	http *http.Client
	// stallTimeout is how long the server may send nothing.
	stallTimeout time.Duration
}

// NewSource parses a source's URL as Grype does: unless the URL names a .json file, the listing is at
// /v6/latest.json below it. Besides http and https, file URLs are allowed, for a mounted volume. All requests use
// transport; nil means http.DefaultTransport, which knows no file URLs.
func NewSource(address string, transport http.RoundTripper) (*Source, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the database URL is not a URL")
	}
	// A file URL with a host would name another machine.
	switch {
	case u.Scheme == "file" && u.Host == "" && u.Path != "":
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
	default:
		return nil, fmt.Errorf("the database URL %s must be an http, https or file URL", redactedURL(u))
	}
	if !strings.HasSuffix(u.Path, ".json") {
		u = u.JoinPath(fmt.Sprintf("v%d", v6.ModelVersion), "latest.json")
	}
	return &Source{url: u, http: &http.Client{Transport: transport, CheckRedirect: checkRedirect}, stallTimeout: stallTimeout}, nil
}

// maxRedirects is the bound of Go's default policy, which checkRedirect replaces.
const maxRedirects = 10

// checkRedirect allows only redirects that keep the protection: never from HTTPS to HTTP, and never to a file of this pod.
func checkRedirect(next *http.Request, via []*http.Request) error {
	from := via[len(via)-1].URL
	switch {
	case len(via) >= maxRedirects:
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	case next.URL.Scheme == from.Scheme, from.Scheme == "http" && next.URL.Scheme == "https":
		return nil
	}
	return fmt.Errorf("it redirects to %s, which is not followed from %s", redactedURL(next.URL), from.Scheme)
}

// NewTransport returns the transport to a source, for http, https and file URLs, with proxies from the environment. It trusts the CAs of a
// PEM bundle, if any, beside the well-known ones. It returns an error if the bundle holds no certificate.
func NewTransport(authorities string) (http.RoundTripper, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	transport.RegisterProtocol("file", http.NewFileTransport(http.Dir("/"))) //nolint:gosec // only the operator's configuration names files
	if authorities == "" {
		return transport, nil
	}
	roots, err := registry.Authorities(authorities)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// String returns the listing's URL as redactedURL does: it may be logged.
func (s *Source) String() string { return redactedURL(s.url) }

// Latest fetches the listing and validates it.
func (s *Source) Latest(ctx context.Context) (Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	body, err := s.get(ctx, s.url)
	if err != nil {
		return Listing{}, fmt.Errorf("reading the database listing: %w", err)
	}
	defer body.Close()
	// Grype's own type of a listing (grype/db/v6/distribution) fails to decode listings that validate can explain.
	var document struct {
		Status        string    `json:"status"`
		SchemaVersion string    `json:"schemaVersion"`
		Built         time.Time `json:"built"`
		Path          string    `json:"path"`
		Checksum      string    `json:"checksum"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxListingBytes)).Decode(&document); err != nil {
		return Listing{}, fmt.Errorf("the database listing at %s is not readable: %w", s, err)
	}
	listing := Listing{
		Database: workerapi.Database{Built: document.Built.UTC(), SchemaVersion: document.SchemaVersion, Checksum: document.Checksum},
		Archive:  s.archive(document.Path),
		Status:   document.Status,
	}
	return listing, listing.validate()
}

// archive resolves a path of the listing. The path is relative to the listing, on the same host and with the same query.
func (s *Source) archive(name string) *url.URL {
	u := *s.url
	u.Path = path.Join(path.Dir(u.Path), path.Clean("/"+name))
	return &u
}

var sha256Digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// validate returns an error that describes why the listing is unusable.
func (l Listing) validate() error {
	model := fmt.Sprintf("v%d.", v6.ModelVersion)
	switch {
	case l.Built.IsZero():
		return errors.New("the database listing has no build time")
	case !strings.HasPrefix(l.SchemaVersion, model):
		return fmt.Errorf("the database listing offers schema %q, this worker reads %s*", l.SchemaVersion, model)
	case !sha256Digest.MatchString(l.Checksum):
		return errors.New("the database listing has no sha256 checksum")
	case archiveFormat(l.Archive.Path) == "":
		return fmt.Errorf("the database listing offers %q, this worker reads .tar.zst and .tar.gz", path.Base(l.Archive.Path))
	}
	return nil
}

// get opens a URL. Its errors contain the URL without credentials and query.
func (s *Source) get(ctx context.Context, u *url.URL) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redactedURL(u), withoutURL(err))
	}
	// Without this header, Go's transport decompresses a gzip-encoded response, and the checksum does not match.
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "scanner-grype")
	response, err := s.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redactedURL(u), withoutURL(err))
	}
	// Other successful statuses, such as 206, do not carry the whole file.
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s: %s", redactedURL(u), response.Status)
	}
	return response.Body, nil
}

// redactedURL returns scheme, host and path of a URL. All other parts may be secret, such as credentials and the query.
func redactedURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// withoutURL removes the complete URL that net/http and net/url add to their errors.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
