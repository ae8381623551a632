package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

const findingsPath = "/api/v1/namespaces/shop/imagescans/web/findings"

// TestParametersRefused: the refusal of an invalid parameter names the parameter and what is allowed.
func TestParametersRefused(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "a"))
	long := strings.Repeat("x", 9000)
	for name, tt := range map[string]struct{ path, field, detail string }{
		"no page":                 {findingsPath + "?limit=0", "limit", "from 1 to 500"},
		"a page too large":        {findingsPath + "?limit=501", "limit", "from 1 to 500"},
		"a page in words":         {findingsPath + "?limit=all", "limit", "from 1 to 500"},
		"an overflow":             {findingsPath + "?limit=99999999999999999999", "limit", "from 1 to 500"},
		"an unknown parameter":    {findingsPath + "?severty=High", "severty", "minSeverity"},
		"another's parameter":     {"/api/v1/scanners?severity=High", "severity", "namespace"},
		"a parameter twice":       {findingsPath + "?fixable=true&fixable=false", "fixable", "2 times"},
		"a severity unknown":      {findingsPath + "?minSeverity=bad", "minSeverity", "Critical, High"},
		"a list of severities":    {findingsPath + "?severity=High,bad", "severity", `"bad" is none of`},
		"a value quoted whole":    {findingsPath + "?minSeverity=" + strings.Repeat("%C3%A9", 40), "minSeverity", `"` + strings.Repeat("é", 40) + `" is none of`},
		"a value cut":             {findingsPath + "?minSeverity=" + strings.Repeat("%C3%A9", 65), "minSeverity", `"` + strings.Repeat("é", 64) + `…" is none of`},
		"too many severities":     {findingsPath + "?severity=High,High,High,High,High,High,High", "severity", "at most 6"},
		"no boolean":              {findingsPath + "?fixable=1", "fixable", "true or false"},
		"no text":                 {findingsPath + "?text=", "text", "at least 1"},
		"a text too long":         {findingsPath + "?text=" + long, "text", "at most 128"},
		"a text in Latin-1":       {findingsPath + "?text=%e4", "text", "UTF-8"},
		"no token":                {findingsPath + "?continue=!", "continue", "does not match"},
		"a token of ours? no":     {findingsPath + "?continue=bm9uc2Vuc2U", "continue", "begin again"},
		"a token too long":        {findingsPath + "?continue=" + long, "continue", "at most 8192"},
		"a broken query":          {findingsPath + "?text=%zz", "query", "encoded"},
		"a phase unknown":         {"/api/v1/namespaces/shop/imagescans?phase=Done", "phase", "Pending, Cataloging"},
		"a Scanner's name":        {"/api/v1/namespaces/shop/imagescans?scanner=A", "scanner", "does not match"},
		"a namespace's name":      {"/api/v1/namespaces/Shop/imagescans", "namespace", "does not match"},
		"a namespace up the path": {"/api/v1/namespaces/%2e%2e/imagescans", "namespace", "does not match"},
		"a namespace to filter":   {"/api/v1/scanners?namespace=a/b", "namespace", "does not match"},
		"an id with a line end":   {"/api/v1/vulnerabilities/CVE%0Ax/workloads", "id", "does not match"},
		"an id too long":          {"/api/v1/vulnerabilities/" + strings.Repeat("x", 129) + "/workloads", "id", "at most 128"},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := w.get(tt.path, anyone)
			var p restv1.Problem
			if err := json.Unmarshal(body, &p); err != nil {
				t.Fatalf("%d %s", response.StatusCode, body)
			}
			if response.StatusCode != http.StatusBadRequest || p.Reason != restv1.ReasonInvalidParameter || p.Field != tt.field || !strings.Contains(p.Detail, tt.detail) {
				t.Errorf("answered %d %s, want 400 with the field %s and %q", response.StatusCode, body, tt.field, tt.detail)
			}
			if len(body) > 2000 {
				t.Errorf("the answer repeats what was sent, %d bytes", len(body))
			}
		})
	}
	if response, _ := w.get(findingsPath, anyone, "If-None-Match", long); response.StatusCode != http.StatusOK {
		t.Errorf("a header that means nothing here: %d", response.StatusCode)
	}
	if response, _ := w.get("/api/v1/namespaces/shop/imagescans/web/sbom", anyone, "If-None-Match", long); response.StatusCode != http.StatusBadRequest {
		t.Errorf("a header that is too long: %d", response.StatusCode)
	}
}

// TestRulesNeedBounds: a document with a parameter without a bound is an error.
func TestRulesNeedBounds(t *testing.T) {
	unbounded := strings.Replace(string(restv1.Document), "maximum: 500", "", 1)
	if _, err := parseRules([]byte(unbounded)); err == nil || !strings.Contains(err.Error(), `"limit"`) {
		t.Errorf("without a bound of limit: %v", err)
	}
	if _, err := parseRules([]byte("{")); err == nil {
		t.Error("what is no YAML is read")
	}
}

