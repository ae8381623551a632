package restapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// everyPath has one path of each operation. The first withoutStore of them do not read from the store.
var everyPath = []string{
	"/api/v1/clusterscanners", "/api/v1/clusterscanners/platform",
	"/api/v1/scanners", "/api/v1/namespaces/shop/scanners/main", "/api/v1/namespaces/shop/imagescans", "/api/v1/namespaces/shop/imagescans/web",
	findingsPath, "/api/v1/namespaces/shop/imagescans/web/sbom", "/api/v1/namespaces/shop/imagescans/web/cyclonedx",
	"/api/v1/namespaces/shop/imagescans/web/openvex", "/api/v1/namespaces/shop/scanners/main/messages",
	"/api/v1/clusterscanners/platform/messages",
	"/api/v1/overview", "/api/v1/overview?namespace=shop", "/api/v1/actions", "/api/v1/actions?namespace=shop",
	"/api/v1/history", "/api/v1/history?namespace=shop", "/api/v1/workloads", "/api/v1/workloads?namespace=shop",
	"/api/v1/vulnerabilities", "/api/v1/vulnerabilities?namespace=shop", "/api/v1/vulnerabilities/CVE-2026-0001", "/api/v1/vulnerabilities/CVE-2026-0001?namespace=shop",
	"/api/v1/vulnerabilities/CVE-2026-0001/workloads", "/api/v1/vulnerabilities/CVE-2026-0001/workloads?namespace=shop",
	"/api/v1/namespaces/shop/imagescans.csv", findingsPath + ".csv", "/api/v1/namespaces/shop/imagescans/web/sarif", "/api/v1/findings.csv", "/api/v1/workloads.csv",
	"/api/v1/vulnerabilities.csv?namespace=shop", "/api/v1/vulnerabilities/CVE-2026-0001/workloads.csv",
}

const withoutStore = 6

// TestUnauthenticated: without a token that the API server accepts, nothing is revealed, not even which paths exist.
func TestUnauthenticated(t *testing.T) {
	w, _ := newFakeHarness(t)
	for name, headers := range map[string][]string{
		"no token":              nil,
		"a token of nobody":     {"Authorization", "Bearer forged"},
		"an empty token":        {"Authorization", "Bearer "},
		"another scheme":        {"Authorization", "Basic " + anyone},
		"a token without one":   {"Authorization", anyone},
		"a token without bound": {"Authorization", "Bearer " + strings.Repeat("x", 20_000)},
	} {
		for _, path := range append(everyPath, "/nothing") {
			response, body := w.get(path, "", headers...)
			if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") == "" || !strings.Contains(string(body), "kubectl create token") {
				t.Errorf("GET %s with %s: %d %s, want 401 that says where to get a token", path, name, response.StatusCode, body)
			}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/api/v1/scanners", nil)
	w.must(err)
	r.Header["Authorization"] = []string{"Bearer forged", "Bearer " + anyone}
	response, err := w.http.Do(r)
	w.must(err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("with two tokens: %d, want 401", response.StatusCode)
	}
	if logs := w.logText(); strings.Contains(logs, "forged") || strings.Contains(logs, anyone) {
		t.Errorf("a token is in the log: %s", logs)
	}
}

// TestForbiddenIsUniform: a user without permissions gets the same answers whether or not an object exists.
func TestForbiddenIsUniform(t *testing.T) {
	w, api := newFakeHarness(t)
	api.allowed = func(authorizationv1.SubjectAccessReviewSpec) bool { return false }
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	w.createClusterScanner("platform")
	for _, path := range everyPath {
		response, there := w.get(path, anyone)
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("GET %s: %d %s, want 403", path, response.StatusCode, there)
		}
		replace := strings.NewReplacer("/web", "/missing", "/main", "/missing", "/platform", "/missing", "/shop", "/nowhere", "CVE-2026-0001", "CVE-2026-9999", "=shop", "=nowhere")
		response, missing := w.get(replace.Replace(path), anyone)
		if response.StatusCode != http.StatusForbidden || strings.ReplaceAll(string(there), "shop", "nowhere") != string(missing) {
			t.Errorf("GET %s of what there is not: %d %s, of what there is: %s", path, response.StatusCode, missing, there)
		}
	}
	for line := range strings.Lines(w.logText()) {
		if !strings.Contains(line, `"reason":"Forbidden"`) || !strings.Contains(line, `"user":"anyone"`) || !strings.Contains(line, `"path":"/api`) {
			t.Errorf("a refusal is logged as %s", line)
		}
	}
	if lines := strings.Count(w.logText(), "\n"); lines != 2*len(everyPath) {
		t.Errorf("%d refusals are %d lines in the log", 2*len(everyPath), lines)
	}
	if refused := w.countRequests("listFindings", "403"); refused != 2 {
		t.Errorf("%v refusals of listFindings are counted, want 2", refused)
	}
}

