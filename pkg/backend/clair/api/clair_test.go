package api_test

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/quay/claircore"

	"github.com/scanner-operator/scanner-operator/pkg/backend/clair/api"
)

// Digests of the recordings.
var (
	goImage      = claircore.MustParseDigest("sha256:3cf74dd57349a7b91f7998ce924b4de2f66843018fa1befc1bb3c677c59c2653")
	alpineImage  = claircore.MustParseDigest("sha256:93202d35d2bacc8d2fd5b01a823b0b2e5a5b82aaa9b4423a805aadd3fdbc6448")
	underway     = claircore.MustParseDigest("sha256:f791b6fda995de078280cab75d18b4ed2dbd750bb01674f8865539029365b716")
	failed       = claircore.MustParseDigest("sha256:1b16a0e54cebd313097cca5b257a491fa7233ec9de366f2c4b1be145937f1bc0")
	notification = uuid.MustParse("368084e0-418d-41b1-8f3a-906bf4dc51e2")
)

// Requests of each kind. Other tests check their results.
var (
	indexState  = func(ctx context.Context, c *api.Client) error { _, err := c.IndexState(ctx); return err }
	index       = func(ctx context.Context, c *api.Client) error { _, err := c.Index(ctx, manifest()); return err }
	indexReport = func(ctx context.Context, c *api.Client) error { _, err := c.IndexReport(ctx, goImage); return err }
	report      = func(ctx context.Context, c *api.Client) error {
		_, err := c.VulnerabilityReport(ctx, alpineImage)
		return err
	}
	updates = func(ctx context.Context, c *api.Client) error {
		_, err := c.UpdateOperations(ctx, api.Vulnerabilities, "")
		return err
	}
	pages = func(ctx context.Context, c *api.Client) error {
		for _, err := range c.Notifications(ctx, notification) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	deleteOne  = func(ctx context.Context, c *api.Client) error { return c.Delete(ctx, goImage) }
	forget     = func(ctx context.Context, c *api.Client) error { return c.DeleteNotification(ctx, notification) }
	everything = map[string]func(context.Context, *api.Client) error{
		"index state": indexState, "index": index, "index report": indexReport, "vulnerability report": report, "updates": updates,
		"pages": pages, "delete one": deleteOne, "delete a notification": forget,
	}
)

func manifest() claircore.Manifest {
	return claircore.Manifest{Hash: goImage, Layers: []*claircore.Layer{{
		Hash: alpineImage, URI: "https://robot:hunter1@registry.example.com/v2/app/blobs/" + alpineImage.String() + "?X-Signature=hunter2",
		Headers: map[string][]string{"Authorization": {"Bearer hunter3.hunter3"}, "X-Registry-Auth": {"hunter4"}},
	}}}
}

// TestRecorded: Clair's recorded answer to each kind of request, and the resulting error.
func TestRecorded(t *testing.T) {
	for name, test := range map[string]struct {
		ask   func(context.Context, *api.Client) error
		kind  api.Kind
		layer api.LayerCause
	}{
		"index_state":                        {ask: indexState},
		"index_report_created":               {ask: index},
		"index_report_unknown":               {ask: indexReport, kind: api.NotIndexed},
		"index_report_underway":              {ask: indexReport, kind: api.Invalid}, // another digest than requested
		"vulnerability_report":               {ask: report},
		"vulnerability_report_no_data":       {ask: report, kind: api.NoData},
		"vulnerability_report_unknown":       {ask: report, kind: api.NotIndexed},
		"vulnerability_report_database_away": {ask: report, kind: api.Unavailable},
		"manifest_bogus":                     {ask: index, kind: api.BadManifest},
		"layer_no_tar":                       {ask: index, kind: api.LayerFailed, layer: api.LayerUnsupported},
		"layer_content_type":                 {ask: index, kind: api.LayerFailed, layer: api.LayerUnsupported},
		"layer_address":                      {ask: index, kind: api.LayerFailed, layer: api.LayerUnsupported},
		"layer_disallowed":                   {ask: index, kind: api.LayerFailed, layer: api.LayerUnsupported},
		"layer_not_found":                    {ask: index, kind: api.LayerFailed, layer: api.LayerMissing},
		"layer_digest_mismatch":              {ask: index, kind: api.LayerFailed, layer: api.LayerCorrupt},
		"layer_connection_refused":           {ask: index, kind: api.LayerFailed, layer: api.LayerUnreachable},
		"layer_host_unknown":                 {ask: index, kind: api.LayerFailed, layer: api.LayerUnreachable},
		"layer_unauthorized":                 {ask: index, kind: api.LayerFailed, layer: api.LayerRefused},
		"layer_bad_request":                  {ask: index, kind: api.LayerFailed, layer: api.LayerRefused},
		"throttled":                          {ask: index, kind: api.Throttled},
		"path_unknown":                       {ask: indexReport, kind: api.Invalid},
		"unauthorized":                       {ask: indexState, kind: api.Unauthorized},
		"deleted":                            {ask: deleteOne},
		"update_operations":                  {ask: updates},
		"update_operations_none":             {ask: updates},
		"update_operations_unchanged":        {ask: updates, kind: api.Invalid}, // without an ETag in the request
		"notification_last_page":             {ask: pages},
		"notification_unknown":               {ask: pages},
		"notification_deleted":               {ask: forget},
		"notification_delete_unknown":        {ask: forget},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.ask(t.Context(), newTestClient(t, recorded(t, name)))
			if got := api.KindOf(err); got != test.kind || (err == nil) != (test.kind == "") {
				t.Fatalf("error of kind %q, want %q: %v", got, test.kind, err)
			}
			var e *api.Error
			if errors.As(err, &e) && (e.Layer != test.layer || !strings.Contains(err.Error(), "127.0.0.1:")) {
				t.Errorf("layer %q, want %q and the host: %v", e.Layer, test.layer, err)
			}
		})
	}
}

