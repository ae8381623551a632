package restapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func reportPath(namespace, name, source string) string {
	return "/api/v1/namespaces/" + namespace + "/images/" + key(name).Digest + "/reports/" + source
}

// reportText returns a document that was made at a minute before noon, with vulnerabilities in one package.
func reportText(minute int, ids ...string) string {
	vulnerabilities := make([]string, len(ids))
	for i, id := range ids {
		vulnerabilities[i] = `{"id":"` + id + `","ratings":[{"severity":"high"}],"affects":[{"ref":"a"}]}`
	}
	return fmt.Sprintf(`{"bomFormat":"CycloneDX","specVersion":"1.6","metadata":{"timestamp":%q},
		"components":[{"bom-ref":"a","name":"openssl","version":"3.0.1","purl":"pkg:deb/debian/openssl@3.0.1"}],"vulnerabilities":[%s]}`,
		noon.Add(time.Duration(minute)*time.Minute).Format(time.RFC3339), strings.Join(vulnerabilities, ","))
}

// answer is a response with its body.
type answer struct {
	*http.Response
	body []byte
}

func (w *harness) put(path, token, text string, headers ...string) answer {
	w.t.Helper()
	response, body := w.send(http.MethodPut, path, token, strings.NewReader(text), append([]string{"Content-Type", cyclonedx.MediaType}, headers...)...)
	return answer{response, body}
}

func (w *harness) delete(path, token string, headers ...string) answer {
	w.t.Helper()
	response, body := w.send(http.MethodDelete, path, token, nil, headers...)
	return answer{response, body}
}

func (w *harness) requireStatus(a answer, want int) {
	w.t.Helper()
	if a.StatusCode != want {
		w.t.Errorf("%s %s: %d %s, want %d", a.Request.Method, a.Request.URL.Path, a.StatusCode, a.body, want)
	}
}

// requireProblem fails the test unless a request was refused for this reason and this field.
func (w *harness) requireProblem(a answer, status int, reason restv1.Reason, field string) {
	w.t.Helper()
	w.requireStatus(a, status)
	var p restv1.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || p.Reason != reason || p.Field != field {
		w.t.Errorf("%s %s: %d %s, want the reason %s and the field %q", a.Request.Method, a.Request.URL.Path, a.StatusCode, a.body, reason, field)
	}
}

func (w *harness) requireSaved(a answer, status int, want restv1.SavedReport) {
	w.t.Helper()
	w.requireStatus(a, status)
	var got restv1.SavedReport
	if err := json.Unmarshal(a.body, &got); err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("the report that was saved (-want +got):\n%s", diff)
	}
}

