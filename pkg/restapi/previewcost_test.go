package restapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestPreviewOfOneReaderDelaysNoOther: a user who may only list ImageScans of one namespace (the role view) cannot keep others from the REST API
// with GET /api/v1/exceptions/preview. A query ends with its request.
func TestPreviewOfOneReaderDelaysNoOther(t *testing.T) {
	w, api := newFakeHarness(t)
	api.tokens["evil"] = authenticationv1.UserInfo{Username: "system:serviceaccount:evil:reader"}
	api.allowed = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.User == "anyone" || s.ResourceAttributes.Namespace == "evil" && s.ResourceAttributes.Verb != "create"
	}
	w.createNamespaces("shop", "evil")
	w.createScanned(w.createScanner("shop", "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	// The attacker's own image: its repository and tag are long, and it has 8,000 findings. 100,000 would be read.
	var many []finding.Finding
	for i := range 8000 {
		many = append(many, vulnerable(fmt.Sprintf("CVE-2026-%05d", i), "openssl"))
	}
	scanner := w.createScanner("evil", "main")
	w.createScanned(scanner, "bomb", many...)
	repository := "registry.example.com/" + strings.Repeat("a", 220)
	w.must(w.store.SetUsage(t.Context(), store.ImageUsage{Scanner: string(scanner.UID), Namespace: "evil", Key: key("bomb"), Engine: engine, Workloads: []store.Workload{
		{Namespace: "evil", Kind: "Deployment", Name: "bomb", Container: "main", Repository: repository, Reference: repository + ":" + strings.Repeat("a", 128)},
	}}))
	var globs []string
	for j := range 50 {
		globs = append(globs, "*"+strings.Repeat("a", 90+j)+"!")
	}
	attack := "/api/v1/exceptions/preview?" + url.Values{"namespace": {"evil"}, "package": {"*"}, "image": {strings.Join(globs, ",")}}.Encode()
	ask := func(token, path string, timeout time.Duration) (status int, took time.Duration, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
		w.must(err)
		r.Header.Set("Authorization", "Bearer "+token)
		began := time.Now()
		answer, err := w.http.Do(r)
		if err != nil {
			return 0, time.Since(began), err
		}
		_ = answer.Body.Close()
		return answer.StatusCode, time.Since(began), nil
	}
	const honest = "/api/v1/namespaces/shop/imagescans/web/findings"
	status, took, err := ask(anyone, honest, time.Minute)
	t.Logf("before: status %d after %s, %v", status, took.Round(time.Millisecond), err)
	for range 2 {
		go func() { _, _, _ = ask("evil", attack, 2*time.Second) }()
	}
	time.Sleep(2100 * time.Millisecond) // both attackers have hung up
	status, took, err = ask(anyone, honest, time.Minute)
	t.Logf("two requests of %d bytes by a reader of one namespace, whose sender has hung up: another user's request has status %d after %s, %v", len(attack), status,
		took.Round(time.Millisecond), err)
	if status != http.StatusOK || took > 5*time.Second {
		t.Errorf("another user's request: status %d after %s, want 200 within 5 s", status, took.Round(time.Millisecond))
	}
}