// TestBroken: for every request, a Clair that answers like this gives an error of this kind.
func TestBroken(t *testing.T) {
	bomb := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		defer packed.Close()
		for zeros := make([]byte, 1<<20); ; {
			if _, err := packed.Write(zeros); err != nil {
				return
			}
		}
	}
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte(`{"state":`))
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		kind    api.Kind
		without []string // requests for which such an answer is no error
	}{
		"endless":              {endless(http.StatusOK), api.TooLarge, []string{"index", "delete one", "delete a notification"}},
		"endless and an error": {endless(http.StatusInternalServerError), api.Unavailable, nil},
		"a compressed bomb":    {bomb, api.TooLarge, []string{"delete one"}},
		"half a body":          {half, api.Invalid, nil},
		"half of a document":   {answering(200, `{"manifest_hash":"sha256:`), api.Invalid, []string{"delete a notification"}},
		"a page of a proxy":    {answering(200, "<html><body>Sign in</body></html>"), api.Invalid, []string{"delete a notification"}},
		"nothing":              {answering(200, ""), api.Invalid, []string{"delete a notification"}},
		"null":                 {answering(200, "null"), api.Invalid, []string{"delete a notification"}},
		"a list of nothing":    {answering(200, "[null]"), api.Invalid, []string{"delete a notification"}},
		"another gateway":      {answering(502, "<html>Bad Gateway</html>"), api.Unavailable, nil},
		"not found anywhere":   {answering(404, "<html>no such page</html>"), api.Invalid, nil},
		"forbidden":            {answering(403, ""), api.Unauthorized, nil},
		"too much":             {answering(429, ""), api.Throttled, nil},
		"a teapot":             {answering(418, ""), api.Invalid, nil},
		"gives up in the end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Clair-Error")
			w.Write([]byte(`{}`))
			w.Header().Set("Clair-Error", "the database went away")
		}, api.Invalid, []string{"delete one"}},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, api.Unavailable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := newTestClient(t, test.handler)
			for request, ask := range everything {
				if slices.Contains(test.without, request) {
					continue
				}
				if err := ask(t.Context(), client); api.KindOf(err) != test.kind {
					t.Errorf("%s: want an error of kind %s, got %v", request, test.kind, err)
				}
			}
		})
	}
}

