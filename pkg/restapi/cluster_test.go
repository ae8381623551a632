package restapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/restapi/cyclonedx"
)

var (
	startOnce sync.Once
	realAPI   client.Client
	startErr  error
	stop      = func() error { return nil }
)

func TestMain(m *testing.M) {
	if path := os.Getenv(reportServer); path != "" {
		fmt.Fprintln(os.Stderr, "serving reports:", serveReports(path))
		os.Exit(1)
	}
	if of := os.Getenv(streamClient); of != "" {
		if err := holdStreams(of); err != nil {
			fmt.Fprintln(os.Stderr, "opening streams:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the API server:", err)
	}
	os.Exit(code)
}

// apiServer starts a real API server once, with the project's CRDs and the roles that the project ships for users.
func apiServer(t *testing.T) client.Client {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs an API server: KUBEBUILDER_ASSETS="$(hack/cluster/cluster.sh assets)", or "make test"`)
	}
	startOnce.Do(func() {
		config := filepath.Join("..", "..", "config")
		environment := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(config, "crd", "bases")}, ErrorIfCRDPathMissing: true}
		rest, err := environment.Start()
		if err != nil {
			startErr = err
			return
		}
		stop = environment.Stop
		if realAPI, startErr = client.New(rest, client.Options{Scheme: newScheme()}); startErr == nil {
			startErr = createRoles(realAPI, filepath.Join(config, "rbac", "user_roles.yaml"))
		}
	})
	if startErr != nil {
		t.Fatal(startErr)
	}
	return realAPI
}

// createRoles creates the ClusterRoles of a file.
func createRoles(c client.Client, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			return err
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		if err := c.Create(context.Background(), &role); err != nil {
			return err
		}
	}
	return nil
}

// createToken creates a ServiceAccount and returns a token of it, as "kubectl create token" does.
func (w *harness) createToken(namespace, name string, audiences ...string) string {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	w.must(client.IgnoreAlreadyExists(w.cluster.Create(w.t.Context(), account)))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	w.must(w.cluster.SubResource("token").Create(w.t.Context(), account, request))
	return request.Status.Token
}

// bindRole binds a ClusterRole to a ServiceAccount of the namespace "people", in one namespace or in all ("").
func (w *harness) bindRole(namespace, account, role string) {
	w.t.Helper()
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "people", Name: account}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: account + "-" + role}
	if namespace == "" {
		w.must(w.cluster.Create(w.t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}))
		return
	}
	w.must(w.cluster.Create(w.t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}))
}

// TestRealAPIServer: a real API server decides about tokens and permissions, with the roles that the project ships.
func TestRealAPIServer(t *testing.T) {
	cluster := apiServer(t)
	w := newHarness(t, cluster, cluster)
	for _, namespace := range []string{"people", "shop", "blog"} {
		w.must(cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	for _, namespace := range []string{"shop", "blog"} {
		w.createScanned(w.createScanner(namespace, "main"), "web", vulnerable("CVE-2026-0001", "openssl"))
	}
	platform := w.createClusterScanner("platform", func(s *v1alpha1.ClusterScanner) { s.Spec.OwnScanners = v1alpha1.OwnScannersIgnore })
	w.createScannedIn("shop", platform, "wide", vulnerable("CVE-2026-0002", "zlib"))
	w.must(cluster.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "one-image"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"scanner-operator.io"}, Resources: []string{"imagescans"}, ResourceNames: []string{"web"}, Verbs: []string{"get"}}},
	}))
	w.bindRole("shop", "shopkeeper", "scanner-operator-view")
	w.bindRole("blog", "blogger", "scanner-operator-view")
	w.bindRole("", "auditor", "scanner-operator-view")
	w.bindRole("shop", "customer", "one-image")
	w.bindRole("", "overseer", "scanner-operator-cluster-view")
	w.bindRole("shop", "pipeline", "scanner-operator-report")
	w.bindRole("shop", "editor", "scanner-operator-edit")
	w.must(cluster.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "one-source"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"scanner-operator.io"}, Resources: []string{"reports"}, ResourceNames: []string{"one"}, Verbs: []string{"update"}}},
	}))
	w.bindRole("shop", "scan", "one-source")
	tokens := map[string]string{"forged": "eyJhbGciOiJub25lIn0.e30.", "elsewhere": w.createToken("people", "shopkeeper", "another-service")}
	for _, name := range []string{"shopkeeper", "blogger", "auditor", "customer", "overseer", "nobody", "pipeline", "editor", "scan"} {
		tokens[name] = w.createToken("people", name)
	}
	const image = "/api/v1/namespaces/shop/imagescans/web"
	for _, tt := range []struct {
		path string
		want map[string]int
	}{
		{"/api/v1/namespaces/shop/scanners/main", map[string]int{"shopkeeper": 200, "auditor": 200, "blogger": 403, "customer": 403, "nobody": 403, "forged": 401, "elsewhere": 401}},
		{"/api/v1/namespaces/shop/scanners/none", map[string]int{"shopkeeper": 404, "auditor": 404, "blogger": 403, "customer": 403, "nobody": 403}},
		{"/api/v1/namespaces/none/scanners/none", map[string]int{"shopkeeper": 403, "auditor": 404, "blogger": 403}},
		{"/api/v1/namespaces/shop/imagescans", map[string]int{"shopkeeper": 200, "auditor": 200, "blogger": 403, "customer": 403, "nobody": 403}},
		{image, map[string]int{"shopkeeper": 200, "auditor": 200, "customer": 200, "blogger": 403, "nobody": 403}},
		{image + "/findings", map[string]int{"shopkeeper": 200, "auditor": 200, "customer": 200, "blogger": 403, "nobody": 403, "elsewhere": 401}},
		{image + "/sbom", map[string]int{"shopkeeper": 200, "customer": 200, "blogger": 403}},
		{image + "/cyclonedx", map[string]int{"shopkeeper": 200, "customer": 200, "blogger": 403}},
		{"/api/v1/scanners", map[string]int{"shopkeeper": 200, "auditor": 200, "blogger": 200, "customer": 403, "nobody": 403}},
		{"/api/v1/clusterscanners", map[string]int{"overseer": 200, "shopkeeper": 403, "auditor": 403, "nobody": 403, "forged": 401}},
		{"/api/v1/clusterscanners/platform", map[string]int{"overseer": 200, "shopkeeper": 403, "auditor": 403}},
		{"/api/v1/clusterscanners/none", map[string]int{"overseer": 404, "shopkeeper": 403}},
		{"/api/v1/clusterscanners/platform/messages", map[string]int{"overseer": 200, "shopkeeper": 403, "auditor": 403}},
		{"/api/v1/namespaces/shop/imagescans/wide/findings", map[string]int{"shopkeeper": 200, "auditor": 200, "overseer": 403, "blogger": 403}},
		{"/api/v1/vulnerabilities/CVE-2026-0002/workloads", map[string]int{"shopkeeper": 200, "auditor": 200, "blogger": 200, "overseer": 403}},
		{"/api/v1/vulnerabilities/CVE-2026-0001/workloads?namespace=shop", map[string]int{"shopkeeper": 200, "auditor": 200, "blogger": 403, "customer": 403}},
	} {
		for user, want := range tt.want {
			if response, body := w.get(tt.path, tokens[user]); response.StatusCode != want {
				t.Errorf("GET %s as %s: %d %s, want %d", tt.path, user, response.StatusCode, body, want)
			}
		}
	}
	for _, tt := range []struct {
		method, path string
		want         map[string]int
	}{
		{http.MethodPut, reportPath("shop", "web", "one"), map[string]int{"pipeline": 201, "scan": 204, "shopkeeper": 403, "editor": 403, "auditor": 403, "nobody": 403, "forged": 401}},
		{http.MethodPut, reportPath("shop", "web", "two"), map[string]int{"scan": 403}},
		{http.MethodPut, reportPath("blog", "web", "one"), map[string]int{"pipeline": 403, "scan": 403}},
		{http.MethodGet, reportPath("shop", "web", "one"), map[string]int{"pipeline": 200, "shopkeeper": 200, "auditor": 200, "scan": 403, "blogger": 403}},
		{http.MethodDelete, reportPath("shop", "web", "one"), map[string]int{"shopkeeper": 403, "editor": 403, "scan": 403, "nobody": 403}},
		{http.MethodDelete, reportPath("shop", "web", "one"), map[string]int{"pipeline": 204}},
		{http.MethodDelete, image + "/report", map[string]int{"shopkeeper": 403, "pipeline": 403, "nobody": 403}},
		{http.MethodDelete, image + "/report", map[string]int{"editor": 202}},
	} {
		for _, user := range slices.SortedFunc(maps.Keys(tt.want), func(a, b string) int { return cmp.Compare(tt.want[a], tt.want[b]) }) {
			response, body := w.send(tt.method, tt.path, tokens[user], strings.NewReader(map[bool]string{true: reportText(0)}[tt.method == http.MethodPut]), "Content-Type", cyclonedx.MediaType)
			if response.StatusCode != tt.want[user] {
				t.Errorf("%s %s as %s: %d %s, want %d", tt.method, tt.path, user, response.StatusCode, body, tt.want[user])
			}
		}
	}
	for user, want := range map[string]string{"shopkeeper": "shop", "blogger": "blog", "auditor": "blog shop"} {
		workloads, err := w.clientFor(tokens[user]).ListWorkloadsWithResponse(t.Context(), "CVE-2026-0001", nil)
		w.must(err)
		scanners, err := w.clientFor(tokens[user]).ListScannersWithResponse(t.Context(), &restv1.ListScannersParams{Limit: ptr.To(500)})
		w.must(err)
		var running, scanning []string
		for _, workload := range workloads.JSON200.Items {
			running = append(running, workload.Namespace)
		}
		for _, scanner := range scanners.JSON200.Items {
			scanning = append(scanning, scanner.Namespace)
		}
		if got := strings.Join(running, " "); got != want || workloads.JSON200.Total != len(running) {
			t.Errorf("%s gets workloads in %q (total %d), want %q", user, got, workloads.JSON200.Total, want)
		}
		if got := strings.Join(scanning, " "); got != want || scanners.JSON200.AllNamespaces != (user == "auditor") {
			t.Errorf("%s gets Scanners in %q, want %q", user, got, want)
		}
	}
	if response, body := w.get("/api/v1/scanners", "", "Authorization", "bearer "+tokens["auditor"]); response.StatusCode != http.StatusOK {
		t.Errorf("with the scheme in lower case: %d %s", response.StatusCode, body)
	}
	for name, token := range tokens {
		if strings.Contains(w.logText(), token) {
			t.Errorf("the token of %s is in the log", name)
		}
	}
}
