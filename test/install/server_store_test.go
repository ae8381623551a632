package install

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// TestHelmWithServer follows docs/operate/store-server.md with Helm: the Secret before the operator, an installation without a volume, a
// portable dump, an upgrade, and uninstalling.
func TestHelmWithServer(t *testing.T) {
	page, helm := readPage(t, "docs/operate/store-server.md"), readPage(t, "docs/operate/install/helm.md")
	useHelm(t)
	startFromNothing(t)
	prepareServer(t, page)
	_, install, _ := strings.Cut(helm.block(t, "Install", "bash"), "helm install")
	bash(t, "helm install"+strings.Replace(install, published, currentChart(t)+" --values "+helmValues(t)+" --values "+serverValues(t, page), 1))
	ns := scannedAndAnnounced(t)
	requireOnServer(t, ns)
	found := findings(t, ns)

	dump := filepath.Join(t.TempDir(), "store.dump")
	bash(t, strings.ReplaceAll(readPage(t, "docs/operate/backup.md").block(t, "A portable dump", "bash"), "store.dump", dump))
	text, err := os.ReadFile(dump)
	must(t, err)
	if id, _, _ := strings.Cut(found[0], " "); !strings.Contains(string(text), id) {
		t.Errorf("expected %s in the dump, which has %d bytes", id, len(text))
	}

	helm.followWith(t, "Upgrade", published, currentChart(t)+" --set-string manager.podAnnotations.upgraded=true")
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.ManagerDeployment))
	requireUnchanged(t, ns, found)
	requireOnServer(t, ns)
	helm.follow(t, "Uninstall")
	removeServer(t)
	requireNothingLeft(t, helm.list(t, "What stays")...)
	kubectl(t, "delete", "namespace", ns, "--timeout=60s")
	helm.follow(t, "What stays")
	requireNothingLeft(t)
}

// TestMoveStore follows docs/operate/move-store.md with Helm: the store moves from its volume to a server. Receivers hear nothing of it.
func TestMoveStore(t *testing.T) {
	page, helm := readPage(t, "docs/operate/move-store.md"), readPage(t, "docs/operate/install/helm.md")
	const section = "From SQLite to PostgreSQL"
	page.sections[section] = regexp.MustCompile("(?m)^   ").ReplaceAllString(page.sections[section], "") // the blocks are in a list
	useHelm(t)
	startFromNothing(t)
	helm.followWith(t, "Install", published, currentChart(t)+" --values "+helmValues(t))
	labelSystemNamespace(t)
	ns := scannedAndAnnounced(t)
	found, before := findings(t, ns), storeID(t, ns)

	server := readPage(t, "docs/operate/store-server.md")
	server.sections[trial] = strings.Replace(server.sections[trial], "kubectl create namespace scanner-operator-system\n", "", 1)
	prepareServer(t, server)
	commands := page.blocks(t, section, "sh")
	bash(t, commands[0])
	job := strings.Replace(page.block(t, section, "yaml"), "ghcr.io/scanner-operator/scanner-operator:0.1.0", currentImages(t)["scanner-operator"], 1)
	job = regexp.MustCompile(`(?m)^.*--ca-file.*\n`).ReplaceAllString(job, "")
	bash(t, strings.Replace(commands[1], "migrate-store.yaml", writeWork(t, "migrate-store.yaml", job), 1))
	helm.followWith(t, "Upgrade", published, currentChart(t)+" --values "+serverValues(t, server))
	bash(t, commands[2])
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.ManagerDeployment))
	requireUnchanged(t, ns, found)
	if after := storeID(t, ns); after != before {
		t.Errorf("expected the store to keep its id %s, it has %s", before, after)
	}
	requireOnServer(t, ns, "persistentvolumeclaim/scanner-operator-store")
	checkNewImageAnnounced(t, ns)
	kubectl(t, "--namespace", scenario.SystemNamespace, "delete", "job", "scanner-operator-migrate-store")
	helm.follow(t, "Uninstall")
	removeServer(t)
	requireNothingLeft(t, helm.list(t, "What stays")...)
	kubectl(t, "delete", "namespace", ns, "--timeout=60s")
	helm.follow(t, "What stays")
	requireNothingLeft(t)
}

