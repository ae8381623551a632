package notifier_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/notifier"
	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
)

// apiKey must not appear in any output.
const apiKey = "0123456789abcdefverysecretkey8"

// imported is how DefectDojo answers an import.
const imported = `{"scan_type":"Generic Findings Import","test":7,"test_id":7,"engagement_id":3,"product_id":2,"statistics":{"after":{}}}`

// exportWorld is a notifier with one DefectDojo.
type exportWorld struct {
	*world
	server *server
}

// impatientExporter is an exporter whose deadline is short enough for tests.
type impatientExporter struct{ notifier.Exporter }

func (i impatientExporter) Export(ctx context.Context, to receiver.Address, r export.Request) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return i.Exporter.Export(ctx, to, r)
}

func newExportWorld(t *testing.T, hosts ...string) *exportWorld {
	t.Helper()
	return newExportWorldWithin(t, 0, hosts...)
}

// newExportWorldWithin does what newExportWorld does, with a notifier that answers within a time.
func newExportWorldWithin(t *testing.T, within time.Duration, hosts ...string) *exportWorld {
	t.Helper()
	w := &exportWorld{world: newBareWorld(t), server: newServer(t, announce.ReceiverTypeWebhook, false)}
	w.answerWithin = within
	w.server.answers(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(rw, imported)
	})
	roots := x509.NewCertPool()
	roots.AddCert(w.server.certificate)
	w.exporters = map[string]notifier.Exporter{}
	for kind, exporter := range notifier.NewExporters(notifier.Network{Network: receiver.Network{Roots: receiver.Trusting(roots)}}) {
		w.exporters[kind] = exporter
		if within == 0 {
			w.exporters[kind] = impatientExporter{exporter}
		}
	}
	if len(hosts) == 0 {
		hosts = []string{strings.TrimPrefix(w.server.URL, "https://")}
	}
	w.start(nil, hosts...)
	w.cluster.set("shop/dojo", map[string]string{"address": w.server.URL + "/verysecretpath5/\n", "token": apiKey + "\n"})
	return w
}

// form returns the form of a request.
func (w *exportWorld) form(r request) *multipart.Form {
	w.t.Helper()
	_, parameters, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	if err != nil {
		w.t.Fatal(err)
	}
	return must(multipart.NewReader(bytes.NewReader(r.body), parameters["boundary"]).ReadForm(1 << 20))
}

// fileOf returns the content of the one file of a form, and its part's header.
func (w *exportWorld) fileOf(form *multipart.Form, field string) (content string, header *multipart.FileHeader) {
	w.t.Helper()
	if len(form.File[field]) != 1 {
		w.t.Fatalf("files %+v, want one as %s", form.File, field)
	}
	file := must(form.File[field][0].Open())
	defer file.Close()
	return string(must(io.ReadAll(file))), form.File[field][0]
}

func exportRequest() export.Request {
	return export.Request{
		Receiver: announce.ReceiverRef{Type: export.TypeDefectDojo, Namespace: "shop", SecretName: "dojo", SecretKey: "address"},
		Scanner:  "shop/default",
		Project: export.Project{DefectDojo: export.DefectDojoTest{
			ProductType: "Kubernetes", Product: "shop", Engagement: "prod", Test: "Deployment/web (Grype)",
		}},
		Document: []byte(`{"name":"Scanner Operator","findings":[]}`),
	}
}

// export requests an export as the manager does, and checks that no output shows a secret or a document of the server.
func (w *exportWorld) export(r export.Request) announce.Outcome {
	w.t.Helper()
	outcome := w.manager.SendExport(w.t.Context(), r)
	for where, text := range map[string]string{"outcome": fmt.Sprint(outcome), "log": w.logs.String(), "metrics": fmt.Sprint(must(w.registry.Gather()))} {
		for _, secret := range []string{apiKey, "verysecretkey8", "verysecretpath5", managerToken, "<html"} {
			if strings.Contains(text, secret) {
				w.t.Errorf("the %s shows %s:\n%s", where, secret, text)
			}
		}
	}
	return outcome
}