func endless(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		for spaces := []byte(strings.Repeat(" ", 1<<16)); ; {
			if _, err := w.Write(spaces); err != nil {
				return
			}
		}
	}
}

// TestDeadlines: each deadline ends a request before or during the answer, and the error names it.
func TestDeadlines(t *testing.T) {
	for name, begin := range map[string]string{"silent": "", "slow": `{"state":`} {
		t.Run(name, func(t *testing.T) {
			handler := func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // only after this read does the server detect that the client has gone
				if begin != "" {
					w.Write([]byte(begin))
					http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			}
			client := newTestClient(t, http.HandlerFunc(handler), func(o *api.Options) { o.Timeout = 20 * time.Millisecond })
			err := indexState(t.Context(), client)
			if api.KindOf(err) != api.Unavailable || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "20ms") {
				t.Errorf("want that there was no answer within 20ms, got %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := indexState(ctx, client); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled by the caller, got %v", err)
			}
			client = newTestClient(t, http.HandlerFunc(handler), func(o *api.Options) { o.IndexTimeout = 30 * time.Millisecond })
			if err := index(t.Context(), client); api.KindOf(err) != api.Unavailable || !strings.Contains(err.Error(), "30ms") {
				t.Errorf("index: want that there was no answer within 30ms, got %v", err)
			}
		})
	}
}

// TestNoCredentialInErrors: Clair quotes addresses, and a proxy might quote headers.
func TestNoCredentialInErrors(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		var posted struct {
			Layers []struct {
				URI     string
				Headers map[string][]string
			}
		}
		json.NewDecoder(r.Body).Decode(&posted)
		layer := posted.Layers[0]
		text := fmt.Sprintf("failed to fetch layers: fetcher: request failed:\n Get %q (%v, %v, registry %s)", layer.URI, layer.Headers, r.Header, "robot:hunter5@registry")
		body, _ := json.Marshal(map[string]string{"code": "internal-error", "message": text + strings.Repeat("é", 1000)})
		w.WriteHeader(http.StatusInternalServerError)
		w.Write(body)
	}
	client := newTestClient(t, http.HandlerFunc(echo), withKey)
	err := index(t.Context(), client)
	text := err.Error()
	if api.KindOf(err) != api.LayerFailed || !strings.Contains(text, "registry.example.com/v2/app/blobs") {
		t.Errorf("want a failed layer with its address, got %v", err)
	}
	if strings.Contains(text, "hunter") || strings.Contains(text, "eyJ") || strings.Contains(text, "Signature") {
		t.Errorf("a credential stands in %q", text)
	}
	if len(text) > 600 || strings.Contains(text, "\n") {
		t.Errorf("want one line of at most 600 bytes, got %d bytes: %q", len(text), text)
	}
}

// TestRegistryTextIsIgnored: quoted text of a registry does not change the classification.
func TestRegistryTextIsIgnored(t *testing.T) {
	const text = `{"code":"internal-error","message":"failed to start scan: failed to fetch layers: fetcher: encountered errors: unexpected status code: 503 Service Unavailable (body starts: \"unexpected status code: 404, \\\"unknown content-type\\\" validation failed\")"}`
	var e *api.Error
	if err := index(t.Context(), newTestClient(t, answering(500, text))); !errors.As(err, &e) || e.Layer != api.LayerUnreachable {
		t.Errorf("want a registry that is unreachable, got %+v", e)
	}
}

// TestOtherHostsAnswersAreHidden: Clair contacts hosts that images name, which may not be registries, so their answers are removed.
func TestOtherHostsAnswersAreHidden(t *testing.T) {
	for name, text := range map[string]string{
		"a body":        `unexpected status code: 403 Forbidden (body starts: "internal: \"role\" (admin)")`,
		"two":           `unexpected status code: 403 Forbidden (body starts: "internal")` + "\n" + `unexpected status code: 500 Oh (body starts: "internal\n")`,
		"a status line": `unexpected status code: 403 "internal" (body starts: "")`,
		"no body":       `unexpected status code: 403 internal`,
		"broken off":    `unexpected status code: 403 Forbidden (body starts: "internal `,
		"a credential":  `unexpected status code: 403 Forbidden (body starts: "http://internal/?q=\" internal")`,
	} {
		report := &claircore.IndexReport{State: api.StateError, Err: "failed to fetch layers: fetcher: encountered errors: " + text}
		message := clientOf(t, "http://clair").Failure(report, manifest()).Error()
		if strings.Contains(message, "internal") || strings.Contains(message, "admin") || !strings.Contains(message, "unexpected status code: 403") {
			t.Errorf("%s: want the status code alone, got %q", name, message)
		}
	}
}