// TestExternalReports: a report is saved, replaced, returned as it was sent, listed and withdrawn.
func TestExternalReports(t *testing.T) {
	w, _ := newFakeHarness(t)
	path := reportPath("shop", "web", "trivy-ci")
	w.requireProblem(w.delete(path, anyone), http.StatusNotFound, restv1.ReasonNotFound, "")
	first := w.put(path, anyone, reportText(-10, "CVE-2026-0001", "CVE-2026-0002"))
	w.requireSaved(first, http.StatusCreated, restv1.SavedReport{Findings: 2, New: 2})
	if location := first.Header.Get("Location"); location != path {
		t.Errorf("the location is %q, want %q", location, path)
	}
	text := reportText(-5, "CVE-2026-0002", "CVE-2026-0003")
	second := w.put(path, anyone, text)
	w.requireSaved(second, http.StatusOK, restv1.SavedReport{Findings: 2, New: 1, Still: 1, Gone: 1})

	response, body := w.get(path, anyone)
	if response.StatusCode != http.StatusOK || string(body) != text || response.Header.Get("ETag") != second.Header.Get("ETag") {
		t.Errorf("the report is %d %q with the ETag %s, want the text that was sent, with %s", response.StatusCode, body, response.Header.Get("ETag"), second.Header.Get("ETag"))
	}
	if response, _ := w.get(path, anyone, "If-None-Match", second.Header.Get("ETag")); response.StatusCode != http.StatusNotModified {
		t.Errorf("If-None-Match: %d, want 304", response.StatusCode)
	}
	compressed, body := w.get(path, anyone, "Accept-Encoding", "zstd")
	if decompress(t, body) != text || compressed.Header.Get("ETag") == second.Header.Get("ETag") {
		t.Errorf("the compressed report has %d bytes and the ETag %s", len(body), compressed.Header.Get("ETag"))
	}

	w.requireStatus(w.put(reportPath("shop", "web", "grype-ci"), anyone, reportText(0)), http.StatusCreated)
	var list restv1.ExternalReportList
	_, body = w.get(strings.TrimSuffix(path, "/trivy-ci"), anyone)
	w.must(json.Unmarshal(body, &list))
	want := []restv1.ExternalReport{
		{Source: "grype-ci", DocumentTime: noon, DocumentVersion: 1, SavedTime: noon, User: "anyone"},
		{Source: "trivy-ci", Findings: 2, DocumentTime: noon.Add(-5 * time.Minute), DocumentVersion: 1, SavedTime: noon, User: "anyone"},
	}
	if diff := cmp.Diff(want, list.Items); diff != "" {
		t.Errorf("reports of the image (-want +got):\n%s", diff)
	}

	w.requireProblem(w.delete(path, anyone, "If-Match", `"another"`), http.StatusPreconditionFailed, restv1.ReasonPreconditionFailed, "")
	w.requireStatus(w.delete(path, anyone, "If-Match", second.Header.Get("ETag")), http.StatusNoContent)
	if response, _ := w.get(path, anyone); response.StatusCode != http.StatusNotFound {
		t.Errorf("the withdrawn report: %d, want 404", response.StatusCode)
	}
	for _, line := range []string{"Saved an external report", "Withdrew an external report", `"user":"anyone"`, `"source":"trivy-ci"`} {
		if !strings.Contains(w.logText(), line) {
			t.Errorf("the log does not have %q", line)
		}
	}
	if strings.Contains(w.logText(), "CVE-2026-0001") {
		t.Error("the log has a part of a report")
	}
}

// TestUnchangedReport: the same content again changes nothing, whatever its form is.
func TestUnchangedReport(t *testing.T) {
	w, _ := newFakeHarness(t)
	path := reportPath("shop", "web", "ci")
	text := reportText(-10, "CVE-2026-0001", "CVE-2026-0002")
	first := w.put(path, anyone, text)
	w.requireStatus(first, http.StatusCreated)
	before := w.revision()
	var indented bytes.Buffer
	w.must(json.Indent(&indented, []byte(text), "", "  "))
	for name, other := range map[string]string{
		"same bytes": text, "indented": indented.String(), "another order": reportText(-10, "CVE-2026-0002", "CVE-2026-0001"),
	} {
		again := w.put(path, anyone, other)
		if again.StatusCode != http.StatusNoContent || again.Header.Get("ETag") != first.Header.Get("ETag") || len(again.body) > 0 {
			t.Errorf("%s: %d %s with the ETag %s, want 204 with %s", name, again.StatusCode, again.body, again.Header.Get("ETag"), first.Header.Get("ETag"))
		}
	}
	if after := w.revision(); after != before {
		t.Errorf("the revision of the store rose from %d to %d", before, after)
	}
	if _, body := w.get(path, anyone); string(body) != text {
		t.Errorf("the report is %q, want that of the first request", body)
	}
	if len(w.woken) != 1 {
		t.Errorf("the reconcilers were woken for %q, want once for the first request", w.woken)
	}
	w.requireStatus(w.delete(path, anyone), http.StatusNoContent)
	if diff := cmp.Diff([]string{key("web").Digest, key("web").Digest}, w.woken); diff != "" {
		t.Errorf("the reconcilers were woken for (-want +got):\n%s", diff)
	}
}

