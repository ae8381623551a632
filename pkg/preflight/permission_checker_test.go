package preflight

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// checkerFixture is a Checker of one namespace with a pod, the cache that it compares with, and the forbidden requests ("list pods").
type checkerFixture struct {
	*Checker
	cache     client.Client
	forbidden map[string]bool
	// everywhere is allowed in all namespaces, by a ClusterRoleBinding.
	everywhere map[string]bool
	// during is called during each request; nil for nothing.
	during func()
}

func newCheckerFixture(t *testing.T) *checkerFixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &checkerFixture{cache: fake.NewClientBuilder().WithScheme(scheme).Build(), forbidden: map[string]bool{}, everywhere: map[string]bool{}}
	review := func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		if w.during != nil {
			w.during()
		}
		asked := o.(*authorizationv1.SelfSubjectAccessReview)
		permission := asked.Spec.ResourceAttributes.Verb + " " + asked.Spec.ResourceAttributes.Resource
		if asked.Status.Allowed = !w.forbidden[permission]; asked.Spec.ResourceAttributes.Namespace == "" {
			asked.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: w.everywhere[permission], Reason: "RBAC: allowed by old"}
		}
		return nil
	}
	w.Checker = &Checker{
		Client:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(newPod()).WithInterceptorFuncs(interceptor.Funcs{Create: review}).Build(),
		Cache:   w.cache,
		Watched: []string{"shop"}, OperatorNamespace: "home", Account: "home:manager", Log: logr.Discard(), OnChange: func(context.Context, string, string) {},
	}
	return w
}

func newPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
}

func (w *checkerFixture) wantReadable(t *testing.T, readable bool, when string) {
	t.Helper()
	if got := w.IsCacheComplete("shop"); got != readable {
		t.Errorf("%s: readable %t, want %t", when, got, readable)
	}
}

// TestReadable: a namespace that could not be read becomes readable one check after its cache has objects. An informer that may list again
// adds objects one by one: an object that it has not added yet still exists.
func TestReadable(t *testing.T) {
	w := newCheckerFixture(t)
	w.wantReadable(t, false, "before the first look")
	w.forbidden["list pods"] = true
	w.check(t.Context(), true)
	w.wantReadable(t, false, "without the right")
	delete(w.forbidden, "list pods")
	w.check(t.Context(), false)
	w.wantReadable(t, false, "with the right, before the informer has listed")
	if err := w.cache.Create(t.Context(), newPod()); err != nil {
		t.Fatal(err)
	}
	w.check(t.Context(), false)
	w.wantReadable(t, false, "as the informer may still be adding")
	w.check(t.Context(), false)
	w.wantReadable(t, true, "at the look after that")
	if advice := w.Missing("shop"); advice != "" {
		t.Errorf("missing is %q, want nothing", advice)
	}
}

// TestReadableFromTheStart: the manager waits for its first lists. If they are allowed, the first check is therefore enough.
func TestReadableFromTheStart(t *testing.T) {
	w := newCheckerFixture(t)
	if err := w.cache.Create(t.Context(), newPod()); err != nil {
		t.Fatal(err)
	}
	w.check(t.Context(), true)
	w.wantReadable(t, true, "after the first look")
}

// TestRequestForAllNamespaces: a change that has no namespace, such as one of a ClusterScanner, has all namespaces checked.
func TestRequestForAllNamespaces(t *testing.T) {
	w := newCheckerFixture(t)
	if err := w.cache.Create(t.Context(), newPod()); err != nil {
		t.Fatal(err)
	}
	w.check(t.Context(), true)
	w.RequestCheck("elsewhere")
	for _, namespace := range []string{"shop", "home"} {
		if w.needsCheck(namespace) {
			t.Errorf("namespace %s is checked because of another one", namespace)
		}
	}
	w.RequestCheck("")
	for _, namespace := range []string{"shop", "home"} {
		if !w.needsCheck(namespace) {
			t.Errorf("namespace %s is not checked", namespace)
		}
	}
}

// TestRequestDuringCheck: a request for another check that arrives during a check is not lost.
func TestRequestDuringCheck(t *testing.T) {
	w := newCheckerFixture(t)
	if err := w.cache.Create(t.Context(), newPod()); err != nil {
		t.Fatal(err)
	}
	w.check(t.Context(), true)
	w.RequestCheck("shop")
	w.during = func() { w.RequestCheck("shop") }
	w.check(t.Context(), false)
	if !w.needsCheck("shop") {
		t.Error("the request during the check is lost")
	}
	w.during = nil
	w.check(t.Context(), false)
	if w.needsCheck("shop") {
		t.Error("the namespace is checked again, and nobody has requested it")
	}
}

// TestExcess: a manager of some namespaces reports once that its account has permissions in all, and again when they came back.
func TestExcess(t *testing.T) {
	w := newCheckerFixture(t)
	var reports []string
	w.OnExcess = func(advice string) { reports = append(reports, advice) }
	for step, test := range []struct {
		everywhere string
		reports    int
	}{{"", 0}, {"create jobs", 1}, {"create jobs", 1}, {"", 1}, {"create jobs", 2}, {"patch scanners", 3}} {
		w.everywhere = map[string]bool{test.everywhere: true}
		if err := w.check(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if len(reports) != test.reports {
			t.Errorf("step %d: reports %q, want %d", step, reports, test.reports)
		}
	}
	if len(reports) > 0 && (!strings.Contains(reports[0], "may create jobs.batch in all namespaces") || !strings.Contains(reports[0], "allowed by old")) {
		t.Errorf("the report is %q", reports[0])
	}
	w.Watched, w.everywhere, reports = nil, map[string]bool{"create jobs": true}, nil
	if err := w.check(t.Context(), true); err != nil || len(reports) > 0 {
		t.Errorf("a manager of all namespaces reports %q (%v)", reports, err)
	}
	w.everywhere["create secrets"], w.ByOLM = true, true // as OLM grants the Role of the operator's namespace
	if err := w.check(t.Context(), true); err != nil || len(reports) > 0 {
		t.Errorf("a manager that OLM installed reports %q (%v)", reports, err)
	}
	w.ByOLM = false
	if err := w.check(t.Context(), true); err != nil || len(reports) != 1 {
		t.Errorf("a manager after one that OLM installed reports %q (%v), want one", reports, err)
	}
}
