package restapi

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestWatchedReader: objects of namespaces that are not watched are not found.
func TestWatchedReader(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	there := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}, &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "b"}},
	).Build()
	some := WatchedReader{there, []string{"shop"}}
	var scanner v1alpha1.Scanner
	g.Expect(some.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "a"}, &scanner)).To(Succeed())
	g.Expect(some.Get(t.Context(), client.ObjectKey{Namespace: "bank", Name: "b"}, &scanner)).To(Satisfy(apierrors.IsNotFound))
	for namespace, want := range map[string]int{"shop": 1, "bank": 0} {
		var scanners v1alpha1.ScannerList
		g.Expect(some.List(t.Context(), &scanners, client.InNamespace(namespace))).To(Succeed())
		g.Expect(scanners.Items).To(HaveLen(want), namespace)
	}
	g.Expect(WatchedReader{there, nil}.Get(t.Context(), client.ObjectKey{Namespace: "bank", Name: "b"}, &scanner)).To(Succeed())
}