// TestSeveralLayers: one layer that can never be fetched determines the cause, regardless of the others.
func TestSeveralLayers(t *testing.T) {
	for text, want := range map[string]api.LayerCause{
		"unexpected status code: 401 Unauthorized\nunexpected status code: 404 Not Found":      api.LayerMissing,
		"unexpected status code: 429 Too Many Requests\nunexpected status code: 403 Forbidden": api.LayerRefused,
		"unexpected status code: 401 Unauthorized\nfetcher: unknown content-type \"a/b\"":      api.LayerUnsupported,
		"unexpected EOF": api.LayerUnreachable,
	} {
		report := &claircore.IndexReport{State: api.StateError, Err: "failed to fetch layers: fetcher: encountered errors: " + text}
		var e *api.Error
		if err := clientOf(t, "http://clair").Failure(report, claircore.Manifest{}); !errors.As(err, &e) || e.Layer != want {
			t.Errorf("%q: want %s, got %+v", text, want, e)
		}
	}
}

// TestHiddenCredentials: characters that do not print do not protect a credential from being recognised.
func TestHiddenCredentials(t *testing.T) {
	for name, text := range map[string]string{
		"the credential of a header": "Bearer\x00s3cret",
		"the user of an address":     "https://robot:s3cret\u200b@registry.example.com/v2/",
		"the query of an address":    "https://registry.example.com/v2/?token=s3cret\xff",
	} {
		report := &claircore.IndexReport{State: api.StateError, Err: "failed to fetch layers: " + text}
		if message := clientOf(t, "http://clair").Failure(report, manifest()).Error(); strings.Contains(message, "s3cret") {
			t.Errorf("%s is disclosed: %q", name, message)
		}
	}
}

// TestFailureIsClean: Clair quotes the answers of registries, which may quote the credentials that they received.
func TestFailureIsClean(t *testing.T) {
	for sent, secrets := range map[string][]string{
		"Bearer s3cret": {"s3cret"},
		"Basic " + base64.StdEncoding.EncodeToString([]byte("shop:p4ssword")): {"p4ssword", base64.StdEncoding.EncodeToString([]byte("shop:p4ssword"))},
	} {
		manifest := claircore.Manifest{Layers: []*claircore.Layer{{Headers: map[string][]string{"Authorization": {sent}}}}}
		for _, secret := range secrets {
			report := &claircore.IndexReport{State: api.StateError, Err: "failed to store what the registry said: no " + secret + " here"}
			err := clientOf(t, "http://clair").Failure(report, manifest)
			if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "no [hidden] here") {
				t.Errorf("%s: the error is %v, want it without %s", sent, err, secret)
			}
		}
	}
}

func TestIndexReports(t *testing.T) {
	for name, test := range map[string]struct {
		digest   claircore.Digest
		finished bool
		state    string
		kind     api.Kind
	}{
		"index_report_created":  {goImage, true, api.StateFinished, ""},
		"index_report_underway": {underway, false, "", ""},
		"index_report_failed":   {failed, false, api.StateError, api.LayerFailed},
	} {
		t.Run(name, func(t *testing.T) {
			answer := recorded(t, name)
			client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if want := "/indexer/api/v1/index_report/" + test.digest.String(); r.URL.Path != want {
					t.Errorf("asked for %s, want %s", r.URL.Path, want)
				}
				answer(okWriter{w}, r)
			}))
			report, err := client.IndexReport(t.Context(), test.digest)
			if err != nil {
				t.Fatal(err)
			}
			if api.Finished(report) != test.finished || report.State != test.state {
				t.Errorf("finished %t in state %q, want %t in %q", api.Finished(report), report.State, test.finished, test.state)
			}
			if err := client.Failure(report, claircore.Manifest{}); api.KindOf(err) != test.kind {
				t.Errorf("failure %v, want kind %q", err, test.kind)
			}
		})
	}
	if api.Finished(&claircore.IndexReport{State: api.StateFinished}) || api.Finished(nil) {
		t.Error("a report without success is not finished, nor is none")
	}
}

