package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// newCleanupCluster starts an API server and returns its administrator's client. $KUBECONFIG has the permissions of config/cleanup.
func newCleanupCluster(t *testing.T) client.Client {
	t.Helper()
	needAPIServer(t)
	config := filepath.Join("..", "..", "config")
	server := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(config, "crd", "bases")}, ErrorIfCRDPathMissing: true, Scheme: newScheme()}
	admin, err := server.Start()
	must(t, err)
	t.Cleanup(func() { must(t, server.Stop()) })
	cluster, err := client.New(admin, client.Options{Scheme: newScheme()})
	must(t, err)
	must(t, cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: defaultNamespace}}))
	createAll(t, cluster, filepath.Join(config, "cleanup", "rbac.yaml"))
	user, err := server.AddUser(envtest.User{Name: "system:serviceaccount:" + defaultNamespace + ":scanner-operator-cleanup"}, admin)
	must(t, err)
	kubeconfig, err := user.KubeConfig()
	must(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(path, kubeconfig, 0o600))
	t.Setenv("KUBECONFIG", path)
	return cluster
}

// createAll creates the objects of a file. Namespaced objects get the operator's namespace, as with kustomize.
func createAll(t *testing.T, cluster client.Client, path string) {
	t.Helper()
	file, err := os.ReadFile(path)
	must(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		if !strings.HasPrefix(o.GetKind(), "Cluster") {
			o.SetNamespace(defaultNamespace)
		}
		must(t, cluster.Create(t.Context(), &o))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCleanupCommand: the command needs only the permissions of config/cleanup.
func TestCleanupCommand(t *testing.T) {
	cluster := newCleanupCluster(t)
	t.Run("finalizers", func(t *testing.T) { testCleanupOfFinalizers(t, cluster) })
	t.Run("everything", func(t *testing.T) { testCleanupOfEverything(t, cluster) }) // including the CRDs
}

// testCleanupOfFinalizers: without anything else of the operator, pods and Scanners with its finalizers can be deleted. With a limit to one
// namespace, the others stay unchanged.
func testCleanupOfFinalizers(t *testing.T, cluster client.Client) {
	var waiting []client.Object
	for _, namespace := range []string{"blog", "shop"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Finalizers: []string{"all.scanner-operator.io/release"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}
		scanner := &v1alpha1.Scanner{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all", Finalizers: []string{"scanner-operator.io/pod-finalizers"}},
			Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
		}
		must(t, cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		for _, o := range []client.Object{pod, scanner} {
			must(t, cluster.Create(t.Context(), o))
			must(t, cluster.Delete(t.Context(), o, client.GracePeriodSeconds(0)))
			waiting = append(waiting, o)
		}
	}
	left := func() (names []string) {
		for _, o := range waiting {
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				must(t, err)
				names = append(names, o.GetNamespace()+"/"+o.GetName())
			}
		}
		return names
	}
	for _, step := range []struct {
		args  []string
		lines int
		left  string
	}{
		{[]string{"--dry-run"}, 4, "blog/web blog/all shop/web shop/all"},
		{[]string{"--namespace", "blog"}, 2, "shop/web shop/all"},
		{nil, 2, ""},
		{nil, 0, ""},
	} {
		var out bytes.Buffer
		must(t, runCleanup(t.Context(), step.args, &out))
		if got := strings.Count(out.String(), "\n"); got != step.lines {
			t.Errorf("%q: %d lines, want %d:\n%s", step.args, got, step.lines, &out)
		}
		if got := strings.Join(left(), " "); got != step.left {
			t.Errorf("%q: %q are left, want %q", step.args, got, step.left)
		}
	}
}

// testCleanupOfEverything: on request, everything that the operator creates is deleted.
func testCleanupOfEverything(t *testing.T, cluster client.Client) {
	own := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: defaultNamespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/managed-by": "scanner-operator", "app.kubernetes.io/component": "catalog",
		}}
	}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "manager"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	claim := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	replicated := *pod.DeepCopy()
	replicated.Spec.RestartPolicy = corev1.RestartPolicyAlways
	objects := []client.Object{
		&appsv1.Deployment{ObjectMeta: own(managerName), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: replicated,
		}},
		&v1alpha1.Scanner{ObjectMeta: own("all"), Spec: v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}}},
		&v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "platform"}, Spec: v1alpha1.ClusterScannerSpec{NamespaceSelector: &metav1.LabelSelector{}}},
		&batchv1.Job{ObjectMeta: own("scan-catalog-abc"), Spec: batchv1.JobSpec{Template: pod}},
		&corev1.Secret{ObjectMeta: own(authoritySecret)},
		&corev1.Secret{ObjectMeta: own(notifierSecret)},
		&corev1.ConfigMap{ObjectMeta: own(authorityBundle)},
		&corev1.ConfigMap{ObjectMeta: own(preflight.DeliveriesConfigMap)},
		&coordinationv1.Lease{ObjectMeta: own(managerName)},
		&corev1.PersistentVolumeClaim{ObjectMeta: own(grype.DatabasePVC), Spec: claim},
		&corev1.PersistentVolumeClaim{ObjectMeta: own(storePVC), Spec: claim},
		&v1alpha1.ImageScan{ObjectMeta: own("web"), Spec: v1alpha1.ImageScanSpec{
			ScannerRef: v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: "all"}, Digest: "sha256:" + strings.Repeat("0", 64), Platform: "linux/amd64",
		}},
	}
	for _, o := range objects {
		must(t, cluster.Create(t.Context(), o))
	}
	everything := []string{"--scanners", "--stop-manager", "--database", "--results", "--crds"}
	want := []string{
		"Scanner scanner-operator-system/all: deleted",
		"ClusterScanner platform: deleted",
		"Deployment scanner-operator-system/scanner-operator-manager: scaled to zero",
		"Job scanner-operator-system/scan-catalog-abc: deleted",
		"Secret scanner-operator-system/scanner-operator-authority: deleted",
		"Secret scanner-operator-system/scanner-operator-notifier-serving: deleted",
		"ConfigMap scanner-operator-system/scanner-operator-ca: deleted",
		"ConfigMap scanner-operator-system/scanner-operator-deliveries: deleted",
		"Lease scanner-operator-system/scanner-operator-manager: deleted",
		"PersistentVolumeClaim scanner-operator-system/scanner-operator-vulnerability-database: deleted",
		"PersistentVolumeClaim scanner-operator-system/scanner-operator-store: deleted",
		"ImageScan scanner-operator-system/web: deleted",
		"CustomResourceDefinition scanners.scanner-operator.io: deleted",
		"CustomResourceDefinition clusterscanners.scanner-operator.io: deleted",
		"CustomResourceDefinition imagescans.scanner-operator.io: deleted",
		"CustomResourceDefinition vulnerabilityexceptions.scanner-operator.io: deleted",
		"CustomResourceDefinition clustervulnerabilityexceptions.scanner-operator.io: deleted",
	}
	for _, dryRun := range []bool{true, false} {
		var out bytes.Buffer
		must(t, runCleanup(t.Context(), append(everything, fmt.Sprintf("--dry-run=%t", dryRun)), &out))
		expected := strings.Join(want, "\n") + "\n"
		if dryRun {
			expected = strings.NewReplacer(": deleted", ": would delete", ": scaled", ": would scale").Replace(expected)
		}
		if diff := cmp.Diff(expected, out.String()); diff != "" {
			t.Errorf("dry run %t (-want +got):\n%s", dryRun, diff)
		}
	}
	for _, o := range objects[1:] {
		err := cluster.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) && o.GetDeletionTimestamp() == nil {
			t.Errorf("%T %s is still there: %v", o, o.GetName(), err)
		}
	}
	must(t, runCleanup(t.Context(), everything, io.Discard))
}

// TestCleanupInvalid: the error names the mistake.
func TestCleanupInvalid(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"an unknown flag": {[]string{"--all"}, "-all"},
		"no flag":         {[]string{"shop"}, `"shop" is not a flag`},
		"no cluster":      {nil, "KUBECONFIG"},
		"kinds of one":    {[]string{"--crds", "--namespace=shop"}, "--crds"},
		"an empty name":   {[]string{"--namespace=shop,"}, "--namespace: \"\" is no name of a namespace"},
		"no time":         {[]string{"--timeout=0s"}, "--timeout"},
	} {
		if err := runCleanup(t.Context(), tt.args, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, tt.want)
		}
	}
}