// TestShownReports: the findings of a source are shown with their history, unless the Scanner ignores the source. Exceptions apply to them.
func TestShownReports(t *testing.T) {
	w, _ := newFakeHarness(t)
	shown := w.createScanner("shop", "main")
	ignoring := w.createScanner("shop", "strict", func(s *v1alpha1.Scanner) {
		s.Spec.ExternalReports = v1alpha1.ExternalReports{Others: v1alpha1.OtherSourcesIgnore, Sources: []v1alpha1.ReportSource{{Name: "listed"}}}
	})
	w.createScanned(shown, "web", vulnerable("CVE-2026-0009", "zlib"))
	w.createScan(ignoring, "web-strict", func(s *v1alpha1.ImageScan) { s.Spec.Digest = key("web").Digest })
	w.setUsed(ignoring, "web", store.Cluster, "web")
	w.createException("shop", "accepted", "CVE-2026-0002")
	for source, ids := range map[string][]string{"ci": {"CVE-2026-0001", "CVE-2026-0002"}, "listed": {"CVE-2026-0003"}} {
		w.requireStatus(w.put(reportPath("shop", "web", source), anyone, reportText(-5, ids...)), http.StatusCreated)
	}
	w.requireStatus(w.put(reportPath("shop", "web", "ci")+"?platform=linux/arm64", anyone, reportText(-5)), http.StatusCreated)
	list := func(scan, source string) restv1.FindingList {
		t.Helper()
		response, body := w.get("/api/v1/namespaces/shop/imagescans/"+scan+"/findings?source="+source, anyone)
		w.requireStatus(answer{response, body}, http.StatusOK)
		var findings restv1.FindingList
		w.must(json.Unmarshal(body, &findings))
		return findings
	}
	findings := list("web", "ci")
	if findings.Total != 2 || findings.Report.Engine != "external:ci" || !findings.Report.MatchTime.Equal(noon.Add(-5*time.Minute)) {
		t.Errorf("%d findings of %+v, want the two of the source", findings.Total, findings.Report)
	}
	for _, f := range findings.Items {
		if isAccepted := f.Exception != nil; isAccepted != (f.ID == "CVE-2026-0002") || !f.FirstSeenTime.Equal(noon) {
			t.Errorf("the finding is %+v", f)
		}
	}
	if got := list("web-strict", "listed"); got.Total != 1 {
		t.Errorf("a source that is listed has %d findings, want 1", got.Total)
	}
	runs := func() (list restv1.WorkloadList) {
		t.Helper()
		response, body := w.get("/api/v1/vulnerabilities/CVE-2026-0001/workloads?namespace=shop", anyone)
		w.requireStatus(answer{response, body}, http.StatusOK)
		w.must(json.Unmarshal(body, &list))
		return list
	}
	if got := runs(); got.Total != 0 {
		t.Errorf("who runs what an external report has: %+v, want nobody while the source is not announced", got.Items)
	}
	w.must(w.store.SetAnnouncedSources(t.Context(), string(shown.UID), []string{"ci"}))
	if got := runs(); got.Total != 1 || got.Items[0].Engines[0] != "external:ci" {
		t.Errorf("who runs what an announced report has: %+v, want the workload and the source", got.Items)
	}
	for _, path := range []string{"web-strict/findings?source=ci", "web/findings?source=unknown"} {
		response, body := w.get("/api/v1/namespaces/shop/imagescans/"+path, anyone)
		w.requireProblem(answer{response, body}, http.StatusNotFound, restv1.ReasonNotFound, "")
	}
}

func (w *harness) revision() int64 {
	w.t.Helper()
	revision, err := w.store.Revision(w.t.Context())
	w.must(err)
	return revision
}