// okWriter sends the recorded answer to a POST as the answer to a GET.
type okWriter struct{ http.ResponseWriter }

func (w okWriter) WriteHeader(int) { w.ResponseWriter.WriteHeader(http.StatusOK) }

func TestVulnerabilityReport(t *testing.T) {
	got, err := newTestClient(t, recorded(t, "vulnerability_report")).VulnerabilityReport(t.Context(), alpineImage)
	if err != nil || len(got.Vulnerabilities) == 0 || len(got.PackageVulnerabilities) == 0 {
		t.Fatalf("want vulnerabilities, got %+v, %v", got, err)
	}
	for _, null := range []string{`"packages":{"1":null}`, `"vulnerabilities":{"1":null}`, `"environments":{"1":[null]}`} {
		text := fmt.Sprintf(`{"manifest_hash":%q,%s}`, alpineImage, null)
		if err := report(t.Context(), newTestClient(t, answering(200, text))); api.KindOf(err) != api.Invalid {
			t.Errorf("%s: want an invalid answer, got %v", null, err)
		}
	}
}

// TestReportSlots: index reports are neither read nor decoded while no slot is free.
func TestReportSlots(t *testing.T) {
	readings := make(chan struct{}, 1)
	answer := recorded(t, "index_report_created")
	c := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(okWriter{w}, r) }), func(o *api.Options) { o.ReportSlots = readings })
	for range 2 { // the slot is released
		if _, err := c.IndexReport(t.Context(), goImage); err != nil {
			t.Fatal(err)
		}
	}
	readings <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Index(ctx, manifest()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without room: %v", err)
	}
	if _, err := c.IndexState(t.Context()); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("small answers need no room: %v", err)
	}
}

func TestIndexSendsTheManifest(t *testing.T) {
	var got map[string]any
	answer := recorded(t, "index_report_created")
	client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/clair/indexer/api/v1/index_report" || r.Header.Get("If-None-Match") != "" {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
		json.NewDecoder(r.Body).Decode(&got)
		answer(w, r)
	}), func(o *api.Options) { o.URL += "/clair/" })
	if err := index(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"hash": goImage.String(), "layers": []any{map[string]any{
		"hash": alpineImage.String(), "uri": manifest().Layers[0].URI,
		"headers": map[string]any{"Authorization": []any{"Bearer hunter3.hunter3"}, "X-Registry-Auth": []any{"hunter4"}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("posted (-want +got):\n%s", diff)
	}
}

func TestNoDigest(t *testing.T) {
	client := newTestClient(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	_, err := client.Index(t.Context(), claircore.Manifest{})
	_, err2 := client.IndexReport(t.Context(), claircore.Digest{})
	_, err3 := client.VulnerabilityReport(t.Context(), claircore.Digest{})
	err4 := client.Delete(t.Context(), claircore.Digest{})
	for _, err := range []error{err, err2, err3, err4} {
		if err == nil {
			t.Error("a question without a digest")
		}
	}
}

func TestUpdateOperations(t *testing.T) {
	full, same, empty := recorded(t, "update_operations"), recorded(t, "update_operations_unchanged"), recorded(t, "update_operations_none")
	answer := empty
	client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Get("latest") != "true" || q.Get("kind") != "vulnerability":
			t.Errorf("asked for %s", r.URL)
		case r.Header.Get("If-None-Match") != "":
			same(w, r)
			return
		}
		answer(w, r)
	}))
	ask := func(etag string) api.Updates {
		t.Helper()
		got, err := client.UpdateOperations(t.Context(), api.Vulnerabilities, etag)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff(api.Updates{Latest: map[string]api.UpdateOperation{}}, ask("")); diff != "" {
		t.Errorf("without data (-want +got):\n%s", diff)
	}
	answer = full
	got := ask("")
	want := api.UpdateOperation{
		Ref: uuid.MustParse("09903ad6-d14f-4008-a1b3-51e47ad30bba"), Updater: "osv/go", Date: time.Date(2026, 11, 21, 3, 11, 11, 228139000, time.UTC),
	}
	if diff := cmp.Diff(want, got.Latest["osv/go"]); diff != "" || got.ETag != `"09903ad6-d14f-4008-a1b3-51e47ad30bba"` {
		t.Errorf("ETag %s, latest (-want +got):\n%s", got.ETag, diff)
	}
	if diff := cmp.Diff(api.Updates{ETag: got.ETag}, ask(got.ETag)); diff != "" {
		t.Errorf("unchanged (-want +got):\n%s", diff)
	}
}