// TestAccessReviews: each operation requires one permission. The review has everything that the API server knows about the user.
func TestAccessReviews(t *testing.T) {
	user := authenticationv1.UserInfo{Username: "jane", UID: "7", Groups: []string{"devs"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}}}
	for path, want := range map[string]string{
		"/api/v1/scanners?namespace=shop":                    "list scanners in shop ",
		"/api/v1/scanners":                                   "list scanners in  ",
		"/api/v1/namespaces/shop/scanners/main":              "get scanners in shop main",
		"/api/v1/namespaces/shop/imagescans":                 "list imagescans in shop ",
		"/api/v1/namespaces/shop/imagescans/web":             "get imagescans in shop web",
		findingsPath:                                         "get imagescans in shop web",
		"/api/v1/namespaces/shop/imagescans/web/sbom":        "get imagescans in shop web",
		"/api/v1/namespaces/shop/imagescans/web/cyclonedx":   "get imagescans in shop web",
		"/api/v1/namespaces/shop/imagescans/web/sarif":       "get imagescans in shop web",
		findingsPath + ".csv":                                "get imagescans in shop web",
		"/api/v1/namespaces/shop/imagescans.csv":             "list imagescans in shop ",
		"/api/v1/findings.csv?namespace=shop":                "list imagescans in shop ",
		"/api/v1/workloads.csv?namespace=shop":               "list imagescans in shop ",
		"/api/v1/vulnerabilities.csv":                        "list imagescans in  ",
		"/api/v1/vulnerabilities/x/workloads.csv":            "list imagescans in  ",
		"/api/v1/clusterscanners":                            "list clusterscanners in  ",
		"/api/v1/clusterscanners/platform":                   "get clusterscanners in  platform",
		"/api/v1/clusterscanners/platform/messages":          "get clusterscanners in  platform",
		"/api/v1/overview":                                   "list imagescans in  list namespaces in ",
		"/api/v1/overview?namespace=shop":                    "list imagescans in shop ",
		"/api/v1/actions":                                    "list imagescans in  ",
		"/api/v1/actions?namespace=shop":                     "list imagescans in shop ",
		"/api/v1/vulnerabilities":                            "list imagescans in  ",
		"/api/v1/vulnerabilities?namespace=shop":             "list imagescans in shop ",
		"/api/v1/vulnerabilities/x":                          "list imagescans in  ",
		"/api/v1/vulnerabilities/x?namespace=shop":           "list imagescans in shop ",
		"/api/v1/vulnerabilities/x/workloads":                "list imagescans in  ",
		"/api/v1/vulnerabilities/x/workloads?namespace=shop": "list imagescans in shop ",
	} {
		w, api := newFakeHarness(t)
		api.tokens["jane"] = user
		var asked []string
		api.allowed = func(spec authorizationv1.SubjectAccessReviewSpec) bool {
			a := spec.ResourceAttributes
			asked = append(asked, fmt.Sprint(a.Verb, " ", a.Resource, " in ", a.Namespace, " ", a.Name))
			if spec.User != "jane" || spec.UID != "7" || !slices.Equal(spec.Groups, user.Groups) || len(spec.Extra["scopes"]) != 2 || a.Group != "scanner-operator.io" && a.Resource != "namespaces" {
				t.Errorf("GET %s: asked about %+v", path, spec)
			}
			return true
		}
		w.get(path, "jane")
		if got := strings.Join(asked, ""); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("GET %s: asked %q, want %q", path, asked, want)
		}
	}
}

// allowOnlyIn allows everything in these namespaces, for everybody, and nothing elsewhere.
func allowOnlyIn(namespaces ...string) func(authorizationv1.SubjectAccessReviewSpec) bool {
	return func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		return slices.Contains(namespaces, spec.ResourceAttributes.Namespace)
	}
}

// TestListsVisibleNamespaces: lists over all namespaces contain what the caller may see, and report that there may be more.
func TestListsVisibleNamespaces(t *testing.T) {
	w, api := newFakeHarness(t)
	for _, namespace := range []string{"blog", "shop", "team"} {
		w.createScanned(w.createScanner(namespace, "main"), "of-"+namespace, vulnerable("CVE-2026-0001", "openssl"))
	}
	api.allowed = allowOnlyIn("blog", "team")
	scanners, err := w.clientFor(anyone).ListScannersWithResponse(t.Context(), nil)
	w.must(err)
	if s := scanners.JSON200; s == nil || s.Total != 2 || len(s.Items) != 2 || s.Items[0].Namespace != "blog" || s.Items[1].Namespace != "team" || s.AllNamespaces {
		t.Errorf("Scanners of two namespaces: %s", scanners.Body)
	}
	workloads, err := w.clientFor(anyone).ListWorkloadsWithResponse(t.Context(), "CVE-2026-0001", nil)
	w.must(err)
	if l := workloads.JSON200; l == nil || l.Total != 2 || l.Items[0].Namespace != "blog" || l.Items[1].Namespace != "team" || l.AllNamespaces {
		t.Errorf("workloads of two namespaces: %s", workloads.Body)
	}
	if response, body := w.get("/api/v1/scanners?namespace=shop", anyone); response.StatusCode != http.StatusForbidden {
		t.Errorf("Scanners of the third: %d %s", response.StatusCode, body)
	}
}

