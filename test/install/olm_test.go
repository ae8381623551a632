package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// installTimeout is the maximum time from a Subscription to a running operator. OLM unpacks the bundle in a Job and polls every few
// seconds.
const installTimeout = 4 * time.Minute

// groupWait is the groupWait of the Scanner, which is longer than an upgrade. OLM 0.38.0 may run the old version for some seconds without
// the config of its Subscription (its findOwner searches for the installed version, which is already the new one). That instance does
// not know what was announced, as docs/operate/install/olm.md describes.
const groupWait = time.Minute

// TestOLM follows docs/operate/install/olm.md: installing from a catalog, upgrading through its channel, and removal.
func TestOLM(t *testing.T) {
	page := readPage(t, "docs/operate/install/olm.md")
	startOLM(t)
	systemNamespace(t)
	prepareSettings(t)

	earlier := previousBundle(t)
	publishCatalog(t, earlier)
	yaml := installation(t, earlier)
	install(t, withoutVolumes(t, withSlack(t, yaml)))
	succeeded(t, earlier)
	ephemeral := namespace(t, "forgetful")
	must(t, env.MakeScanner(t.Context(), ephemeral, scenario.ScannerSettings{}))
	waitForCondition(t, ephemeral, v1alpha1.ConditionStoreDurable, "False")

	page.followWith(t, "Install", installationAt, writeWork(t, "olm.yaml", withSlack(t, yaml)))
	waitForCondition(t, ephemeral, v1alpha1.ConditionStoreDurable, "True")
	ns := scannedAndAnnouncedWith(t, scenario.ScannerSettings{GroupWait: groupWait})
	found := findings(t, ns)

	current := currentBundle(t, earlier)
	page.followWith(t, "Admission policies", policiesAt, policies(t, current))
	publishCatalog(t, earlier, current)
	succeeded(t, current)
	upgradeable(t, current)
	requireUnchanged(t, ns, found)
	checkNewImageAnnounced(t, ns)

	page.followWith(t, "Remove", policiesAt, policies(t, current))
	requireNothingLeft(t, page.list(t, "What stays")...)
	page.follow(t, "What stays")
	requireNothingLeft(t)
}

// install applies YAML, and adds the demo's label to the page's namespace, since a later run searches for the label.
func install(t *testing.T, yaml string) {
	t.Helper()
	must(t, env.ApplyText(t.Context(), yaml))
	labelSystemNamespace(t)
}

// Addresses of a release's file that installs the operator, and of the admission policies in it.
const (
	installationAt = "https://github.com/scanner-operator/scanner-operator/releases/download/v0.1.0/olm.yaml"
	policiesAt     = "https://github.com/scanner-operator/scanner-operator/releases/download/v0.1.0/olm-policies.yaml"
)

// installation returns the file that installs a version.
func installation(t *testing.T, b bundle) string {
	t.Helper()
	return run(t, "bundle", "installation", "-tree", b.tree, "-version", b.version, "-images", b.dir+"-images.yaml")
}

// writeWork writes a file and returns its path.
func writeWork(t *testing.T, name, text string) string {
	t.Helper()
	file := work(name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// policies returns the path of a file with a version's admission policies.
func policies(t *testing.T, b bundle) string {
	t.Helper()
	return writeWork(t, "olm-policies-"+b.version+".yaml", run(t, "bundle", "policies", "-tree", b.tree, "-version", b.version, "-images", b.dir+"-images.yaml"))
}

// prepareSettings creates what users configure outside the Subscription: the operator's configuration, and the authority of the Slack
// stand-in.
func prepareSettings(t *testing.T) {
	t.Helper()
	config, err := env.OperatorConfig()
	must(t, err)
	configMap(t, "scanner-operator-config", "config.yaml", config)
	configMap(t, "scanner-notifier-trust", "ca.crt", string(env.SlackAuthority))
}

func configMap(t *testing.T, name, key, content string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), key)
	must(t, os.WriteFile(file, []byte(content), 0o644))
	kubectl(t, "create", "configmap", name, "--namespace", scenario.SystemNamespace, "--from-file", file)
}

// previousBundle returns the bundle of the previous version. That version has no environment variable for the allowed webhook hosts.
func previousBundle(t *testing.T) bundle {
	t.Helper()
	tree := filepath.Join(env.Root, "bin", "previous")
	operator, err := scenario.ImagesOf(tree)
	must(t, err)
	deployment := filepath.Join(tree, "config", "notifier", "deployment.yaml")
	text, err := os.ReadFile(deployment)
	must(t, err)
	const known = "- --ca-file=/etc/scanner-operator/ca.crt"
	if allowed := "- --allowed-webhook-hosts=" + scenario.SlackHost; !strings.Contains(string(text), allowed) {
		changed := strings.Replace(string(text), known, known+"\n        "+allowed, 1)
		must(t, os.WriteFile(deployment, []byte(changed), 0o644))
	}
	return makeBundle(t, tree, previousVersion(t), operator, "")
}

