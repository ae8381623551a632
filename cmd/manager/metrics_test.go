package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestManagerMetrics: an account with the shipped role may read the manager's metrics, and nobody else may. The metrics show what
// the manager does.
func TestManagerMetrics(t *testing.T) {
	c := newCluster(t)
	c.createPod("web")
	p := c.start("first", t.TempDir())
	c.waitScanned(1)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.system, Name: "scanner-operator-metrics-reader"}}
	c.create(account)
	request := &authenticationv1.TokenRequest{}
	c.Expect(c.client.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	status, _ := scrape(t, p, request.Status.Token)
	c.Expect(status).To(Equal(http.StatusForbidden), "without the permissions")
	role, binding := metricsReader(t)
	binding.Subjects[0].Namespace = c.system
	c.create(&role, &binding)
	var text string
	c.Eventually(func() int { status, text = scrape(t, p, request.Status.Token); return status }, waitTimeout, "250ms").Should(Equal(http.StatusOK))
	status, _ = scrape(t, p, "")
	c.Expect(status).To(Equal(http.StatusUnauthorized), "without a token")
	for _, line := range []string{
		`scanner_operator_images{scanner="default",scanner_namespace="` + c.shop + `",state="scanned"} 1`,
		`scanner_operator_build_info{goversion="`,
		`scanner_operator_loop_runs_total{loop="store",result="ok"}`,
		`scanner_operator_loop_runs_total{loop="jobs",result="ok"}`,
		`scanner_operator_loop_runs_total{loop="sweep",result="ok"}`,
		`scanner_operator_store_healthy 1`,
		`scanner_operator_store_schema_version`,
		`scanner_operator_store_transaction_duration_seconds_count{kind="write"}`,
		`scanner_operator_jobs{purpose="catalog"} 0`,
		`scanner_operator_index_queue_images{engine="clair"} 0`,
		`scanner_operator_match_queue_images{engine="grype"} 0`,
		`scanner_operator_registries_backed_off{engine="clair"} 0`,
		`scanner_operator_client_requests_total{code="`,
		`controller_runtime_reconcile_total{controller="notification"`,
		`leader_election_master_status{name="scanner-operator-manager"} 1`,
		// A reconciliation that waits for the API server or an engine does not block the others.
		`controller_runtime_max_concurrent_reconciles{controller="scanner"} 4`,
		`controller_runtime_max_concurrent_reconciles{controller="pod"} 8`,
	} {
		c.Expect(text).To(ContainSubstring("\n"+line), "what the manager says of itself")
	}
}

// scrape reads the metrics as Prometheus does.
func scrape(t *testing.T, p *managerProcess, token string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Sprint(err)
	}
	return response.StatusCode, string(body)
}

// metricsReader returns the role and the binding that config/components/prometheus ships.
func metricsReader(t *testing.T) (role rbacv1.ClusterRole, binding rbacv1.ClusterRoleBinding) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "components", "prometheus", "access.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		for kind, into := range map[string]any{"ClusterRole": &role, "ClusterRoleBinding": &binding} {
			if strings.Contains(document, "\nkind: "+kind+"\n") {
				if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return role, binding
}