// TestOlderReport: a document that comes too late does not replace a newer one.
func TestOlderReport(t *testing.T) {
	w, _ := newFakeHarness(t)
	path := reportPath("shop", "web", "ci")
	w.requireStatus(w.put(path, anyone, reportText(-5, "CVE-2026-0001")), http.StatusCreated)
	w.requireProblem(w.put(path, anyone, reportText(-6, "CVE-2026-0002")), http.StatusConflict, restv1.ReasonSuperseded, "")
	if _, body := w.get(path, anyone); string(body) != reportText(-5, "CVE-2026-0001") {
		t.Errorf("the report is %q, want the newer one", body)
	}
}

// TestReportPreconditions: If-Match and If-None-Match are respected, also for a report that is the same.
func TestReportPreconditions(t *testing.T) {
	w, _ := newFakeHarness(t)
	path := reportPath("shop", "web", "ci")
	refused := func(a answer) {
		t.Helper()
		w.requireProblem(a, http.StatusPreconditionFailed, restv1.ReasonPreconditionFailed, "")
	}
	refused(w.put(path, anyone, reportText(-5), "If-Match", "*"))
	first := w.put(path, anyone, reportText(-5), "If-None-Match", "*")
	w.requireStatus(first, http.StatusCreated)
	refused(w.put(path, anyone, reportText(-5), "If-None-Match", "*"))
	refused(w.put(path, anyone, reportText(-4), "If-None-Match", "*"))
	second := w.put(path, anyone, reportText(-4), "If-Match", first.Header.Get("ETag"))
	w.requireStatus(second, http.StatusOK)
	refused(w.put(path, anyone, reportText(-3), "If-Match", first.Header.Get("ETag")))
	w.requireStatus(w.put(path, anyone, reportText(-3), "If-Match", "*"), http.StatusOK)
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	to := gzip.NewWriter(&out)
	if _, err := to.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestReportEncodings: a body may be compressed. The report is the same, and is returned without compression.
func TestReportEncodings(t *testing.T) {
	w, _ := newFakeHarness(t)
	path, text := reportPath("shop", "web", "ci"), reportText(-5, "CVE-2026-0001")
	w.requireStatus(w.put(path, anyone, gzipped(t, text), "Content-Encoding", "gzip"), http.StatusCreated)
	w.requireStatus(w.put(path, anyone, string(compress(t, text)), "Content-Encoding", "zstd"), http.StatusNoContent)
	w.requireStatus(w.put(path, anyone, text, "Content-Encoding", "identity"), http.StatusNoContent)
	if _, body := w.get(path, anyone); string(body) != text {
		t.Errorf("the report is %q, want %q", body, text)
	}
}

// TestRefusedReports: what cannot be saved is refused with its reason, and changes nothing.
func TestRefusedReports(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "web")
	other := store.ImageUsage{Scanner: string(scanner.UID), Namespace: "shop", Key: key("web"), Engine: engine, Workloads: []store.Workload{{Namespace: "shop", Kind: "Pod", Name: "a", Container: "main", Repository: "a", Reference: "a:1"}}}
	other.Key.Platform.Architecture = "arm64"
	w.must(w.store.SetUsage(t.Context(), other))
	before := w.revision()

	text, path := reportText(-5, "CVE-2026-0001"), reportPath("shop", "other", "ci")
	large := strings.Repeat(" ", maxReportBody) + text
	for _, tt := range []struct {
		name, path, text string
		headers          []string
		status           int
		reason           restv1.Reason
		field            string
	}{
		{"no body", path, "", nil, 422, restv1.ReasonInvalidReport, ""},
		{"no JSON", path, "openssl", nil, 422, restv1.ReasonInvalidReport, ""},
		{"cut off", path, text[:len(text)-1], nil, 422, restv1.ReasonInvalidReport, ""},
		{"wrong field", path, strings.Replace(text, `"a","name"`, `1,"name"`, 1), nil, 422, restv1.ReasonInvalidReport, "/components/0/bom-ref"},
		{"version 1.3", path, strings.Replace(text, "1.6", "1.3", 1), nil, 422, restv1.ReasonUnsupportedReport, "/specVersion"},
		{"version 1.8 in the type", path, text, []string{"Content-Type", cyclonedx.MediaType + "; version=1.8"}, 422, restv1.ReasonUnsupportedReport, ""},
		{"long text", path, strings.Replace(text, "CVE-2026-0001", strings.Repeat("x", 64<<10+1), 1), nil, 422, restv1.ReasonLimitExceeded, "/vulnerabilities/0"},
		{"no type", path, text, []string{"Content-Type", ""}, 415, restv1.ReasonUnsupportedMediaType, ""},
		{"another type", path, text, []string{"Content-Type", "application/json"}, 415, restv1.ReasonUnsupportedMediaType, ""},
		{"XML", path, text, []string{"Content-Type", "application/vnd.cyclonedx+xml"}, 415, restv1.ReasonUnsupportedMediaType, ""},
		{"another coding", path, text, []string{"Content-Encoding", "br"}, 400, restv1.ReasonInvalidParameter, "Content-Encoding"},
		{"no gzip", path, text, []string{"Content-Encoding", "gzip"}, 400, restv1.ReasonInvalidParameter, "body"},
		{"gzip that is cut off", path, gzipped(t, text)[:100], []string{"Content-Encoding", "gzip"}, 400, restv1.ReasonInvalidParameter, "body"},
		{"no zstd", path, text, []string{"Content-Encoding", "zstd"}, 400, restv1.ReasonInvalidParameter, "body"},
		{"large body", path, large, nil, 413, restv1.ReasonBodyTooLarge, ""},
		{"bomb", path, gzipped(t, strings.Repeat(" ", 8<<20)), []string{"Content-Encoding", "gzip"}, 413, restv1.ReasonBodyTooLarge, ""},
		{"several platforms", reportPath("shop", "web", "ci"), text, nil, 422, restv1.ReasonPlatformRequired, "platform"},
		{"no platform", path + "?platform=linux", text, nil, 400, restv1.ReasonInvalidParameter, "platform"},
		{"no digest", "/api/v1/namespaces/shop/images/web/reports/ci", text, nil, 400, restv1.ReasonInvalidParameter, "digest"},
		{"name of a source", reportPath("shop", "web", "CI"), text, nil, 400, restv1.ReasonInvalidParameter, "source"},
		{"another parameter", path + "?force=true", text, nil, 400, restv1.ReasonInvalidParameter, "force"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			w.requireProblem(w.put(tt.path, anyone, tt.text, tt.headers...), tt.status, tt.reason, tt.field)
		})
	}
	w.t = t
	if after := w.revision(); after != before {
		t.Errorf("the revision of the store rose from %d to %d", before, after)
	}
	w.requireStatus(w.put(reportPath("shop", "web", "ci")+"?platform=linux/arm64", anyone, text), http.StatusCreated)
	w.requireProblem(w.delete(reportPath("shop", "web", "ci"), anyone), http.StatusNotFound, restv1.ReasonNotFound, "")
}

