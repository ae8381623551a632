package cleanup

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// leftovers is what an uninstalled operator has left in the cluster.
type leftovers struct {
	scanner, deleted         *v1alpha1.Scanner
	held, annotated, foreign *corev1.Pod
}

func (p *testCluster) createLeftovers() leftovers {
	p.t.Helper()
	scanner := aScanner(p.namespace, "scanner", foreign, v1alpha1.FinalizerPods)
	deleted := aScanner(p.namespace, "deleted", v1alpha1.FinalizerPods, v1alpha1.FinalizerManifests)
	l := leftovers{
		scanner: scanner, deleted: deleted,
		held:      aPod(p.namespace, "held", releaseOf("scanner"), releaseOf("deleted")),
		annotated: aPod(p.namespace, "annotated", foreign),
		foreign:   aPod(p.namespace, "foreign", foreign),
	}
	l.annotated.Annotations = map[string]string{"scanner" + podmark.AnnotationSuffix: "{}", v1alpha1.AnnotationReceiver: "theirs", "example.com/mine": "stays"}
	l.foreign.Annotations = map[string]string{v1alpha1.AnnotationReceiver: "theirs"}
	p.create(scanner, deleted, l.held, l.annotated, l.foreign)
	p.delete(deleted, l.held)
	return l
}

// TestCleanup: without the operator, its finalizers block deletions. Cleanup prints in a dry run what it would change, changes it,
// continues after a failure and names it, and does nothing in a second run.
func TestCleanup(t *testing.T) {
	p := newTestCluster(t)
	l := p.createLeftovers()
	p.Expect(p.gone(l.held) || p.gone(l.deleted)).To(BeFalse(), "finalizers block the deletion")

	all := p.expandNamespace("Pod @/annotated: removed scanner.scanner-operator.io/image-hashes\n" +
		"Pod @/held: removed scanner.scanner-operator.io/release, deleted.scanner-operator.io/release\n" +
		"Scanner @/deleted: removed scanner-operator.io/pod-finalizers, scanner-operator.io/backend-manifests\n" +
		"Scanner @/scanner: removed scanner-operator.io/pod-finalizers\n")
	output, err := p.runCleanup(true, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(Equal(strings.ReplaceAll(all, "removed", "would remove")))
	p.Expect(p.gone(l.held) || p.gone(l.deleted)).To(BeFalse(), "it only said so")

	_, err = p.runCleanup(false, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "annotated" || o.GetName() == "deleted" {
			return errors.New("a policy forbids it")
		}
		return c.Patch(ctx, o, patch, opts...)
	}}, nil)
	p.Expect(err).To(MatchError(p.expandNamespace("Pod @/annotated: a policy forbids it\nScanner @/deleted: a policy forbids it")))
	p.Expect(p.gone(l.held)).To(BeTrue())
	p.Expect(p.finalizers(l.scanner)).To(ConsistOf(foreign))

	output, err = p.runCleanup(false, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(Equal(p.expandNamespace("Pod @/annotated: removed scanner.scanner-operator.io/image-hashes\nScanner @/deleted: removed scanner-operator.io/pod-finalizers, scanner-operator.io/backend-manifests\n")))
	p.Expect(p.gone(l.deleted)).To(BeTrue())
	p.Expect(p.annotations(l.annotated)).To(Equal(map[string]string{v1alpha1.AnnotationReceiver: "theirs", "example.com/mine": "stays"}))
	for _, pod := range []*corev1.Pod{l.annotated, l.foreign} {
		p.Expect(p.finalizers(pod)).To(ConsistOf(foreign), "what others put there is theirs")
	}

	output, err = p.runCleanup(false, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(BeEmpty())
}

// TestCleanupWithoutCRD: the pods are cleaned even if the CustomResourceDefinitions are already deleted.
func TestCleanupWithoutCRD(t *testing.T) {
	pod := aPod("shop", "a", releaseOf("all"))
	cluster := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(pod).Build()
	var out bytes.Buffer
	c := Cleaner{Out: &out, Client: interceptor.NewClient(cluster, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind(); kind.Group == v1alpha1.GroupVersion.Group {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: kind.Group, Kind: "Scanner"}}
			}
			return c.List(ctx, list, opts...)
		},
	})}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "Pod shop/a: removed all.scanner-operator.io/release\nScanner: the cluster does not have this kind, so there are none\n" +
		"ClusterScanner: the cluster does not have this kind, so there are none\n"
	if out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || len(pod.Finalizers) > 0 {
		t.Errorf("finalizers %q are left (%v)", pod.Finalizers, err)
	}
}

// TestCleanupClusterScanners: a ClusterScanner loses the operator's finalizers and is deleted on request, but not by a cleanup of namespaces
// without the operator's own.
func TestCleanupClusterScanners(t *testing.T) {
	held := &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "platform", Finalizers: []string{foreign, v1alpha1.FinalizerManifests}}}
	const removed = "ClusterScanner platform: removed " + v1alpha1.FinalizerManifests + "\n"
	for name, tt := range map[string]struct {
		cleaner    Cleaner
		output     string
		finalizers []string
		deleted    bool
	}{
		"all namespaces":         {Cleaner{}, removed, []string{foreign}, false},
		"the operator's, too":    {Cleaner{Namespaces: []string{"shop", "home"}}, removed, []string{foreign}, false},
		"without the operator's": {Cleaner{Namespaces: []string{"shop"}}, "", []string{foreign, v1alpha1.FinalizerManifests}, false},
		"deleted by its name":    {Cleaner{ClusterScanner: "platform"}, "ClusterScanner platform: deleted\n" + removed, []string{foreign}, true},
		"another one is deleted": {Cleaner{ClusterScanner: "other"}, removed, []string{foreign}, false},
		"deleted as well":        {Cleaner{Scanners: true}, "ClusterScanner platform: deleted\n" + removed, []string{foreign}, true},
	} {
		cluster := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(held.DeepCopy()).Build()
		var out bytes.Buffer
		c := tt.cleaner
		c.Client, c.Home, c.Out = cluster, "home", &out
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(name, err)
		}
		if out.String() != tt.output {
			t.Errorf("%s: it says %q, want %q", name, out.String(), tt.output)
		}
		var left v1alpha1.ClusterScanner
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(held), &left); err != nil {
			t.Fatal(name, err)
		}
		if !slices.Equal(left.Finalizers, tt.finalizers) || left.DeletionTimestamp.IsZero() == tt.deleted {
			t.Errorf("%s: finalizers %q, deleted at %v", name, left.Finalizers, left.DeletionTimestamp)
		}
	}
}