// TestOLMWithServer follows docs/operate/store-server.md with OLM: the Secret and the configuration before the Subscription, which has no
// volumes.
func TestOLMWithServer(t *testing.T) {
	page, olm := readPage(t, "docs/operate/store-server.md"), readPage(t, "docs/operate/install/olm.md")
	startOLM(t)
	startFromNothing(t)
	prepareServer(t, page)
	prepareSettings(t)
	settings, err := env.OperatorConfig()
	must(t, err)
	kubectl(t, "--namespace", scenario.SystemNamespace, "delete", "configmap", "scanner-operator-config")
	configMap(t, "scanner-operator-config", "config.yaml", settings+"store: {type: PostgreSQL}\n")
	current := currentBundle(t, bundle{})
	publishCatalog(t, current)
	file := writeWork(t, "olm.yaml", withoutVolumes(t, withSlack(t, withoutClaim(t, installation(t, current)))))
	olm.followWith(t, "Install", installationAt, file)
	succeeded(t, current)
	ns := scannedAndAnnounced(t)
	requireOnServer(t, ns)
	// The version is removed while OLM installs it once more, because its settings have changed.
	kubectl(t, "patch", "subscription", "scanner-operator", "--namespace", scenario.SystemNamespace, "--type=json",
		"--patch", `[{"op": "add", "path": "/spec/config/env/-", "value": {"name": "SCANNER_LOG_LEVEL", "value": "debug"}}]`)
	olm.followWith(t, "Remove", policiesAt, policies(t, current))
	removeServer(t)
	requireNothingLeft(t, olm.list(t, "What stays")...)
	olm.follow(t, "What stays")
	requireNothingLeft(t)
}

// trial is the heading of the page with a server for a trial.
const trial = "Try it out"

// prepareServer follows the page: the Secret with the data source name, and the component's server. It creates the operator's namespace.
func prepareServer(t *testing.T, page page) {
	t.Helper()
	page.follow(t, trial)
	labelSystemNamespace(t)
	manifest := filepath.Join(env.Root, "config", "components", "postgresql-trial", "database.yaml")
	text, err := os.ReadFile(manifest)
	must(t, err)
	found := regexp.MustCompile(`docker\.io/library/postgres:\S+`).FindString(string(text))
	if found == "" {
		t.Fatalf("expected an image of PostgreSQL in %s", manifest)
	}
	file := writeWork(t, "postgresql.yaml", strings.Replace(string(text), found, pushImage(t, images.PostgreSQL), 1))
	kubectl(t, "--namespace", scenario.SystemNamespace, "apply", "--filename", file)
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.PostgreSQLDeployment))
}

// removeServer removes what prepareServer has created.
func removeServer(t *testing.T) {
	t.Helper()
	kubectl(t, "--namespace", scenario.SystemNamespace, "delete", "--filename", work("postgresql.yaml"), "--timeout=60s")
	kubectl(t, "--namespace", scenario.SystemNamespace, "delete", "secret", "scanner-operator-store")
}

// serverValues writes the chart's values of the page. The trial's server has no certificate.
func serverValues(t *testing.T, page page) string {
	t.Helper()
	return writeWork(t, "server-values.yaml", regexp.MustCompile(`(?m)^.*caSecretRef.*\n`).ReplaceAllString(page.block(t, "Helm", "yaml"), ""))
}

// requireOnServer checks that the store is on a server, and that the operator has no other PersistentVolumeClaims than these.
func requireOnServer(t *testing.T, ns string, kept ...string) {
	t.Helper()
	waitForCondition(t, ns, v1alpha1.ConditionStoreDurable, "True")
	reason := kubectl(t, "--namespace", ns, "get", "scanner", scenario.ScannerName, "--output", `jsonpath={.status.conditions[?(@.type=="StoreDurable")].reason}`)
	if reason != v1alpha1.ReasonDatabaseServer {
		t.Errorf("expected the reason %s of the condition StoreDurable, it is %s", v1alpha1.ReasonDatabaseServer, reason)
	}
	want := strings.Join(append([]string{"persistentvolumeclaim/scanner-operator-postgresql"}, kept...), "\n")
	if claims := kubectl(t, "--namespace", scenario.SystemNamespace, "get", "pvc", "--output=name"); strings.TrimSpace(claims) != want {
		t.Errorf("expected no PersistentVolumeClaims but %s, there are %s", want, claims)
	}
}

// storeID returns the id of the store of a namespace's Scanner.
func storeID(t *testing.T, ns string) string {
	t.Helper()
	return kubectl(t, "--namespace", ns, "get", "scanner", scenario.ScannerName, "--output", "jsonpath={.status.storeID}")
}
