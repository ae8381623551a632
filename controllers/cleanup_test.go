package controllers

import (
	"bytes"
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// leftovers is what an uninstalled operator has left in the cluster.
type leftovers struct {
	scanner, deleted         *v1alpha1.Scanner
	held, annotated, foreign *corev1.Pod
}

func (p *testEnv) createLeftovers() leftovers {
	p.t.Helper()
	scanner, deleted := aScanner(p.namespace, "scanner"), aScanner(p.namespace, "deleted")
	scanner.Finalizers, deleted.Finalizers = []string{foreign, scannerFinalizer}, []string{scannerFinalizer, manifestsFinalizer}
	l := leftovers{
		scanner: scanner, deleted: deleted,
		held:      aPod(p.namespace, "held", running("main", web), finalizedBy(releaseOf("scanner"), releaseOf("deleted"))),
		annotated: aPod(p.namespace, "annotated", running("main", web), finalizedBy(foreign)),
		foreign:   aPod(p.namespace, "foreign", running("main", web), finalizedBy(foreign)),
	}
	l.annotated.Annotations = map[string]string{"scanner" + podmark.AnnotationSuffix: "{}", v1alpha1.AnnotationReceiver: "theirs", "example.com/mine": "stays"}
	l.foreign.Annotations = map[string]string{v1alpha1.AnnotationReceiver: "theirs"}
	p.create(scanner, deleted, l.held, l.annotated, l.foreign)
	p.delete(deleted, l.held)
	return l
}

// runCleanup runs Cleanup in the place's namespace with a list page size of one, and returns the output.
func (p *testEnv) runCleanup(dryRun bool, funcs interceptor.Funcs, change func(*Cleanup)) (string, error) {
	p.t.Helper()
	watching, err := client.NewWithWatch(p.config, client.Options{Scheme: p.client.Scheme()})
	p.must(err)
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		return c.List(ctx, list, append(opts, client.Limit(1))...)
	}
	var out bytes.Buffer
	c := Cleanup{
		Client: interceptor.NewClient(watching, funcs), Namespaces: []string{p.namespace}, Home: p.namespace, Manager: p.manager(), DryRun: dryRun,
		Workers: backend.WorkerSelector(), IsWorker: backend.IsWorker, Timeout: eventuallyTimeout, Out: &out,
	}
	if change != nil {
		change(&c)
	}
	err = c.Run(p.t.Context())
	return out.String(), err
}

// TestCleanup: without the operator, its finalizers block deletions. Cleanup prints in a dry run what it would change, changes it,
// continues after a failure and names it, and does nothing in a second run.
func TestCleanup(t *testing.T) {
	p := newTestEnv(t)
	p.namespace = absent
	l := p.createLeftovers()
	p.Consistently(func() bool { return p.gone(l.held)() || p.gone(l.deleted)() }, consistentlyDuration).Should(BeFalse())

	const all = "Pod absent/annotated: removed scanner.scanner-operator.io/image-hashes\n" +
		"Pod absent/held: removed scanner.scanner-operator.io/release, deleted.scanner-operator.io/release\n" +
		"Scanner absent/deleted: removed scanner-operator.io/pod-finalizers, scanner-operator.io/backend-manifests\n" +
		"Scanner absent/scanner: removed scanner-operator.io/pod-finalizers\n"
	output, err := p.runCleanup(true, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(Equal(string(bytes.ReplaceAll([]byte(all), []byte("removed"), []byte("would remove")))))
	p.Expect(p.gone(l.held)() || p.gone(l.deleted)()).To(BeFalse(), "it only said so")

	_, err = p.runCleanup(false, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "annotated" || o.GetName() == "deleted" {
			return errors.New("a policy forbids it")
		}
		return c.Patch(ctx, o, patch, opts...)
	}}, nil)
	p.Expect(err).To(MatchError("Pod absent/annotated: a policy forbids it\nScanner absent/deleted: a policy forbids it"))
	p.Expect(p.gone(l.held)()).To(BeTrue())
	p.Expect(p.finalizers(l.scanner)()).To(ConsistOf(foreign))

	output, err = p.runCleanup(false, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(Equal("Pod absent/annotated: removed scanner.scanner-operator.io/image-hashes\nScanner absent/deleted: removed scanner-operator.io/pod-finalizers, scanner-operator.io/backend-manifests\n"))
	p.Expect(p.gone(l.deleted)()).To(BeTrue())
	p.Expect(p.annotations(l.annotated)()).To(Equal(map[string]string{v1alpha1.AnnotationReceiver: "theirs", "example.com/mine": "stays"}))
	for _, pod := range []*corev1.Pod{l.annotated, l.foreign} {
		p.Expect(p.finalizers(pod)()).To(ConsistOf(foreign), "what others put there is theirs")
	}

	output, err = p.runCleanup(false, interceptor.Funcs{}, nil)
	p.must(err)
	p.Expect(output).To(BeEmpty())
}

// TestCleanupWithoutCRD: the pods are cleaned even if the CustomResourceDefinitions are already deleted.
func TestCleanupWithoutCRD(t *testing.T) {
	pod := aPod(fixtureNamespace, "a", running("main", web), finalizedBy(releaseOf("all")))
	u := newUnit(t, pod)
	var out bytes.Buffer
	c := Cleanup{Out: &out, Workers: backend.WorkerSelector(), IsWorker: backend.IsWorker, Client: interceptor.NewClient(u.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind(); kind.Group == v1alpha1.GroupVersion.Group {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: kind.Group, Kind: "Scanner"}}
			}
			return c.List(ctx, list, opts...)
		},
	})}
	u.must(c.Run(t.Context()))
	if want := "Pod shop/a: removed all.scanner-operator.io/release\nScanner: the cluster does not have this kind, so there are none\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if len(pod.Finalizers) > 0 {
		t.Errorf("finalizers %q are left", pod.Finalizers)
	}
}