// TestDocument: everybody may read the document. Each of its operations is served, and nothing else is.
func TestDocument(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web")
	w.createClusterScanner("main")
	response, body := w.get(PathDocument, "")
	if response.StatusCode != http.StatusOK || string(body) != string(restv1.Document) {
		t.Errorf("the document: %d, %d bytes", response.StatusCode, len(body))
	}
	queries := map[string]string{
		"/api/v1/exceptions/preview": "?vulnerability=CVE-2026-0001", "/api/v1/namespaces/{namespace}/changes": "?since=" + noon.Format(time.RFC3339),
	}
	fill := strings.NewReplacer("{namespace}", "shop", "{kind}", "Deployment", "{name}", "web", "{id}", "CVE-2026-0001", "{digest}", key("web").Digest, "{source}", "ci")
	w.requireStatus(w.put(reportPath("shop", "web", "ci"), anyone, reportText(0)), http.StatusCreated)
	for route := range w.api.rules {
		path, isRead := strings.CutPrefix(route, "GET ")
		if !isRead || path == PathEvents {
			continue // TestSession has those that sign in and out, TestExternalReports those that write, TestEvents the one without an end
		}
		path = strings.Replace(fill.Replace(path)+queries[path], "scanners/web", "scanners/main", 1)
		if response, body := w.get(path, anyone); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", route, response.StatusCode, body)
		}
	}
	for _, path := range []string{"/", "/api", "/api/v1", "/api/v1/namespaces/shop", "/api/v2/scanners", "/metrics", "/api/v1/scanners/"} {
		if response, body := w.get(path, anyone); response.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %d %s, want 404", path, response.StatusCode, body)
		}
	}
}

// TestMethods: a path has only the methods of the document, and only a report that is saved has a body.
func TestMethods(t *testing.T) {
	w, _ := newFakeHarness(t)
	for path, allow := range map[string]string{
		"/api/v1/scanners": "GET", reportPath("shop", "web", "ci"): "GET, PUT, DELETE", PathSession: "GET, POST, DELETE", "/api/v1/namespaces/shop/imagescans/web/report": "DELETE",
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions, http.MethodTrace} {
			if strings.Contains(allow, method) {
				continue
			}
			request := authorised(path)
			request.Method = method
			recorded := httptest.NewRecorder()
			w.handler.ServeHTTP(recorded, request)
			if recorded.Code != http.StatusMethodNotAllowed || recorded.Header().Get("Allow") != allow {
				t.Errorf("%s %s: %d, allowed are %q; want 405 and %q", method, path, recorded.Code, recorded.Header().Get("Allow"), allow)
			}
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		recorded := httptest.NewRecorder()
		w.handler.ServeHTTP(recorded, httptest.NewRequest(method, reportPath("shop", "web", "ci"), strings.NewReader("a body")))
		if recorded.Code != http.StatusBadRequest || recorded.Header().Get("Connection") != "close" {
			t.Errorf("%s with a body: %d, want 400 and the end of the connection", method, recorded.Code)
		}
	}
}

// FuzzQuery: whatever the query is, the response is one that the document allows.
func FuzzQuery(f *testing.F) {
	w, _ := newFakeHarness(f)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "a", severity(finding.Critical)), vulnerable("CVE-2026-0002", "b", fixed))
	first := httptest.NewRecorder()
	w.handler.ServeHTTP(first, authorised(findingsPath+"?limit=1"))
	var page restv1.FindingList
	if err := json.Unmarshal(first.Body.Bytes(), &page); err != nil || page.Continue == "" {
		f.Fatalf("the first page is %s", first.Body)
	}
	for _, query := range []string{
		"", "limit=1", "limit=1&continue=" + page.Continue, "continue=" + page.Continue[:20], "severity=High,Critical&minSeverity=Low",
		"fixable=true&knownExploited=false&package=a&id=CVE-2026-0001&text=%25", "text=%00", "a=b;c=d", "text=%f0%9f%92%a9&outdated=true",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		w.clearLogs()
		r := authorised(findingsPath)
		r.URL = &url.URL{Path: findingsPath, RawQuery: query}
		recorded := httptest.NewRecorder()
		w.handler.ServeHTTP(recorded, r)
		answer, found := openAPIContract().responses(http.MethodGet, findingsPath)[map[bool]string{true: "200", false: "default"}[recorded.Code == http.StatusOK]]
		if !found || (recorded.Code != http.StatusOK && recorded.Code != http.StatusBadRequest && recorded.Code != http.StatusGone) {
			t.Fatalf("the query %q is answered %d %s", query, recorded.Code, recorded.Body)
		}
		for _, schema := range answer {
			var parsed any
			if err := json.Unmarshal(recorded.Body.Bytes(), &parsed); err != nil {
				t.Fatalf("the query %q is answered with what is no JSON: %s", query, recorded.Body)
			}
			if err := schema.Validate(parsed); err != nil {
				t.Errorf("the query %q: %v", query, err)
			}
		}
	})
}

// FuzzContinue: a continue token is either refused, or its position stays the same when it is encoded and decoded again.
func FuzzContinue(f *testing.F) {
	ctx := context.WithValue(context.Background(), callerKey{}, &caller{queryHash: "q"})
	for _, seed := range []string{`{"question":"q","place":{"Count":1}}`, `{"question":"q","place":null}`, `{}`, `null`, `[]`, `{"question":"q"} {}`} {
		token, _ := encodeContinue(ctx, json.RawMessage(seed))
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		place := findingPosition{Store: "s"}
		if err := decodeContinue(ctx, &token, &place); err == nil {
			again, err := encodeContinue(ctx, place)
			if err != nil {
				t.Fatal(err)
			}
			var reread findingPosition
			if err := decodeContinue(ctx, &again, &reread); err != nil || reread != place {
				t.Errorf("the place %+v is read again as %+v, %v", place, reread, err)
			}
		}
	})
}

func authorised(path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+anyone)
	return r
}
