package main

import (
	"bytes"
	"fmt"
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

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// canary begins each password of these tests. It must appear nowhere.
const canary = "canary-7d3e"

// serverStore is a configuration with a store on a PostgreSQL server, and the file with its data source name.
type serverStore struct {
	t                *testing.T
	configFile, file string
	port             int
	environment      []string
}

func newServerStore(t *testing.T, postgres *server.Server) *serverStore {
	t.Helper()
	dir := t.TempDir()
	s := &serverStore{t: t, configFile: filepath.Join(dir, "config.yaml"), file: filepath.Join(dir, "dsn"), port: postgres.Port}
	s.environment = []string{"SCANNER_CONFIG=" + s.configFile}
	must(t, os.WriteFile(s.configFile, fmt.Appendf(nil, "store: {type: PostgreSQL, dsnFile: %s, maxConnections: 5}\n", s.file), 0o600))
	return s
}

// writeDSN writes the file as a Secret has it, with the form of CloudNativePG's key uri.
func (s *serverStore) writeDSN(password string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.file, fmt.Appendf(nil, "postgresql://app:%s@localhost:%d/app?sslmode=disable", password, s.port), 0o600))
}

// TestStoreOnServer: a manager waits for its database and for the Secret with the data source name, and says what it waits for. It uses a
// rotated password without a restart. No password appears in its log, its probes, its metrics or in the conditions of a Scanner.
func TestStoreOnServer(t *testing.T) {
	c := newCluster(t)
	postgres := server.StartPostgreSQL(t, server.Options{})
	settings := newServerStore(t, postgres)
	c.createPod("a")
	manager := c.startWith(settings.environment, "on a server", t.TempDir())
	readyz := func() string { _, text := manager.probe("/readyz"); return text }
	c.Eventually(readyz, waitTimeout, "250ms").Should(ContainSubstring("the manager's log"), "without the Secret")
	c.Expect(manager.log.String()).To(ContainSubstring(settings.file))

	settings.writeDSN(canary + "-first")
	c.Eventually(readyz, waitTimeout, "250ms").Should(ContainSubstring("the database server refuses access"), "without the user")
	c.Expect(readyz()).NotTo(Or(ContainSubstring(canary), ContainSubstring("user=")), "everybody in the cluster's network can read it")
	c.Expect(manager.liveness()).To(Equal(http.StatusOK), "it is not started again and again")

	postgres.Exec(t, `CREATE ROLE app LOGIN PASSWORD '`+canary+`-first'`, `CREATE DATABASE app OWNER app`)
	c.waitReady(manager)
	c.waitScanned(1)
	c.waitForCondition(v1alpha1.ConditionStoreDurable, metav1.ConditionTrue, v1alpha1.ReasonDatabaseServer, "")

	postgres.Exec(t, `ALTER ROLE app PASSWORD '`+canary+`-second'`)
	disconnectAll(t, postgres)
	c.waitForCondition(v1alpha1.ConditionStoreDurable, metav1.ConditionFalse, v1alpha1.ReasonStorePermission, "the database server refuses access")
	metrics := c.scrapeMetrics(manager)
	c.Expect(metrics).To(ContainSubstring("scanner_operator_store_healthy 0"))
	settings.writeDSN(canary + "-second")
	c.createPod("b")
	c.waitScanned(2)
	c.waitForCondition(v1alpha1.ConditionStoreDurable, metav1.ConditionTrue, v1alpha1.ReasonDatabaseServer, "")
	c.Expect(manager.readiness()).To(Equal(http.StatusOK))

	var out bytes.Buffer
	must(t, printFindings(t.Context(), []string{"-config", settings.configFile, "-namespace", c.shop}, &out))
	c.Expect(out.String()).To(HavePrefix("NAMESPACE"), "another process can read it")

	metrics += c.scrapeMetrics(manager)
	c.Expect(metrics).NotTo(ContainSubstring("scanner_operator_store_volume_available_bytes"), "which would look like a full volume")
	for name, text := range map[string]string{"log": manager.log.String(), "metrics": metrics, "findings": out.String(), "readyz": readyz()} {
		c.Expect(text).NotTo(ContainSubstring(canary), "the password in "+name)
	}
	c.Expect(manager.log.String()).To(ContainSubstring("the database server refuses access"), "why it could not connect")
}

// disconnectAll ends all connections of the operator's user, as a server that starts again does.
func disconnectAll(t *testing.T, postgres *server.Server) {
	t.Helper()
	postgres.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
}

// scrapeMetrics returns the manager's metrics, as an account that may read them.
func (c *cluster) scrapeMetrics(p *managerProcess) string {
	c.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.system, GenerateName: "reader-"}}
	c.create(account)
	name := c.system + "-" + account.Name
	c.create(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.system, Name: account.Name}},
		})
	request := &authenticationv1.TokenRequest{}
	c.Expect(c.client.SubResource("token").Create(c.t.Context(), account, request)).To(Succeed())
	var text string
	c.Eventually(func() (status int) { status, text = scrape(c.t, p, request.Status.Token); return status }, waitTimeout, "250ms").Should(Equal(http.StatusOK))
	return text
}

// TestServerNeedsLease: a manager does not work with a server unless it has to hold the lease.
func TestServerNeedsLease(t *testing.T) {
	settings := serverStore{t: t, configFile: filepath.Join(t.TempDir(), "config.yaml")}
	must(t, os.WriteFile(settings.configFile, []byte("store: {type: PostgreSQL}\n"), 0o600))
	err := run(t.Context(), []string{"--config", settings.configFile, "--leader-elect=false", "--namespace=scanners", "--worker-image=scanner-grype"})
	if err == nil || !strings.Contains(err.Error(), "--leader-elect=false: needs store.type SQLite") {
		t.Errorf("the error is %v, want that the lease is needed", err)
	}
}

// TestBackupOfServer: commands about the file of a store refuse one on a server, and say what to use instead.
func TestBackupOfServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte("store: {type: PostgreSQL}\n"), 0o600))
	dataDir := t.TempDir()
	for name, err := range map[string]error{
		"backup":  runBackup(t.Context(), []string{"-config", file, "-data-dir", dataDir}, os.Stdout, &bytes.Buffer{}),
		"restore": restore(t.Context(), []string{"-config", file, "-data-dir", dataDir}, strings.NewReader(""), &bytes.Buffer{}),
		"cancel":  restore(t.Context(), []string{"-config", file, "-data-dir", dataDir, "-cancel"}, strings.NewReader(""), &bytes.Buffer{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "PostgreSQL server") || !strings.Contains(err.Error(), "migrate-store") {
			t.Errorf("%s: %v, want the way out", name, err)
		}
	}
	entries, err := os.ReadDir(dataDir)
	if err != nil || len(entries) > 0 {
		t.Errorf("the data directory has %v (%v), want nothing", entries, err)
	}
}
