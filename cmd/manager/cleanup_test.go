package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// clusterOfManager is an API server and its administrator; $KUBECONFIG has the rights of the manager's ClusterRole.
func clusterOfManager(t *testing.T) client.Client {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	config := filepath.Join("..", "..", "config")
	server := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(config, "crd", "bases")}, ErrorIfCRDPathMissing: true, Scheme: newScheme()}
	admin, err := server.Start()
	must(t, err)
	t.Cleanup(func() { must(t, server.Stop()) })
	cluster, err := client.New(admin, client.Options{Scheme: newScheme()})
	must(t, err)

	file, err := os.ReadFile(filepath.Join(config, "rbac", "role.yaml"))
	must(t, err)
	var role rbacv1.ClusterRole
	must(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096).Decode(&role))
	must(t, cluster.Create(t.Context(), &role))
	must(t, cluster.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "manager"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "manager"}},
	}))
	user, err := server.AddUser(envtest.User{Name: "manager"}, admin)
	must(t, err)
	kubeconfig, err := user.KubeConfig()
	must(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(path, kubeconfig, 0o600))
	t.Setenv("KUBECONFIG", path)
	return cluster
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCleanupCommand: with the manager's rights and nothing else of the operator, pods and Scanners that wait for it
// can go; a limit to one namespace leaves the others as they are.
func TestCleanupCommand(t *testing.T) {
	cluster := clusterOfManager(t)
	var waiting []client.Object
	for _, namespace := range []string{"blog", "shop"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Finalizers: []string{"all.scanner-operator.io/release"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}
		scanner := &v1alpha1.Scanner{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all", Finalizers: []string{"scanner-operator.io/pod-finalizers"}},
			Spec:       v1alpha1.ScannerSpec{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}},
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
		args []string
		said int
		left string
	}{
		{[]string{"--dry-run"}, 4, "blog/web blog/all shop/web shop/all"},
		{[]string{"--namespace", "blog"}, 2, "shop/web shop/all"},
		{nil, 2, ""},
		{nil, 0, ""},
	} {
		var out bytes.Buffer
		must(t, cleanup(t.Context(), step.args, &out))
		if got := strings.Count(out.String(), "\n"); got != step.said {
			t.Errorf("%q: %d lines, want %d:\n%s", step.args, got, step.said, &out)
		}
		if got := strings.Join(left(), " "); got != step.left {
			t.Errorf("%q: %q are left, want %q", step.args, got, step.left)
		}
	}
}

// TestCleanupRefused: mistakes are named.
func TestCleanupRefused(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"an unknown flag": {[]string{"--all"}, "-all"},
		"no flag":         {[]string{"shop"}, `"shop" is not a flag`},
		"no cluster":      {nil, "KUBECONFIG"},
	} {
		if err := cleanup(t.Context(), tt.args, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, tt.want)
		}
	}
}
