package api

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quay/claircore"
)

// FuzzAnswers: any answer of Clair is refused, or contains no nil where callers do not expect one.
func FuzzAnswers(f *testing.F) {
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) == 0 {
		f.Fatal("no recordings", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := bytes.Cut(content, []byte("\n\n"))
		f.Add(body)
	}
	f.Add([]byte(`{"packages":{"1":null},"environments":{"1":[null]}}`))
	client, err := New(Options{URL: "http://clair"})
	if err != nil {
		f.Fatal(err)
	}
	digest := claircore.MustParseDigest("sha256:93202d35d2bacc8d2fd5b01a823b0b2e5a5b82aaa9b4423a805aadd3fdbc6448")
	f.Fuzz(func(t *testing.T, body []byte) {
		got := &answer{status: http.StatusOK, header: http.Header{}, body: body}
		if report, err := client.decodeIndexReport(got, digest); err == nil {
			report.IndexRecords()
			_ = client.Failure(report, claircore.Manifest{})
		}
		if report, err := client.vulnerabilityReport(got, digest); err == nil {
			for _, vulnerability := range report.Vulnerabilities {
				_ = vulnerability.Name
			}
			for _, environments := range report.Environments {
				for _, environment := range environments {
					_ = environment.IntroducedIn
				}
			}
		}
		if updates, err := client.updates(got); err == nil && updates.Latest == nil {
			t.Error("no updates, and no error")
		}
		_, _ = ParseWebhook(bytes.NewReader(body))
		client.http.Transport = failingServer(body)
		_, err := client.do(t.Context(), call{method: http.MethodPost})
		if text := err.Error(); len(text) > 2*maxMessageBytes || !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\x00") {
			t.Errorf("not one bounded line: %q", text)
		}
	})
}

// failingServer answers every request with status 500 and this body.
type failingServer []byte

// RoundTrip implements http.RoundTripper.
func (s failingServer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusInternalServerError, Body: io.NopCloser(bytes.NewReader(s))}, nil
}