// TestExport checks the request to DefectDojo (dojo/api_v2/serializers.py: ReImportScanSerializer).
func TestExport(t *testing.T) {
	w := newExportWorld(t)
	if outcome := w.export(exportRequest()); outcome.Result != announce.Delivered {
		t.Fatalf("%+v, want Delivered", outcome)
	}
	got := w.server.got()
	if len(got) != 1 || got[0].path != "/verysecretpath5/api/v2/reimport-scan/" || got[0].header.Get("Authorization") != "Token "+apiKey {
		t.Fatalf("requests %+v, want one reimport with the token", got)
	}
	form := w.form(got[0])
	want := map[string][]string{
		"scan_type": {"Generic Findings Import"}, "auto_create_context": {"true"}, "product_type_name": {"Kubernetes"}, "product_name": {"shop"},
		"engagement_name": {"prod"}, "test_title": {"Deployment/web (Grype)"}, "close_old_findings": {"true"}, "do_not_reactivate": {"false"},
		"minimum_severity": {"Info"},
	}
	if diff := cmp.Diff(want, form.Value); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
	if content, file := w.fileOf(form, "file"); content != string(exportRequest().Document) || file.Filename != "findings.json" {
		t.Errorf("the file %s is %s, want the document as it is in findings.json", file.Filename, content)
	}
	keeps := exportRequest()
	keeps.KeepOld = true
	if outcome := w.export(keeps); outcome.Result != announce.Delivered {
		t.Fatalf("%+v, want Delivered", outcome)
	}
	want["close_old_findings"] = []string{"false"}
	if diff := cmp.Diff(want, w.form(w.server.got()[1]).Value); diff != "" {
		t.Errorf("form of findings whose absence is not proven (-want +got):\n%s", diff)
	}
}

// TestExportOutcomes: what an answer of DefectDojo, or of a proxy before it, means and what it advises.
func TestExportOutcomes(t *testing.T) {
	testExportOutcomes(t, exportRequest(), map[string]exportOutcome{
		"a page of a proxy":      {status(200, "$"), refused, 0, "without the ID of a test"},
		"another API":            {status(201, `{"id":1}`), refused, 0, "without the ID of a test"},
		"400":                    {status(400, `["The fetched product has a conflict"]`), refused, 0, "The fetched product has a conflict; if it says no more: the product shop must have the product type"},
		"400 about a field":      {status(400, `{"minimum_severity":["\"Infos\" is not a valid choice."]}`), refused, 0, `minimum_severity: "Infos" is not a valid choice.`},
		"400 with the key":       {status(400, `{"message":"bad `+strings.Repeat("x", 130)+` `+apiKey+`"}`), refused, 0, "bad"},
		"401":                    {status(401, `{"detail":"Invalid token."}`), refused, 0, "Invalid token.; check the key token"},
		"403":                    {status(403, "$"), refused, 0, "needs permission to import scans into the product shop"},
		"404":                    {status(404, "$"), refused, 0, "without /api/v2"},
		"an answer cut short":    {status(201, `{"test`, "Content-Length", "500"), lost, 0, "answer was lost"},
		"413":                    {status(413, "$"), refused, 0, "raise the limit of DefectDojo (DD_SCAN_FILE_MAX_SIZE) or of the proxy"},
		"429":                    {status(429, "", "Retry-After", "90"), limited, 90 * time.Second, ""},
		"429 without a time":     {status(429, ""), limited, 30 * time.Second, ""},
		"500":                    {status(500, "$"), failed, 0, "answers 500"},
		"503 with a time":        {status(503, "", "Retry-After", "7"), limited, 7 * time.Second, ""},
		"504":                    {status(504, "$"), lost, 0, "answers 504 Gateway Timeout: a proxy before DefectDojo does not wait for the import; raise its timeout to 10m0s"},
		"redirect to HTTP":       {status(301, "", "Location", "http://dojo.example.com"), refused, 0, "redirects are not followed"},
		"redirect to an address": {status(308, "", "Location", "https://169.254.169.254/"), refused, 0, "redirects are not followed"},
		"hung":                   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, lost, 0, "no answer in time"},
		"cut off":                {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, lost, 0, "lost"},
	})
}

// exportOutcome is what an answer of a tool means.
type exportOutcome struct {
	answer http.HandlerFunc
	want   announce.Outcome
	after  time.Duration
	says   string
}

var (
	refused = announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused}
	failed  = announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonReceiverFailed}
	limited = announce.Outcome{Result: announce.RateLimited, Reason: announce.ReasonReceiverLimited}
	lost    = announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost}
)

