package openreports

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/go-logr/logr"
	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

// server is the API server that all tests share; nil without KUBEBUILDER_ASSETS. It has no Reports until a test installs them.
var server *envtest.Environment

var crds = envtest.CRDInstallOptions{Paths: []string{filepath.Join("testdata", "openreports.io_reports.yaml")}, ErrorIfPathMissing: true}

func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		os.Exit(m.Run())
	}
	server = &envtest.Environment{}
	if _, err := server.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API server:", err)
	}
	os.Exit(code)
}

// world is a namespace of a real API server, a store, and a Writer with the permissions of the component.
type world struct {
	Gomega
	t         testing.TB
	client    client.Client
	namespace string
	store     *store.Store
	clock     *clocktesting.FakePassiveClock
	writer    *Writer
	// exceptions are in force in the namespace. problems is how often OnProblem was called.
	exceptions []exception.Exception
	problems   int
	scans      int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	if server == nil {
		t.Skip("needs KUBEBUILDER_ASSETS: make test")
	}
	w := &world{Gomega: NewWithT(t), t: t, clock: clocktesting.NewFakePassiveClock(noon)}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(reports.Install(scheme))
	var err error
	w.client, err = client.New(server.Config, client.Options{Scheme: scheme})
	w.Expect(err).NotTo(HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	w.Expect(w.client.Create(t.Context(), namespace)).To(Succeed())
	w.namespace = namespace.Name
	w.store, err = storetest.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), w.clock.Now, store.OpenSQLite)
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = w.store.Close() })
	w.writer = &Writer{
		Client: w.as(scheme), Store: w.store, Exceptions: w, Clock: w.clock, Log: logr.Discard(), MaxResults: 50, Watched: []string{w.namespace},
		Reported: func(ctx context.Context, scanner string) (map[store.NamespacedImage][]string, error) {
			return w.store.ReportGaps(ctx, scanner, "grype")
		},
		OnProblem: func(context.Context) { w.problems++ },
	}
	return w
}

// as returns a client of a new user who has the role of the component in the namespace, and no other permission.
func (w *world) as(scheme *runtime.Scheme) client.Client {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "components", "openreports", "role.yaml"))
	w.Expect(err).NotTo(HaveOccurred())
	var shipped rbacv1.ClusterRole
	w.Expect(yaml.UnmarshalStrict(text, &shipped)).To(Succeed())
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "writer"}, Rules: shipped.Rules}
	w.Expect(w.client.Create(w.t.Context(), role)).To(Succeed())
	w.Expect(w.client.Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "writer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: w.namespace}},
	})).To(Succeed())
	user, err := server.AddUser(envtest.User{Name: w.namespace}, nil)
	w.Expect(err).NotTo(HaveOccurred())
	config := user.Config()
	config.QPS = -1 // no limit
	c, err := client.New(config, client.Options{Scheme: scheme})
	w.Expect(err).NotTo(HaveOccurred())
	return c
}

// AllNamespaces implements Exceptions.
func (w *world) AllNamespaces(context.Context) (func(string) exception.Set, error) {
	set := exception.NewSet(w.exceptions, w.clock.Now())
	return func(string) exception.Set { return set }, nil
}

func (w *world) installCRD() {
	w.t.Helper()
	_, err := envtest.InstallCRDs(server.Config, crds)
	w.Expect(err).NotTo(HaveOccurred())
}

// round makes one round, half a minute after the one before.
func (w *world) round() {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(30 * time.Second))
	w.Expect(w.writer.Run(w.t.Context())).To(Succeed())
}

func keyOf(reference string) image.Key {
	return image.Key{Digest: digestOf(reference), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
}

func digestOf(text string) string { return "sha256:" + shortHash(text) + shortHash(text, text) }

// run records that a workload runs an image, or that nothing runs it any more if the name is empty.
func (w *world) run(reference, kind, name string) {
	w.t.Helper()
	if name == "" {
		w.runAll(reference, kind)
		return
	}
	w.runAll(reference, kind, name)
}

// runAll records that these workloads run an image, and no others.
func (w *world) runAll(reference, kind string, names ...string) {
	w.t.Helper()
	usage := store.ImageUsage{Scanner: "scanner", Namespace: w.namespace, Key: keyOf(reference), Scope: store.Cluster, Engine: "grype"}
	for _, name := range names {
		usage.Workloads = append(usage.Workloads, store.Workload{
			Namespace: w.namespace, Kind: kind, Name: name, Container: "main", Repository: reference, Reference: reference + ":1",
		})
	}
	w.Expect(w.store.SetUsage(w.t.Context(), usage)).To(Succeed())
}

// scan saves a report of an image with these findings.
func (w *world) scan(reference string, findings ...finding.Finding) {
	w.t.Helper()
	w.scanPartly(reference, nil, findings...)
}

// scanPartly saves a report by newer data of an image with these findings that does not cover some of its content.
func (w *world) scanPartly(reference string, notCovered []string, findings ...finding.Finding) {
	w.t.Helper()
	w.scans++
	platform := digestOf("platform of " + reference)
	w.Expect(w.store.SaveCatalog(w.t.Context(), store.Catalog{
		Engine: "grype", Key: keyOf(reference), Scope: store.Cluster, PlatformDigest: platform, Packages: 7, Tool: "syft", CatalogedAt: w.clock.Now(),
	}, map[store.Artifact]io.Reader{store.ArtifactSBOM: bytes.NewReader(nil), store.ArtifactMatchInput: bytes.NewReader(nil)})).To(Succeed())
	_, err := w.store.SaveReport(w.t.Context(), store.Report{
		Subject: store.Subject{PlatformDigest: platform, Scope: store.Cluster, Engine: "grype"}, DataVersion: fmt.Sprint("v", w.scans), MatchedAt: w.clock.Now(), NotCovered: notCovered, Findings: findings,
	}, "")
	w.Expect(err).NotTo(HaveOccurred())
}

// reports returns the Reports of the namespace by name.
func (w *world) reports() map[string]reports.Report {
	w.t.Helper()
	var list reports.ReportList
	w.Expect(w.client.List(w.t.Context(), &list, client.InNamespace(w.namespace))).To(Succeed())
	byName := map[string]reports.Report{}
	for _, r := range list.Items {
		byName[r.Name] = r
	}
	return byName
}

// summaries returns the Reports of the namespace, sorted, such as "scanner-deployment-web: CVE-2026-0001 fail".
func (w *world) summaries() (all []string) {
	w.t.Helper()
	for name, r := range w.reports() {
		var results []string
		for _, result := range r.Results {
			results = append(results, result.Policy+" "+string(result.Result))
		}
		all = append(all, name+": "+strings.Join(results, ", "))
	}
	slices.Sort(all)
	return all
}

func (w *world) createDeployment(name string) *appsv1.Deployment {
	w.t.Helper()
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}}},
		},
	}
	w.Expect(w.client.Create(w.t.Context(), deployment)).To(Succeed())
	return deployment
}
