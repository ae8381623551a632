package restapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// createClusterException creates an exception for a vulnerability in the namespaces with a team's label; in all if team is empty.
func (w *harness) createClusterException(name, id, team string) *v1alpha1.ClusterVulnerabilityException {
	w.t.Helper()
	e := &v1alpha1.ClusterVulnerabilityException{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterExceptionSpec{ExceptionSpec: v1alpha1.ExceptionSpec{
		Status: v1alpha1.VEXFixed, Reason: "Patched in the base image.", Vulnerabilities: []string{id},
	}}}
	if team != "" {
		e.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
	}
	w.must(w.cluster.Create(w.t.Context(), e))
	return e
}

// endsIn lets an exception expire some time after noon.
func endsIn(d time.Duration) func(*v1alpha1.ExceptionSpec) {
	return func(e *v1alpha1.ExceptionSpec) { e.ExpirationTime = ptr.To(metav1.NewTime(noon.Add(d))) }
}

// exceptionLines lists exceptions, one on each page: "namespace/name state".
func (w *harness) exceptionLines(namespace string, state restv1.ExceptionState) (lines []string) {
	w.t.Helper()
	params := restv1.ListExceptionsParams{Limit: ptr.To(1)}
	if namespace != "" {
		params.Namespace = &namespace
	}
	if state != "" {
		params.State = &state
	}
	for first := true; first || params.Continue != nil; first = false {
		page, err := w.clientFor(anyone).ListExceptionsWithResponse(w.t.Context(), &params)
		w.must(err)
		if page.JSON200 == nil {
			w.t.Fatalf("exceptions: %d %s", page.StatusCode(), page.Body)
		}
		for _, e := range page.JSON200.Items {
			lines = append(lines, fmt.Sprintf("%s/%s %s", e.Namespace, e.Name, e.State))
		}
		params.Continue = nextPage(page.JSON200.Continue)
	}
	return lines
}

// TestListExceptions: each caller gets the exceptions that RBAC lets it list, with their state.
func TestListExceptions(t *testing.T) {
	w, api := newFakeHarness(t)
	w.createNamespaces("blog")
	w.must(w.cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "shop"}}}))
	w.createScanner("shop", "main")
	w.createScanner("blog", "main")
	w.createException("shop", "over", "CVE-2026-0001", endsIn(0))
	w.createException("shop", "soon", "CVE-2026-0002", endsIn(6*24*time.Hour))
	w.createException("shop", "later", "CVE-2026-0003", endsIn(8*24*time.Hour))
	w.createException("blog", "always", "CVE-2026-0004")
	w.createClusterException("everywhere", "CVE-2026-0005", "")
	w.createClusterException("of-shop", "CVE-2026-0006", "shop")
	invalid := w.createClusterException("invalid", "CVE-2026-0007", "")
	invalid.Spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Near"}}}
	w.must(w.cluster.Update(t.Context(), invalid))

	mayListNothingClusterWide := func(namespaces ...string) func(authorizationv1.SubjectAccessReviewSpec) bool {
		return func(s authorizationv1.SubjectAccessReviewSpec) bool {
			return s.ResourceAttributes.Resource == "vulnerabilityexceptions" && s.ResourceAttributes.Namespace != "" && allowOnlyIn(namespaces...)(s)
		}
	}
	everything := api.allowed
	for name, tt := range map[string]struct {
		allowed   func(authorizationv1.SubjectAccessReviewSpec) bool
		namespace string
		state     restv1.ExceptionState
		want      string
	}{
		"all, the one that ends first before the others": {
			everything, "", "", "shop/over Expired, shop/soon EndingSoon, shop/later InForce, /everywhere InForce, /invalid InvalidSelector, /of-shop InForce, blog/always InForce",
		},
		"those that end soon":             {everything, "", restv1.ExceptionEndingSoon, "shop/soon EndingSoon"},
		"those that apply to a namespace": {everything, "blog", "", "/everywhere InForce, /invalid InvalidSelector, blog/always InForce"},
		"of a caller who sees blog only":  {mayListNothingClusterWide("blog"), "", "", "blog/always InForce"},
	} {
		t.Run(name, func(t *testing.T) {
			api.allowed = tt.allowed
			w.clock.Step(2 * decisionTTL)
			if got := strings.Join(w.exceptionLines(tt.namespace, tt.state), ", "); got != tt.want {
				t.Errorf("exceptions: %s\nwant %s", got, tt.want)
			}
		})
	}
	t.Run("a caller who may list none", func(t *testing.T) {
		api.allowed = func(authorizationv1.SubjectAccessReviewSpec) bool { return false }
		w.clock.Step(2 * decisionTTL)
		if response, body := w.get("/api/v1/exceptions", anyone); response.StatusCode != http.StatusForbidden {
			t.Errorf("%d %s, want 403", response.StatusCode, body)
		}
	})
}

// TestExceptionDetails: an exception has all that its resource says, and how many findings it suppresses.
func TestExceptionDetails(t *testing.T) {
	w, _ := newFakeHarness(t)
	w.createScanner("shop", "main")
	e := w.createException("shop", "accepted", "CVE-2026-0001", endsIn(30*24*time.Hour), func(e *v1alpha1.ExceptionSpec) {
		e.Status, e.Justification, e.Action = v1alpha1.VEXAffected, "", "Update in June."
		e.Packages, e.Images = []v1alpha1.PackageSelector{{Name: "open*", Version: "3.0.*", Type: "deb"}}, []string{"ghcr.io/shop/*"}
	})
	e.Status.Findings = ptr.To(int32(3))
	w.must(w.cluster.Update(t.Context(), e))
	answer, err := w.clientFor(anyone).ListExceptionsWithResponse(t.Context(), nil)
	w.must(err)
	want := &restv1.ExceptionList{Total: 1, ClusterWide: true, Items: []restv1.ExceptionDetails{{
		Kind: "VulnerabilityException", Namespace: "shop", Name: "accepted", State: restv1.ExceptionInForce, Status: "affected", Reason: "Compiled out.",
		Action: "Update in June.", Vulnerabilities: []string{"CVE-2026-0001"}, Packages: []restv1.PackageSelector{{Name: "open*", Version: "3.0.*", Type: "deb"}},
		Images: []string{"ghcr.io/shop/*"}, CreationTime: e.CreationTimestamp.UTC(), ExpirationTime: noon.Add(30 * 24 * time.Hour), Findings: ptr.To(3),
	}}}
	if diff := cmp.Diff(want, answer.JSON200); diff != "" {
		t.Errorf("exceptions (-want +got):\n%s", diff)
	}
}