// TestALargeReportOfUnknownLength: the bound of a body does not depend on what its sender says about its length.
func TestALargeReportOfUnknownLength(t *testing.T) {
	w, _ := newFakeHarness(t)
	endless := io.MultiReader(strings.NewReader("{"), io.LimitReader(spaces{}, maxReportBody))
	response, body := w.send(http.MethodPut, reportPath("shop", "web", "ci"), anyone, endless, "Content-Type", cyclonedx.MediaType)
	w.requireProblem(answer{response, body}, http.StatusRequestEntityTooLarge, restv1.ReasonBodyTooLarge, "")
}

// TestAReportThatFillsTheVolume: a small body may be a text that takes far more room in the manager's temporary file, since a sender can compress with
// a larger window than the manager.
func TestAReportThatFillsTheVolume(t *testing.T) {
	w, _ := newFakeHarness(t)
	block := make([]byte, 6<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(block); err != nil {
		t.Fatal(err)
	}
	var small bytes.Buffer
	encoder, err := zstd.NewWriter(&small, zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	for range maxReportFile/len(block) + 1 {
		if _, err := encoder.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := encoder.Close(); err != nil || small.Len() > maxReportBody {
		t.Fatalf("%d bytes, %v", small.Len(), err)
	}
	refused := w.put(reportPath("shop", "web", "ci"), anyone, small.String(), "Content-Encoding", "zstd")
	w.requireProblem(refused, http.StatusRequestEntityTooLarge, restv1.ReasonBodyTooLarge, "")
	if want := fmt.Sprintf("more than %d MiB when it is compressed with zstd", maxReportFile>>20); !strings.Contains(string(refused.body), want) {
		t.Errorf("the answer is %s, want %q", refused.body, want)
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestReportPermissions: each request needs its own permission, in its namespace and for its source.
func TestReportPermissions(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	reviewer.tokens["ci"] = authenticationv1.UserInfo{Username: "ci"}
	var asked []string
	reviewer.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		r := s.ResourceAttributes
		asked = append(asked, fmt.Sprintf("%s %s.%s %s/%s", r.Verb, r.Resource, r.Group, r.Namespace, r.Name))
		return false
	}
	path, list := reportPath("shop", "web", "ci"), strings.TrimSuffix(reportPath("shop", "web", ""), "/")
	for _, request := range []func() answer{
		func() answer { return w.put(path, "ci", "{") }, func() answer { return w.delete(path, "ci") },
		func() answer { r, body := w.get(path, "ci"); return answer{r, body} }, func() answer { r, body := w.get(list, "ci"); return answer{r, body} },
		func() answer { return w.delete("/api/v1/namespaces/shop/imagescans/web/report", "ci") },
	} {
		w.requireProblem(request(), http.StatusForbidden, restv1.ReasonForbidden, "")
	}
	want := []string{
		"update reports.scanner-operator.io shop/ci", "delete reports.scanner-operator.io shop/ci", "get reports.scanner-operator.io shop/ci",
		"list reports.scanner-operator.io shop/", "delete imagescans.scanner-operator.io shop/web",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
	w.requireProblem(w.put(path, "", "{"), http.StatusUnauthorized, restv1.ReasonUnauthorized, "")
}

// TestReportRate: a user saves one report at a time, and not too many in a minute.
func TestReportRate(t *testing.T) {
	w, reviewer := newFakeHarness(t)
	reviewer.tokens["other"] = authenticationv1.UserInfo{Username: "other"}
	path := reportPath("shop", "web", "ci")
	body, sender := io.Pipe()
	done := make(chan answer)
	go func() {
		response, text := w.send(http.MethodPut, path, anyone, body, "Content-Type", cyclonedx.MediaType)
		done <- answer{response, text}
	}()
	if _, err := io.WriteString(sender, reportText(0)[:50]); err != nil { // a first part is read
		t.Fatal(err)
	}
	for w.api.writes.busy.Used("anyone") == 0 {
		time.Sleep(time.Millisecond) // the body is sent to a buffer before the request is handled
	}
	refused := w.put(path, anyone, reportText(0))
	w.requireProblem(refused, http.StatusTooManyRequests, restv1.ReasonTooManyRequests, "")
	if refused.Header.Get("Retry-After") == "" {
		t.Error("the refusal does not say when to retry")
	}
	w.requireStatus(w.put(reportPath("shop", "web", "other"), "other", reportText(0)), http.StatusCreated)
	if _, err := io.WriteString(sender, reportText(0)[50:]); err != nil {
		t.Fatal(err)
	}
	w.must(sender.Close())
	w.requireStatus(<-done, http.StatusCreated)

	for i := range writesPerMinute - 1 {
		w.requireStatus(w.put(path, anyone, reportText(0)), http.StatusNoContent)
		if t.Failed() {
			t.Fatalf("request %d", i)
		}
	}
	w.requireProblem(w.put(path, anyone, reportText(0)), http.StatusTooManyRequests, restv1.ReasonTooManyRequests, "")
	w.clock.Step(time.Second)
	w.requireStatus(w.put(path, anyone, reportText(0)), http.StatusNoContent)
}

// TestReportBudget: a report that does not fit into the namespace's room in the store is refused as a whole.
func TestReportBudget(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.api.ReportBudget = 4000 // about 2 KiB for a report, and half a KiB for each finding
	path := reportPath("shop", "web", "ci")
	w.requireStatus(w.put(path, anyone, reportText(-5, "CVE-2026-0001")), http.StatusCreated)
	w.requireProblem(w.put(path, anyone, reportText(-4, "CVE-2026-0001", "CVE-2026-0002", "CVE-2026-0003", "CVE-2026-0004", "CVE-2026-0005", "CVE-2026-0006")),
		http.StatusInsufficientStorage, restv1.ReasonStorageFull, "")
	if _, body := w.get(path, anyone); string(body) != reportText(-5, "CVE-2026-0001") {
		t.Errorf("the report is %q, want the one before", body)
	}
}

// TestOwnReportComesBack: the CycloneDX document of an image is a report with the same findings.
func TestOwnReportComesBack(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl", severity(finding.Critical), fixed, exploited),
		vulnerable("CVE-2026-0002", "zlib", alias("GHSA-aaaa-bbbb-cccc"), severity(finding.Negligible)))
	_, document := w.get("/api/v1/namespaces/shop/imagescans/web/cyclonedx", anyone)
	w.requireSaved(w.put(reportPath("shop", "web", "own"), anyone, string(document)), http.StatusCreated, restv1.SavedReport{Findings: 2, New: 2})
	own, err := w.store.Findings(t.Context(), store.Subject{PlatformDigest: digest("web"), Engine: engine})
	w.must(err)
	back, err := w.store.Findings(t.Context(), store.ExternalKey{Namespace: "shop", Digest: key("web").Digest, Source: "own"}.Subject())
	w.must(err)
	if diff := cmp.Diff(own, back, cmpopts.IgnoreFields(finding.Finding{}, "Advisories"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("findings of the image, and of the report (-want +got):\n%s", diff)
	}
	for i := range own {
		if own[i].Key() != back[i].Key() {
			t.Errorf("the key of %s is another one", own[i].ID)
		}
	}
}

// TestRescan: an image is scanned again, and its result stays until then.
func TestRescan(t *testing.T) {
	w, i := newFakeHarness(t)
	scanner := w.createScanner("shop", "main")
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "openssl"))
	w.createScanned(scanner, "api")
	w.createScan(scanner, "new")
	i.allowed = func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		return spec.ResourceAttributes.Verb != "delete" || spec.ResourceAttributes.Name != "api"
	}
	for name, want := range map[string]bool{"web": true, "api": false} {
		scan, err := w.clientFor(anyone).GetImageScanWithResponse(t.Context(), "shop", name)
		w.must(err)
		if scan.JSON200.MayRescan != want {
			t.Errorf("mayRescan of %s is %v, want %v", name, scan.JSON200.MayRescan, want)
		}
	}
	for _, name := range []string{"web", "new"} {
		w.requireStatus(w.delete("/api/v1/namespaces/shop/imagescans/"+name+"/report", anyone), http.StatusAccepted)
		err := w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &v1alpha1.ImageScan{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the ImageScan %s is still there: %v", name, err)
		}
	}
	w.requireProblem(w.delete("/api/v1/namespaces/shop/imagescans/api/report", anyone), http.StatusForbidden, restv1.ReasonForbidden, "")
	for name, want := range map[string]bool{"web": true, "api": false, "new": false} {
		img := store.ScannerImage{Scanner: string(scanner.UID), Namespace: "shop", Key: key(name)}
		if requested, err := w.store.RescanRequested(t.Context(), img); err != nil || requested != want {
			t.Errorf("another catalog of %s is requested: %v, %v; want %v", name, requested, err, want)
		}
	}
	if _, err := w.store.Catalog(t.Context(), engine, key("web"), store.Cluster); err != nil {
		t.Errorf("the catalog, which other namespaces use: %v", err)
	}
	if findings, err := w.store.Findings(t.Context(), store.Subject{PlatformDigest: digest("web"), Engine: engine}); err != nil || len(findings) != 1 {
		t.Errorf("the result is %v, %v; want it to stay", findings, err)
	}
	w.requireProblem(w.delete("/api/v1/namespaces/shop/imagescans/nothing/report", anyone), http.StatusNotFound, restv1.ReasonNotFound, "")
	w.saveSBOM("web", store.Cluster, `{"artifacts":[]}`)
	again := w.createScan(scanner, "web")
	w.requireProblem(w.delete("/api/v1/namespaces/shop/imagescans/web/report", anyone), http.StatusTooManyRequests, restv1.ReasonTooManyRequests, "")
	w.must(w.cluster.Get(t.Context(), client.ObjectKeyFromObject(again), again)) // it is not deleted
}

// TestFindingsWithAnnouncedReports: the list of an image's findings and all documents of them have what an announced source adds, as the counts do.
func TestFindingsWithAnnouncedReports(t *testing.T) {
	w, _ := newFakeHarness(t)
	scanner := w.createScanner("shop", "main", func(s *v1alpha1.Scanner) {
		s.Spec.ExternalReports.Sources = []v1alpha1.ReportSource{{Name: "ci", Announce: ptr.To(true)}, {Name: "shown"}}
	})
	w.createScanned(scanner, "web", vulnerable("CVE-2026-0001", "openssl"), vulnerable("CVE-2026-0002", "openssl"))
	const path = "/api/v1/namespaces/shop/imagescans/web/"
	tags := map[string]bool{}
	for i, step := range []struct {
		source string
		ids    []string
		want   []string // found in each document
	}{
		{"shown", []string{"CVE-2026-0003"}, []string{"CVE-2026-0001", "CVE-2026-0002"}},
		{"ci", []string{"CVE-2026-0002", "CVE-2026-0003"}, []string{"CVE-2026-0001", "CVE-2026-0002", "CVE-2026-0003"}},
		{"ci", []string{"CVE-2026-0004"}, []string{"CVE-2026-0001", "CVE-2026-0002", "CVE-2026-0004"}},
	} {
		response := w.put(reportPath("shop", "web", step.source), anyone, reportText(i-10, step.ids...))
		if response.StatusCode >= 300 {
			t.Fatalf("saving: %d %s", response.StatusCode, response.body)
		}
		list, err := w.clientFor(anyone).ListFindingsWithResponse(t.Context(), "shop", "web", &restv1.ListFindingsParams{})
		w.must(err)
		for _, f := range list.JSON200.Items {
			isTheirs := f.ID > "CVE-2026-0002"
			if want := map[bool]string{true: "ci"}[isTheirs]; f.Source != want {
				t.Errorf("%s is of the source %q, want %q", f.ID, f.Source, want)
			}
		}
		if len(list.JSON200.Items) != len(step.want) || list.JSON200.Total != len(step.want) {
			t.Errorf("step %d: the list has %s, want %q", i, list.Body, step.want)
		}
		for _, document := range []string{"findings.csv", "sarif", "cyclonedx"} {
			response, body := w.get(path+document, anyone)
			if document == "cyclonedx" {
				tags[response.Header.Get("ETag")] = true
			}
			for n := range 4 {
				id := fmt.Sprintf("CVE-2026-%04d", n+1)
				if got := strings.Contains(string(body), id); got != slices.Contains(step.want, id) {
					t.Errorf("step %d: %s has %s: %t", i, document, id, got)
				}
			}
		}
	}
	if len(tags) != 3 {
		t.Errorf("three documents have %d ETags", len(tags))
	}
}