// previousVersion returns the version in the file that hack/previous.sh writes.
func previousVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(env.Root, "bin", "previous", "built"))
	must(t, err)
	_, version, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return version
}

func currentBundle(t *testing.T, replaced bundle) bundle {
	t.Helper()
	operator, err := env.OperatorImages()
	must(t, err)
	version, err := os.ReadFile(filepath.Join(env.Root, "VERSION"))
	must(t, err)
	return makeBundle(t, env.Root, strings.TrimSpace(string(version)), operator, replaced.csv())
}

// succeeded waits until OLM has installed a version and both of its Deployments are ready.
func succeeded(t *testing.T, b bundle) {
	t.Helper()
	must(t, wait.Eventually(t.Context(), installTimeout, wait.Normally, func(ctx context.Context) error {
		phase, err := env.Kubectl(ctx, "--namespace", scenario.SystemNamespace, "get", "clusterserviceversion", b.csv(),
			"--output", "jsonpath={.status.phase}: {.status.message}")
		if err != nil {
			return fmt.Errorf("%w\nthe Subscription says: %s", err, subscriptionStatus(ctx))
		}
		if !strings.HasPrefix(phase, "Succeeded:") {
			return fmt.Errorf("expected %s to be Succeeded, it is %s", b.csv(), phase)
		}
		return nil
	}))
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.ManagerDeployment, scenario.NotifierDeployment))
}

func subscriptionStatus(ctx context.Context) string {
	status, err := env.Kubectl(ctx, "--namespace", scenario.SystemNamespace, "get", "subscription", "scanner-operator",
		"--output", `jsonpath={.status.state}{range .status.conditions[*]}; {.type}={.status} {.reason} {.message}{end}`)
	if err != nil {
		return err.Error()
	}
	return status
}

// requireUnchanged checks after an upgrade that the findings are the same and nothing is announced again.
func requireUnchanged(t *testing.T, ns string, before []string) {
	t.Helper()
	requireFindingsAndMessages(t, ns, 1, 1, before)
}

// requireFindingsAndMessages compares the findings of a namespace's images with those of before, and checks the number of its messages.
func requireFindingsAndMessages(t *testing.T, ns string, covered int32, sent int, before []string) {
	t.Helper()
	must(t, env.WaitForCoverage(t.Context(), ns, covered, 0))
	if diff := cmp.Diff(before, findings(t, ns)); diff != "" {
		t.Errorf("expected the findings of before (-), got (+):\n%s", diff)
	}
	// What the operator considers a change is announced after groupWait.
	must(t, wait.Consistently(t.Context(), groupWait+15*time.Second, wait.Normally, func(ctx context.Context) error {
		messages, err := env.Messages(ctx, ns)
		if err == nil && len(messages) != sent {
			err = fmt.Errorf("expected no other message, there are %d more; the last: %s", len(messages)-sent, messages[len(messages)-1].Text)
		}
		return err
	}))
}

// checkNewImageAnnounced runs another image and checks that only this image is announced.
func checkNewImageAnnounced(t *testing.T, ns string) {
	t.Helper()
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "cache", Image: env.Reference(images.Cache)}))
	must(t, env.WaitForCoverage(t.Context(), ns, 2, 0))
	message := waitForMessages(t, ns, 2)[1]
	repository, _, _ := strings.Cut(env.Reference(images.Cache), ":1.0")
	if len(message.Lines) == 0 || slices.ContainsFunc(message.Lines, func(l scenario.Line) bool { return l.Repository != repository }) {
		t.Errorf("expected news of %s alone, got %q with %v", repository, message.Headline, message.Lines)
	}
}

// upgradeable checks that the operator reports Upgradeable to OLM once its store is durable.
func upgradeable(t *testing.T, b bundle) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		status, err := env.Kubectl(ctx, "--namespace", scenario.SystemNamespace, "get", "operatorcondition", b.csv(),
			"--output", `jsonpath={.spec.conditions[?(@.type=="Upgradeable")].status}`)
		if err == nil && status != "True" {
			err = fmt.Errorf("expected the OperatorCondition of %s to have Upgradeable=True, it is %q", b.csv(), status)
		}
		return err
	})
}
