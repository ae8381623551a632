package dependencytrack

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/scanner-operator/scanner-operator/notifier/internal/outcometest"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

// FuzzAnswer: whatever Dependency-Track, or a proxy before it, answers, the outcome is one that the notifier may pass on. An SBOM counts
// as uploaded only if the answer is an object that says so.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{`{"token":"5c0ddbf1"}`, `{"token":""}`, `{"title":"Unauthorized","status":401}`, `{"title":"<b>\n"}`, `<html>`, ``} {
		for _, status := range []uint16{200, 201, 204, 302, 400, 401, 403, 404, 413, 429, 500, 503} {
			f.Add(status, "120", []byte(body))
		}
	}
	exporter := NewExporter(receiver.Network{})
	f.Fuzz(func(t *testing.T, status uint16, retryAfter string, body []byte) {
		if status < 200 || status > 999 {
			return // an HTTP client returns no such response
		}
		answer := receiver.Answer{Status: int(status), Header: http.Header{"Retry-After": {retryAfter}}, Body: body, Sent: 5 << 20}
		got := exporter.outcome(answer, export.DependencyTrackProject{Name: "shop/Deployment/api/web", Version: "blue"})
		if err := outcometest.Check(got); err != nil {
			t.Errorf("%d %q becomes %+v: %v", status, body, got, err)
		}
		if got.Result == announce.Delivered && (!answer.IsOK() || !json.Valid(body) || !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{"))) {
			t.Errorf("%d %q is taken for an accepted SBOM", status, body)
		}
	})
}
