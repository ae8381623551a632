package active_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func sourceOf(t *testing.T, objects ...client.Object) active.Source {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return active.Source{
		Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		Clock:  testingclock.NewFakePassiveClock(noon),
	}
}

func spec(ends time.Duration) v1alpha1.ExceptionSpec {
	s := v1alpha1.ExceptionSpec{Status: v1alpha1.VEXFixed, Reason: "patched", Vulnerabilities: []string{"CVE-2026-0001"}}
	if ends != 0 {
		s.ExpirationTime = &metav1.Time{Time: noon.Add(ends)}
	}
	return s
}

func own(namespace, name string, ends time.Duration) *v1alpha1.VulnerabilityException {
	return &v1alpha1.VulnerabilityException{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec(ends)}
}

func wide(name string, ends time.Duration, selector *metav1.LabelSelector) *v1alpha1.ClusterVulnerabilityException {
	return &v1alpha1.ClusterVulnerabilityException{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ClusterExceptionSpec{ExceptionSpec: spec(ends), NamespaceSelector: selector},
	}
}

func names(set exception.Set) (found []string) {
	for _, e := range set.All() {
		found = append(found, e.Namespace+"/"+e.Name)
	}
	slices.Sort(found)
	return found
}

// TestInForce: InForce and Everywhere return the same exceptions for a namespace.
func TestInForce(t *testing.T) {
	production := &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "production"}}
	s := sourceOf(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: production.MatchLabels}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "play"}},
		own("shop", "forever", 0), own("shop", "soon", time.Hour), own("shop", "over", -time.Hour),
		own("play", "other", 0),
		wide("everywhere", 2*time.Hour, nil), wide("unselective", 0, &metav1.LabelSelector{}), wide("production", 0, production),
		wide("wrong", 0, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "stage", Operator: "Like"}}}),
	)
	for namespace, want := range map[string]struct {
		names []string
		next  time.Duration
	}{
		"shop":    {[]string{"/everywhere", "/production", "/unselective", "shop/forever", "shop/soon"}, time.Hour},
		"play":    {[]string{"/everywhere", "/unselective", "play/other"}, 2 * time.Hour},
		"unknown": {[]string{"/everywhere", "/unselective"}, 2 * time.Hour},
	} {
		set, next, err := s.InForce(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.names, names(set)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", namespace, diff)
		}
		if !next.Equal(noon.Add(want.next)) {
			t.Errorf("%s: the first one ends at %s, want %s", namespace, next, noon.Add(want.next))
		}
		everywhere, err := s.AllNamespaces(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second call is answered from memory
			if again := everywhere(namespace); again.Key() != set.Key() {
				t.Errorf("%s: asked for with all others it has %q", namespace, names(again))
			}
		}
	}
}

// TestNothingEnds: next is zero if no exception of a namespace expires, or if there is none.
func TestNothingEnds(t *testing.T) {
	s := sourceOf(t, own("shop", "forever", 0))
	for namespace, want := range map[string]int{"shop": 1, "play": 0} {
		set, next, err := s.InForce(t.Context(), namespace)
		if err != nil || len(set.All()) != want || !next.IsZero() {
			t.Errorf("%s: %d exceptions until %s and error %v, want %d that never end", namespace, len(set.All()), next, err, want)
		}
	}
}

// TestExpiredInYearOne: an expiration time in the year 1, which equals Go's zero time, means expired.
func TestExpiredInYearOne(t *testing.T) {
	first := own("shop", "first", 0)
	first.Spec.ExpirationTime = &metav1.Time{}
	if set := exception.NewSet([]exception.Exception{active.FromResource(&first.ObjectMeta, &first.Spec)}, noon); set.Key() != "" {
		t.Errorf("in force: %v, want nothing", set.All())
	}
}

// TestFromResource: the conversion keeps all fields of an exception.
func TestFromResource(t *testing.T) {
	made, ends := metav1.NewTime(noon.Add(-time.Hour)), metav1.NewTime(noon)
	got := active.FromResource(&metav1.ObjectMeta{UID: "uid", Namespace: "shop", Name: "openssl", CreationTimestamp: made}, &v1alpha1.ExceptionSpec{
		Status: v1alpha1.VEXNotAffected, Justification: "component_not_present", Reason: "why", Action: "what",
		Vulnerabilities: []string{"CVE-1"}, Packages: []v1alpha1.PackageSelector{{Name: "openssl", Version: "3.*", Type: "deb"}},
		Images: []string{"*/web"}, ExpirationTime: &ends,
	})
	want := exception.Exception{
		UID: "uid", Namespace: "shop", Name: "openssl", Status: "not_affected", Justification: "component_not_present", Reason: "why", Action: "what",
		Vulnerabilities: []string{"CVE-1"}, Packages: []exception.Package{{Name: "openssl", Version: "3.*", Type: "deb"}},
		Images: []string{"*/web"}, Created: made.Time, Expires: noon,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exception (-want +got):\n%s", diff)
	}
}

// TestStatements: statements about images are exceptions in the namespaces that run the image, whichever way exceptions are read.
func TestStatements(t *testing.T) {
	s := sourceOf(t, own("shop", "accepted", 0))
	var asked [][]string
	s.Statements = func(_ context.Context, namespaces []string) ([]exception.Exception, error) {
		asked = append(asked, namespaces)
		return []exception.Exception{{UID: "1", Name: "doc", Manifest: 7, Vulnerabilities: []string{"CVE-1"}, Namespaces: map[string]bool{"shop": true}}}, nil
	}
	has := func(set exception.Set) bool {
		return slices.ContainsFunc(set.All(), func(e exception.Exception) bool { return e.Name == "doc" && e.IsStatement() })
	}
	one, _, err := s.InForce(t.Context(), "shop")
	if err != nil || !has(one) || len(one.All()) != 2 {
		t.Errorf("in shop: %v, %v", one.All(), err)
	}
	other, _, err := s.InForce(t.Context(), "play")
	if err != nil || has(other) {
		t.Errorf("in play: %v, %v", other.All(), err)
	}
	several, _, err := s.InForceIn(t.Context(), []string{"play", "shop"})
	if err != nil || !has(several) {
		t.Errorf("in play and shop: %v, %v", several.All(), err)
	}
	if none, _, err := s.InForceIn(t.Context(), nil); err != nil || has(none) {
		t.Errorf("in no namespace: %v, %v", none.All(), err)
	}
	all, err := s.AllNamespaces(t.Context())
	if err != nil || !has(all("shop")) || has(all("play")) {
		t.Errorf("in all namespaces: shop %v, play %v, %v", all("shop").All(), all("play").All(), err)
	}
	if diff := cmp.Diff([][]string{{"shop"}, {"play"}, {"play", "shop"}, nil}, asked); diff != "" {
		t.Errorf("namespaces that were read (-want +got):\n%s", diff)
	}
	s.Statements = func(context.Context, []string) ([]exception.Exception, error) { return nil, errors.New("store") }
	if _, _, err := s.InForce(t.Context(), "shop"); err == nil {
		t.Error("exceptions without the statements, which cannot be read")
	}
}
