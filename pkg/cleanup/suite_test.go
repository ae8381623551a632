package cleanup

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// foreign is the finalizer of another controller.
const foreign = "example.com/another-controller"

// apiServer connects to the API server that all tests share; nil without KUBEBUILDER_ASSETS.
var apiServer *rest.Config

func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		os.Exit(m.Run())
	}
	server := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join("..", "..", "config", "crd", "bases")}, ErrorIfCRDPathMissing: true}
	var err error
	if apiServer, err = server.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server:", err)
		os.Exit(1)
	}
	apiServer.QPS = -1 // no client-side rate limit
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API server:", err)
	}
	os.Exit(code)
}

// testCluster is a namespace of a real API server, without an operator.
type testCluster struct {
	Gomega
	t         *testing.T
	client    client.WithWatch
	namespace string
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	if apiServer == nil {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	t.Parallel()
	p := &testCluster{Gomega: NewWithT(t), t: t}
	var err error
	p.client, err = client.NewWithWatch(apiServer, client.Options{Scheme: newScheme()})
	p.must(err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	p.must(p.client.Create(t.Context(), namespace))
	p.namespace = namespace.Name
	return p
}

func (p *testCluster) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *testCluster) create(objects ...client.Object) {
	p.t.Helper()
	for _, o := range objects {
		p.must(p.client.Create(p.t.Context(), o))
	}
}

// delete deletes objects without a grace period.
func (p *testCluster) delete(objects ...client.Object) {
	p.t.Helper()
	for _, o := range objects {
		p.must(p.client.Delete(p.t.Context(), o, client.GracePeriodSeconds(0)))
	}
}

func (p *testCluster) gone(o client.Object) bool {
	p.t.Helper()
	err := p.client.Get(p.t.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))
	p.must(client.IgnoreNotFound(err))
	return apierrors.IsNotFound(err)
}

// read reads an existing object again.
func (p *testCluster) read(o client.Object) client.Object {
	p.t.Helper()
	current := o.DeepCopyObject().(client.Object)
	p.must(p.client.Get(p.t.Context(), client.ObjectKeyFromObject(o), current))
	return current
}

func (p *testCluster) finalizers(o client.Object) []string { return p.read(o).GetFinalizers() }

func (p *testCluster) annotations(o client.Object) map[string]string {
	return p.read(o).GetAnnotations()
}

// expandNamespace replaces "@" by the test's namespace.
func (p *testCluster) expandNamespace(text string) string {
	return strings.ReplaceAll(text, "@", p.namespace)
}

func aPod(namespace, name string, finalizers ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}
}

func aScanner(namespace, name string, finalizers ...string) *v1alpha1.Scanner {
	return &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
	}
}

// releaseOf returns the finalizer that a Scanner sets on pods.
func releaseOf(scanner string) string { return scanner + podmark.FinalizerSuffix }

// runCleanup runs a Cleaner in the test's namespace with a list page size of one, and returns the output.
func (p *testCluster) runCleanup(dryRun bool, funcs interceptor.Funcs, change func(*Cleaner)) (string, error) {
	p.t.Helper()
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		return c.List(ctx, list, append(opts, client.Limit(1))...)
	}
	var out bytes.Buffer
	c := Cleaner{
		Client: interceptor.NewClient(p.client, funcs), Namespaces: []string{p.namespace}, Home: p.namespace, Manager: p.manager(), DryRun: dryRun,
		Timeout: time.Minute, Out: &out,
	}
	if change != nil {
		change(&c)
	}
	err := c.Run(p.t.Context())
	return out.String(), err
}