// status answers with a status, a body in which $ is a page that repeats the request, and headers.
func status(code int, body string, header ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			rw.Header().Set(header[i], header[i+1])
		}
		rw.WriteHeader(code)
		// A proxy may repeat whatever the request has.
		_, _ = io.WriteString(rw, strings.ReplaceAll(body, "$", fmt.Sprintf("<html>%s %v</html>", r.URL, r.Header)))
	}
}

func testExportOutcomes(t *testing.T, r export.Request, outcomes map[string]exportOutcome) {
	t.Helper()
	for name, tt := range outcomes {
		t.Run(name, func(t *testing.T) {
			w := newExportWorld(t)
			w.server.answers(tt.answer)
			got := w.export(r)
			if got.Result != tt.want.Result || got.Reason != tt.want.Reason || got.RetryAfter != tt.after || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%+v, want %s %s after %s with %q", got, tt.want.Result, tt.want.Reason, tt.after, tt.says)
			}
			if n := len(w.server.got()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// TestExportSecrets: what is wrong with a Secret, or with a host, is said without its content, and nothing is sent.
func TestExportSecrets(t *testing.T) {
	address := func(w *exportWorld) string { return w.server.URL }
	for name, tt := range map[string]struct {
		data   func(w *exportWorld) map[string]string
		hosts  []string
		reason string
		says   string
	}{
		"no Secret": {func(*exportWorld) map[string]string { return nil }, nil, announce.ReasonSecretNotFound, "has no key address"},
		"no token":  {func(w *exportWorld) map[string]string { return map[string]string{"address": address(w)} }, nil, announce.ReasonInvalidToken, "key token of Secret dojo in namespace shop is missing or empty"},
		"a token with line": {func(w *exportWorld) map[string]string {
			return map[string]string{"address": address(w), "token": "a\nb"}
		}, nil, announce.ReasonInvalidToken, "no API key has"},
		"a long token": {func(w *exportWorld) map[string]string {
			return map[string]string{"address": address(w), "token": strings.Repeat("a", 2000)}
		}, nil, announce.ReasonInvalidToken, "longer than"},
		"no address": {func(*exportWorld) map[string]string { return map[string]string{"token": apiKey} }, nil, announce.ReasonSecretNotFound, "has no key address"},
		"not allowed": {func(w *exportWorld) map[string]string {
			return map[string]string{"address": address(w), "token": apiKey}
		},
			[]string{"dojo.example.com"}, announce.ReasonInvalidURL, "--allowed-webhook-hosts"},
		"plain HTTP": {func(w *exportWorld) map[string]string {
			return map[string]string{"address": strings.Replace(address(w), "https", "http", 1), "token": apiKey}
		}, nil, announce.ReasonInvalidURL, "is not an https URL"},
		"an address inside": {func(*exportWorld) map[string]string {
			return map[string]string{"address": "https://localhost:1", "token": apiKey}
		}, []string{"localhost:1"}, announce.ReasonInvalidURL, "may not be connected to"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newExportWorld(t, tt.hosts...)
			w.cluster.set("shop/dojo", tt.data(w))
			got := w.export(exportRequest())
			if got.Result != announce.Permanent || got.Reason != tt.reason || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%+v, want Permanent %s with %q", got, tt.reason, tt.says)
			}
			if n := len(w.server.got()); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
}

// TestMalformedExports: requests that are not valid are refused before anything is read or sent.
func TestMalformedExports(t *testing.T) {
	w := newExportWorld(t)
	change := func(change func(*export.Request)) string {
		r := exportRequest()
		change(&r)
		return string(must(json.Marshal(r)))
	}
	for name, tt := range map[string]struct {
		token, body string
		status      int
	}{
		"no token":       {"", change(func(*export.Request) {}), 401},
		"no JSON":        {managerToken, "{", 400},
		"another type":   {managerToken, change(func(r *export.Request) { r.Receiver.Type = announce.ReceiverTypeSlack }), 400},
		"no product":     {managerToken, change(func(r *export.Request) { r.Project.DefectDojo.Product = "" }), 400},
		"another Secret": {managerToken, change(func(r *export.Request) { r.Receiver.SecretName = "../other" }), 400},
		"no document":    {managerToken, strings.Replace(change(func(*export.Request) {}), `"document"`, `"x"`, 1), 400},
		"a long document": {managerToken, change(func(r *export.Request) {
			r.Document = []byte(strings.Repeat("a", export.MaxRequestBytes))
		}), 413},
	} {
		request := must(http.NewRequest(http.MethodPost, w.notifier.URL+export.Path, strings.NewReader(tt.body)))
		if tt.token != "" {
			request.Header.Set("Authorization", "Bearer "+tt.token)
		}
		response := must(w.notifier.Client().Do(request))
		_ = response.Body.Close()
		if response.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", name, response.StatusCode, tt.status)
		}
	}
	if n := len(w.server.got()); n != 0 {
		t.Errorf("%d requests to DefectDojo, want none", n)
	}
}

// answerSoon is long enough for the notifier to decide what to do about a request.
const answerSoon = 500 * time.Millisecond

// holdImports makes the server hold each import until it is released with an answer. begun gets a value for each.
func (w *exportWorld) holdImports() (begun chan struct{}, release chan http.HandlerFunc) {
	begun, release = make(chan struct{}, 100), make(chan http.HandlerFunc)
	over := make(chan struct{})
	w.t.Cleanup(func() { close(over) })
	w.server.answers(func(rw http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select {
		case answer := <-release:
			answer(rw, r)
		case <-over:
		}
	})
	return begun, release
}

// untilEnded repeats an export until it is not in progress.
func (w *exportWorld) untilEnded(r export.Request) announce.Outcome {
	w.t.Helper()
	got := w.export(r)
	for got.IsInProgress() {
		got = w.export(r)
	}
	return got
}

// otherReport is exportRequest with another document.
func otherReport() export.Request {
	r := exportRequest()
	r.Document = []byte(`{"name":"Scanner Operator","findings":[{}]}`)
	return r
}

// TestSlowImport: an import that takes longer than a request goes on and is not started again. The next requests learn what became of it, once. Another
// report waits meanwhile, and is no failure.
func TestSlowImport(t *testing.T) {
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   announce.Result
	}{"imported": {status(201, imported), announce.Delivered}, "refused": {status(400, `["no"]`), announce.Permanent}} {
		t.Run(name, func(t *testing.T) {
			w := newExportWorldWithin(t, answerSoon)
			begun, release := w.holdImports()
			again := exportRequest()
			for range 3 {
				if got := w.export(again); !got.IsInProgress() || got.RetryAfter <= 0 {
					t.Fatalf("outcome while it is imported: %+v, want that it is in progress", got)
				}
				again.MayRunFor = time.Minute // what the manager knows by now
			}
			if got := w.export(otherReport()); got.Result != announce.RateLimited || got.RetryAfter <= 0 {
				t.Errorf("another report meanwhile: %+v, want RateLimited", got)
			}
			<-begun
			release <- tt.answer
			if got := w.untilEnded(again); got.Result != tt.want || len(w.server.got()) != 1 {
				t.Errorf("outcome %+v after %d imports, want %s after 1", got, len(w.server.got()), tt.want)
			}
			w.server.answers(status(201, imported))
			if got := w.export(exportRequest()); got.Result != announce.Delivered || len(w.server.got()) != 2 {
				t.Errorf("the same report later: %+v after %d imports, want another one", got, len(w.server.got()))
			}
		})
	}
}

// TestSlowImportAndAnotherReport: when an import ends whose report is out of date, the next report is imported, also if it equals an earlier one.
func TestSlowImportAndAnotherReport(t *testing.T) {
	w := newExportWorldWithin(t, answerSoon)
	_, release := w.holdImports()
	if got := w.export(exportRequest()); !got.IsInProgress() {
		t.Fatalf("%+v, want that it is in progress", got)
	}
	release <- status(201, imported)
	w.server.answers(status(201, imported))
	other := otherReport()
	other.MayRunFor = time.Minute
	got := w.export(other)
	for got.Result == announce.RateLimited || got.IsInProgress() {
		got = w.export(other)
	}
	if got.Result != announce.Delivered || len(w.server.got()) != 2 {
		t.Errorf("the other report: %+v after %d imports, want 2", got, len(w.server.got()))
	}
	if got := w.export(exportRequest()); got.Result != announce.Delivered || len(w.server.got()) != 3 {
		t.Errorf("the first report again: %+v after %d imports, want 3", got, len(w.server.got()))
	}
}

// TestImportAfterABusyTool: the next report need not wait for an import that has ended, also if the tool was busy with another project meanwhile.
func TestImportAfterABusyTool(t *testing.T) {
	w := newExportWorldWithin(t, answerSoon)
	_, release := w.holdImports()
	if got := w.export(exportRequest()); !got.IsInProgress() {
		t.Fatalf("%+v, want that it is in progress", got)
	}
	release <- status(201, imported)
	project, other := exportRequest(), otherReport()
	project.Project.DefectDojo.Test = "Deployment/api (Grype)"
	for got := w.export(project); !got.IsInProgress(); got = w.export(project) {
		if got.Result != announce.RateLimited {
			t.Fatalf("the other project: %+v, want that it is in progress", got)
		}
	}
	other.MayRunFor = time.Hour
	for _, got := range []announce.Outcome{w.untilEnded(other), w.export(other)} {
		if got.Reason != export.ReasonBusy {
			t.Fatalf("the other report: %+v, want %s", got, export.ReasonBusy)
		}
	}
	release <- status(201, imported)
	w.server.answers(status(201, imported))
	got := w.export(other)
	for got.Reason == export.ReasonBusy {
		got = w.export(other)
	}
	if got.Result != announce.Delivered || len(w.server.got()) != 3 {
		t.Errorf("the other report after the tool was busy: %+v after %d imports, want 3", got, len(w.server.got()))
	}
}

// TestImportBeforeRestart: a notifier that was restarted starts no import while an earlier one may still run.
func TestImportBeforeRestart(t *testing.T) {
	w := newExportWorld(t)
	r := exportRequest()
	r.MayRunFor = 5 * time.Second
	if got := w.export(r); !got.IsInProgress() || got.RetryAfter != r.MayRunFor || len(w.server.got()) != 0 {
		t.Errorf("%+v after %d imports, want that it may be in progress for 5s", got, len(w.server.got()))
	}
	r.MayRunFor = time.Hour
	if got := w.export(r); !got.IsInProgress() || got.RetryAfter > time.Minute {
		t.Errorf("%+v, want that it is asked again soon", got)
	}
	r.MayRunFor = 0
	if got := w.export(r); got.Result != announce.Delivered || len(w.server.got()) != 1 {
		t.Errorf("%+v after %d imports, want 1", got, len(w.server.got()))
	}
}

// TestExportsOfTenants: tools of one namespace that do not answer take at most half of the memory for documents, and no slot of others.
func TestExportsOfTenants(t *testing.T) {
	w := newExportWorldWithin(t, answerSoon)
	w.holdImports()
	from := func(namespace, tool string, bytes int) announce.Outcome {
		w.cluster.set(namespace+"/"+tool, map[string]string{"address": w.server.URL + "/" + namespace + tool, "token": apiKey})
		r := exportRequest()
		r.Receiver.Namespace, r.Receiver.SecretName, r.Document = namespace, tool, documentOf(bytes)
		return w.export(r)
	}
	if got := from("shop", "large", export.MaxDocumentBytes); !got.IsInProgress() {
		t.Fatalf("the first export: %+v, want that it is in progress", got)
	}
	if got := from("shop", "second", export.MaxDocumentBytes); got.Result != announce.RateLimited {
		t.Errorf("another large one of the namespace: %+v, want RateLimited", got)
	}
	if got := from("shop", "third", 2<<20-100<<10); !got.IsInProgress() {
		t.Errorf("one that fits: %+v, want that it is in progress", got)
	}
	// 100 KiB are left, which is enough for one connection.
	if got := from("shop", "small", 1); !got.IsInProgress() {
		t.Errorf("a small one: %+v, want that it is in progress", got)
	}
	if got := from("shop", "last", 1); got.Result != announce.RateLimited {
		t.Errorf("another small one: %+v, want RateLimited", got)
	}
	if got := from("blog", "large", export.MaxDocumentBytes); !got.IsInProgress() {
		t.Errorf("an export of another namespace: %+v, want that it is in progress", got)
	}
}

// documentOf returns a document of some bytes.
func documentOf(bytes int) []byte { return []byte(strings.Repeat("a", bytes)) }

// TestDeposedExport: a manager that was replaced exports nothing.
func TestDeposedExport(t *testing.T) {
	w := newExportWorld(t)
	if err := w.leader(2).BeginEpoch(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if got := w.leader(1).SendExport(t.Context(), exportRequest()); got.Reason != announce.ReasonDeposed || len(w.server.got()) != 0 {
		t.Errorf("%+v and %d requests, want Deposed and none", got, len(w.server.got()))
	}
}