// TestTooManyNamespaces: the number of namespaces that are reviewed for one request is bounded.
func TestTooManyNamespaces(t *testing.T) {
	w, api := newFakeHarness(t)
	api.allowed = allowOnlyIn("n0")
	asked := make([]string, maxNamespaces+1)
	for i := range asked {
		asked[i] = fmt.Sprint("n", i)
	}
	_, err := w.api.authorizer.visibleNamespaces(t.Context(), authenticationv1.UserInfo{Username: "anyone"}, resourceScanners, asked)
	var p *problem
	if !errors.As(err, &p) || p.Field != "namespace" || !strings.Contains(p.Detail, "name one") {
		t.Errorf("with %d namespaces: %v, want a refusal that says to name one", len(asked), err)
	}
	if api.reviews != 1 {
		t.Errorf("%d reviews were made for it", api.reviews)
	}
	seen, err := w.api.authorizer.visibleNamespaces(t.Context(), authenticationv1.UserInfo{Username: "anyone"}, resourceScanners, asked[:maxNamespaces])
	if err != nil || !slices.Equal(seen.namespaces, []string{"n0"}) {
		t.Errorf("with %d namespaces: %v, %v", maxNamespaces, seen, err)
	}
}

// TestReviewsAreCached: reviews are cached for a short time. A revoked permission or token is therefore refused soon.
func TestReviewsAreCached(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createScanner("shop", "main")
	const path = "/api/v1/namespaces/shop/scanners/main"
	status := func() int {
		response, _ := w.get(path, anyone)
		return response.StatusCode
	}
	for range 5 {
		if got := status(); got != http.StatusOK {
			t.Fatal(got)
		}
	}
	if api.reviews != 2 {
		t.Errorf("5 requests made %d reviews, want one of the token and one of the right", api.reviews)
	}
	api.allowed = func(authorizationv1.SubjectAccessReviewSpec) bool { return false }
	w.clock.Step(decisionTTL + time.Second)
	if got := status(); got != http.StatusForbidden {
		t.Errorf("%s after the right was taken away: %d, want 403", decisionTTL, got)
	}
	delete(api.tokens, anyone)
	w.clock.Step(tokenTTL)
	if got := status(); got != http.StatusUnauthorized {
		t.Errorf("%s after the token was revoked: %d, want 401", tokenTTL, got)
	}
	if tokenTTL > time.Minute || decisionTTL > time.Minute {
		t.Error("answers are remembered for more than a minute")
	}
}

// TestRefusedTokensAreCached: made-up tokens keep out no caller whose token is cached, and a repeated token causes no second review.
func TestRefusedTokensAreCached(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web")
	for range 5 {
		if response, _ := w.get(findingsPath, "made-up"); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("with a made-up token: %d, want 401", response.StatusCode)
		}
	}
	if api.reviews != 1 {
		t.Errorf("the same made-up token made %d reviews, want 1", api.reviews)
	}
	api.tokens["made-up"] = authenticationv1.UserInfo{Username: "late"}
	w.clock.Step(11 * time.Second)
	if response, _ := w.get(findingsPath, "made-up"); response.StatusCode != http.StatusOK {
		t.Errorf("11 s after it was refused, the token is good: %d, want 200", response.StatusCode)
	}

	w.get(findingsPath, anyone)
	w.clock.Step(decisionTTL + time.Second) // the token is still cached, the permission is reviewed again
	if response, body := w.get(findingsPath, anyone); response.StatusCode != http.StatusOK {
		t.Errorf("with a permission that is reviewed again: %d %s, want 200", response.StatusCode, body)
	}
}

// TestAPIServerUnavailable: while the API server does not answer, nobody is admitted, and nobody gets 401 or 403.
func TestAPIServerUnavailable(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web")
	api.err = errors.New("connection refused")
	for _, path := range everyPath {
		response, body := w.get(path, anyone)
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || strings.Contains(string(body), "refused") {
			t.Errorf("GET %s: %d %s, want 503 without details", path, response.StatusCode, body)
		}
	}
	if !strings.Contains(w.logText(), "connection refused") || strings.Contains(w.logText(), anyone+`"`) {
		t.Errorf("the log: %s", w.logText())
	}
	api.err = nil
	if response, _ := w.get(findingsPath, anyone); response.StatusCode != http.StatusOK {
		t.Errorf("once it answers again: %d", response.StatusCode)
	}
}

// TestStoreUnavailable: a store that fails does not cause an empty answer.
func TestStoreUnavailable(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	w.createClusterScanner("platform")
	w.must(w.store.Close())
	for _, path := range everyPath[withoutStore:] {
		if response, body := w.get(path, anyone); response.StatusCode != http.StatusServiceUnavailable || strings.Contains(string(body), "store.db") {
			t.Errorf("GET %s: %d %s, want 503 without details", path, response.StatusCode, body)
		}
	}
}