func TestNotifications(t *testing.T) {
	first, last := recorded(t, "notification_page"), recorded(t, "notification_last_page")
	client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.URL.Path != "/notifier/api/v1/notification/"+notification.String() || query.Get("page_size") != "500" {
			t.Errorf("asked for %s", r.URL)
		}
		switch query.Get("next") {
		case "":
			first(w, r)
		case "aa1cb988-05b8-4771-9423-87e989557a8c":
			last(w, r)
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}))
	var got []api.Notification
	for one, err := range client.Notifications(t.Context(), notification) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, one)
	}
	if len(got) != 35 || got[0].Reason != api.ReasonAdded || got[0].Manifest.String() == "" {
		t.Errorf("want 35 notifications of both pages, got %d: %+v", len(got), got)
	}
	for range client.Notifications(t.Context(), notification) {
		break // the iterator is not called again after a break
	}
}

// TestNotificationsEnd: circular pages, too much data in total, and invalid pages end the sequence.
func TestNotificationsEnd(t *testing.T) {
	const next = `"page":{"next":"aa1cb988-05b8-4771-9423-87e989557a8c"}`
	one := fmt.Sprintf(`{"manifest":%q,"reason":"added"}`, goImage)
	for name, test := range map[string]struct {
		body string
		kind api.Kind
		max  int64
	}{
		"a circle":           {"{" + next + `,"notifications":[]}`, api.TooLarge, 1 << 20},
		"too much together":  {"{" + next + `,"notifications":[` + one + `]}`, api.TooLarge, 200},
		"another next":       {`{"page":{"next":"../../secret"},"notifications":[]}`, api.Invalid, 1 << 20},
		"no manifest":        {`{"page":{},"notifications":[{"reason":"added"}]}`, api.Invalid, 1 << 20},
		"a manifest of none": {`{"page":{},"notifications":[{"reason":"added","manifest":"latest"}]}`, api.Invalid, 1 << 20},
		"a reason of none":   {`{"page":{},"notifications":[` + strings.ReplaceAll(one, "added", "bored") + `]}`, api.Invalid, 1 << 20},
		"no list":            {`{"page":{}}`, api.Invalid, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			client := newTestClient(t, answering(200, test.body), func(o *api.Options) { o.MaxAnswerBytes = test.max })
			if err := pages(t.Context(), client); api.KindOf(err) != test.kind {
				t.Errorf("want an error of kind %s, got %v", test.kind, err)
			}
		})
	}
}

// TestDelete: the digest is sent in the path.
func TestDelete(t *testing.T) {
	answer, asked := recorded(t, "deleted"), ""
	client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Path
		answer(w, r)
	}))
	if err := client.Delete(t.Context(), goImage); err != nil {
		t.Fatal(err)
	}
	if want := "DELETE /indexer/api/v1/index_report/" + goImage.String(); asked != want {
		t.Errorf("request %s, want %s", asked, want)
	}
}

