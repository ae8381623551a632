package install

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// Addresses of the release's manifest and of the sample on the page.
const (
	manifestAt = "https://github.com/scanner-operator/scanner-operator/releases/download/v0.1.0/install.yaml"
	scannerAt  = "https://raw.githubusercontent.com/scanner-operator/scanner-operator/v0.1.0/config/samples/scanner.yaml"
)

// TestKustomize follows docs/operate/install/kustomize.md: installing an earlier version with the user's configuration, a first Scanner, an
// upgrade, and removal.
func TestKustomize(t *testing.T) {
	page := readPage(t, "docs/operate/install/kustomize.md")
	startFromNothing(t)
	dir := ownKustomization(t, page)
	release(t, dir, filepath.Join(env.Root, "bin", "previous"))
	here := "cd " + dir + "\n"
	for _, commands := range page.blocks(t, "Install", "bash") {
		bash(t, here+commands)
	}
	labelSystemNamespace(t)

	ns := namespace(t, "team")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	page.followWith(t, "A Scanner", "-n shop", "-n "+ns, "--namespace shop", "--namespace "+ns, "https://hooks.slack.com/services/…", scenario.WebhookURL(ns),
		scannerAt, "config/samples/scanner.yaml", grantCommand, localGrant)
	shortenDelays(t, ns)
	waitForCondition(t, ns, v1alpha1.ConditionStoreDurable, "True")
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	message, found := waitForMessages(t, ns, 1)[0], findings(t, ns)
	if message.Findings == 0 || message.Findings != len(found) {
		t.Errorf("expected a summary of the %d findings that the store has, Slack got %q with %d", len(found), message.Headline, message.Findings)
	}

	release(t, dir, env.Root)
	upgrade := page.blocks(t, "Upgrade", "bash")
	if text, err := runCommands(t.Context(), here+upgrade[0]); err == nil || !strings.Contains(text, "+        image: "+currentImages(t)["scanner-operator"]) {
		t.Errorf("expected the difference to have the new image, error %v:\n%s", err, text)
	}
	bash(t, here+upgrade[1])
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.ManagerDeployment, scenario.NotifierDeployment))
	requireManagerImage(t, currentImages(t)["scanner-operator"])
	requireUnchanged(t, ns, found)
	checkNewImageAnnounced(t, ns)

	bash(t, here+page.blocks(t, "Remove", "bash")[0])
	requireNothingLeft(t)
}

// ownKustomization returns a directory with the page's example of a user's kustomization, with the tests' configuration and the settings
// that the notifier needs for the Slack stand-in.
func ownKustomization(t *testing.T, page page) string {
	t.Helper()
	config, err := env.OperatorConfig()
	must(t, err)
	authority, err := json.Marshal(string(env.SlackAuthority)) // a JSON string is also a YAML string
	must(t, err)
	dir := t.TempDir()
	kustomization := strings.Replace(page.blocks(t, "Configuration", "yaml")[0], manifestAt, "install.yaml\n- trust.yaml", 1)
	for name, text := range map[string]string{
		"config.yaml": config,
		"trust.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: scanner-notifier-trust, namespace: %s}\ndata: {ca.crt: %s}\n",
			scenario.SystemNamespace, authority),
		"kustomization.yaml": kustomization + fmt.Sprintf(`- target: {kind: Deployment, name: scanner-operator-notifier}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--allowed-webhook-hosts=%s"}
`, scenario.SlackHost),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// release writes the manifest of a checkout into a kustomization, with the images that were last built in the checkout.
func release(t *testing.T, dir, tree string) {
	t.Helper()
	overlay := exec.CommandContext(t.Context(), filepath.Join("bin", "image-builder"), "overlay", "-registry="+env.Registry)
	overlay.Dir = tree
	if text, err := overlay.CombinedOutput(); err != nil {
		t.Fatalf("images of the operator in %s: %v\n%s", tree, err, text)
	}
	manifest := kubectl(t, "kustomize", filepath.Join(tree, "bin", "deploy"))
	must(t, os.WriteFile(filepath.Join(dir, "install.yaml"), []byte(manifest), 0o644))
}
