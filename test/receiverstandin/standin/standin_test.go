package standin

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	event = `{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"application/json",
		"data":{"kind":"Changes","title":"New","sections":[{"repository":"shop/web"}]}}`
	card = `{"type":"message","attachments":[{"contentType":"application/vnd.microsoft.card.adaptive","content":{"type":"AdaptiveCard",
		"body":[{"inlines":[{"text":"New"}]}]}}]}`
	alert    = `[{"labels":{"alertname":"a"},"endsAt":"2026-05-04T12:00:00Z"}]`
	later    = `[{"labels":{"alertname":"a"},"endsAt":"2026-05-04T13:00:00Z"}]`
	findings = `{"findings":[{"title":"CVE-1 in x"}]}`
	sbom     = `{"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"name":"x"}]}`
)

// Each program accepts what it should, and refuses another one's credentials and content. The state is that of the programs.
func TestPrograms(t *testing.T) {
	const wrong = "fedcba9876543210fedcba9876543210fedcba98"
	s := New("http://127.0.0.1:1", io.Discard)
	server := httptest.NewServer(s.Programs())
	defer server.Close()
	dojo := map[string]string{
		"scan_type": "Generic Findings Import", "auto_create_context": "true", "close_old_findings": "true",
		"product_name": "shop", "engagement_name": "e", "test_title": "Pod/web",
	}
	track := map[string]string{"projectName": "shop/Pod/web/main", "projectVersion": "e", "autoCreate": "true"}
	reimport := func(token string) *http.Request {
		return withForm(t, DefectDojoPath+"/api/v2/reimport-scan/", dojo, "file", findings, "Authorization", "Token "+token)
	}
	upload := func(token string) *http.Request {
		return withForm(t, DependencyTrackPath+"/api/v1/bom", track, "bom", sbom, "X-Api-Key", token)
	}
	for name, tt := range map[string]struct {
		request *http.Request
		want    int
	}{
		"event":               {signed(t, Token, event), http.StatusNoContent},
		"event, wrong token":  {signed(t, wrong, event), http.StatusUnauthorized},
		"no event":            {signed(t, Token, `{}`), http.StatusBadRequest},
		"card":                {newRequest(t, TeamsPath, card), http.StatusAccepted},
		"no card":             {newRequest(t, TeamsPath, event), http.StatusBadRequest},
		"alert":               {authenticated(t, Token, alert), http.StatusOK},
		"alert, wrong token":  {authenticated(t, wrong, later), http.StatusUnauthorized},
		"alert without name":  {authenticated(t, Token, `[{"endsAt":"2026-05-04T12:00:00Z"}]`), http.StatusBadRequest},
		"import":              {reimport(Token), http.StatusCreated},
		"import, wrong token": {reimport(wrong), http.StatusUnauthorized},
		"import without form": {newRequest(t, DefectDojoPath+"/api/v2/reimport-scan/", findings, "Authorization", "Token "+Token), http.StatusBadRequest},
		"SBOM":                {upload(Token), http.StatusOK},
		"SBOM, wrong token":   {upload(wrong), http.StatusUnauthorized},
		"redirect":            {newRequest(t, RedirectPath, "{}"), http.StatusTemporaryRedirect},
		"what does not exist": {newRequest(t, "api/v2/alerts", alert), http.StatusNotFound},
	} {
		if got := send(t, server.URL, tt.request); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	s.change("shop", func(state *State) { state.LosesAnswers = 1 })
	if got := send(t, server.URL, reimport(Token)); got != http.StatusServiceUnavailable {
		t.Errorf("an import whose answer is lost: %d, want 503", got)
	}
	dojo["close_old_findings"] = "false"
	send(t, server.URL, withForm(t, DefectDojoPath+"/api/v2/reimport-scan/", dojo, "file", `{"findings":[{"title":"CVE-2 in x"}]}`, "Authorization", "Token "+Token))
	send(t, server.URL, authenticated(t, Token, later))
	send(t, server.URL, authenticated(t, Token, alert))
	want := &State{
		Events: []Event{{ID: "1", Kind: "Changes", Title: "New", Repositories: []string{"shop/web"}}}, Cards: []string{"New"},
		Alerts:   []Alert{{Labels: map[string]string{"alertname": "a"}, EndsAt: time.Date(2026, 5, 4, 13, 0, 0, 0, time.UTC)}},
		Tests:    map[string]Test{"shop/e/Pod/web": {Imports: 3, Open: []string{"CVE-1 in x", "CVE-2 in x"}}},
		Projects: map[string]Project{"shop/Pod/web/main@e": {Uploads: 1, Components: []string{"x"}}},
	}
	s.change("shop", func(state *State) {
		if len(state.Refused) != 8 {
			t.Errorf("refused: %q, want 8 reasons", state.Refused)
		}
		got := *state
		got.Refused = nil
		if diff := cmp.Diff(want, &got); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	})
}

func newRequest(t *testing.T, path, body string, header ...string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/shop/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	return request
}

func signed(t *testing.T, token, body string) *http.Request {
	t.Helper()
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(body))
	return newRequest(t, WebhookPath, body, "X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
}

func authenticated(t *testing.T, password, body string) *http.Request {
	t.Helper()
	request := newRequest(t, AlertmanagerPath+"/api/v2/alerts", body)
	request.SetBasicAuth(User, password)
	return request
}

func withForm(t *testing.T, path string, fields map[string]string, file, content string, header ...string) *http.Request {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, value := range fields {
		if err := form.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	part, err := form.CreateFormFile(file, "a.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(part, content); err != nil {
		t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return newRequest(t, path, body.String(), append(header, "Content-Type", form.FormDataContentType())...)
}

// send sends a request without following redirects, and returns the status of the answer.
func send(t *testing.T, server string, request *http.Request) int {
	t.Helper()
	sent := request.Clone(t.Context())
	var err error
	if sent.URL, err = sent.URL.Parse(server + request.URL.Path); err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(sent)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