// TestRedirectsAreNotFollowed: requests to Clair are not sent to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s came elsewhere", r.Method, r.URL)
	}))
	defer elsewhere.Close()
	client := newTestClient(t, http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect), withKey)
	for request, ask := range everything {
		if err := ask(t.Context(), client); api.KindOf(err) != api.Invalid || !strings.Contains(err.Error(), "redirect") {
			t.Errorf("%s: want that redirects are not followed, got %v", request, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{"7": 7 * time.Second, "": 0, "soon": 0, "-3": 0, "999999": time.Hour} {
		client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		var e *api.Error
		if err := indexState(t.Context(), client); !errors.As(err, &e) || e.RetryAfter != want {
			t.Errorf("%q: want %s, got %+v", value, want, e)
		}
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewTLSServer(recorded(t, "index_state"))
	defer server.Close()
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for name, test := range map[string]struct {
		bundle string
		kind   api.Kind
	}{
		"its own":    {own, ""},
		"another's":  {otherAuthority(t), api.Unavailable},
		"well-known": {"", api.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := indexState(t.Context(), clientOf(t, server.URL, func(o *api.Options) { o.CABundle = test.bundle }))
			if api.KindOf(err) != test.kind || err != nil && !strings.Contains(err.Error(), "certificate") {
				t.Errorf("want kind %q, got %v", test.kind, err)
			}
		})
	}
	if _, err := api.New(api.Options{URL: server.URL, CABundle: "hunter2"}); err == nil || !strings.HasPrefix(err.Error(), "caBundle: ") || strings.Contains(err.Error(), "hunter") {
		t.Errorf("a bundle without certificates: %v", err)
	}
}

func otherAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestNetworkSharesConnections: clients of one Network share connections if they trust the same CAs. Clients that were evicted from the
// Network still work.
func TestNetworkSharesConnections(t *testing.T) {
	ports := map[string]bool{}
	answer := recorded(t, "index_state")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ports[r.RemoteAddr] = true
		answer(w, r)
	}))
	defer server.Close()
	network := api.NewNetwork()
	shared := func(o *api.Options) { o.Network = network }
	for range 3 {
		if err := indexState(t.Context(), clientOf(t, server.URL, shared)); err != nil {
			t.Fatal(err)
		}
	}
	if len(ports) != 1 {
		t.Errorf("%d connections, want one", len(ports))
	}
	first := clientOf(t, server.URL, shared)
	for i := range 300 {
		if err := indexState(t.Context(), clientOf(t, fmt.Sprintf("%s/%d", server.URL, i), shared)); err != nil {
			t.Fatal(err)
		}
	}
	if err := indexState(t.Context(), first); err != nil {
		t.Error(err)
	}
}

func TestCanonicalURL(t *testing.T) {
	for text, want := range map[string]string{
		"http://clair":                     "http://clair",
		"HTTP://Clair.Example.COM:80/":     "http://clair.example.com",
		"https://clair:443":                "https://clair",
		"https://clair:80":                 "https://clair:80",
		"http://clair:06060/":              "http://clair:6060",
		"http://clair:":                    "http://clair",
		"https://example.com/security/v4/": "https://example.com/security/v4",
		"http://[FD00:0::1]:6060":          "http://[fd00::1]:6060",
		"http://10.0.0.1:6060":             "http://10.0.0.1:6060",
	} {
		got, err := api.CanonicalURL(text)
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
		if again, err := api.CanonicalURL(got); again != got || err != nil {
			t.Errorf("%s: canonical is %s, and of that %s (%v)", text, got, again, err)
		}
	}
	for _, text := range []string{
		"", "clair", "clair:6060", "/clair", "http:clair", "http://", "http://:6060", "ftp://clair", "http://robot:hunter2@clair", "http://hunter2@clair",
		"http://clair?x=hunter2", "http://clair?", "http://clair#hunter2", "http://clair#", "http://clair/a/../b", "http://clair//", "http://clair//b", "http://clair/a//",
		"http://clair/%2e%2e", "http://clair/a%2fb", "http://clair/ü", "http://clair/hunter2 b", "http://clair:0", "http://clair:70000", "http://clair:hunter2",
		"http://ünter.example.com", "http://a..b", "http://[fe80::1%25eth0]", "http://a b", "http://clair\n",
	} {
		if got, err := api.CanonicalURL(text); err == nil || got != "" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %q, %v, want an error that does not quote it", text, got, err)
		}
	}
	if _, err := api.New(api.Options{URL: "clair"}); err == nil || !strings.HasPrefix(err.Error(), "url: ") {
		t.Errorf("want the name of the option, got %v", err)
	}
}
