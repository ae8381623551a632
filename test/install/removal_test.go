package install

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// deployed installs config/default with the tests' settings.
func deployed(t *testing.T) {
	t.Helper()
	startFromNothing(t)
	_, err := env.DeployOperator(t.Context())
	must(t, err)
	labelSystemNamespace(t)
}

// foreverJob is a Job with the labels of the operator's Jobs that never ends.
const foreverJob = `
apiVersion: batch/v1
kind: Job
metadata:
  name: scan-catalog-forever
  namespace: %s
  labels:
    app.kubernetes.io/name: scanner-operator
    app.kubernetes.io/managed-by: scanner-operator
    app.kubernetes.io/component: catalog
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: worker
        image: %s
`

// The operator, its CRDs and a team's namespace are deleted while pods and Scanners have its finalizers and a Job runs. The deletion
// blocks until "manager cleanup" is run from a workstation.
func TestRemovalInWrongOrder(t *testing.T) {
	deployed(t)
	ns := scannedAndAnnounced(t)
	addPodFinalizers(t, ns)
	staying := scannedAndAnnounced(t)
	addPodFinalizers(t, staying)
	kubectl(t, "delete", "namespace", scenario.SystemNamespace, "--timeout=120s")
	must(t, env.ApplyText(t.Context(), fmt.Sprintf(foreverJob, staying, env.Reference(images.API))))
	kubectl(t, "--namespace", ns, "patch", "scanner", scenario.ScannerName, "--type=json",
		"--patch", `[{"op": "add", "path": "/metadata/finalizers/-", "value": "scanner-operator.io/backend-manifests"}]`)
	kubectl(t, "delete", "--kustomize", filepath.Join(env.Root, "bin", "fixtures", "operator"), "--ignore-not-found", "--wait=false")
	kubectl(t, "delete", "namespace", ns, "--wait=false")
	if text, err := env.Kubectl(t.Context(), "wait", "--for=delete", "namespace/"+ns, "--timeout=15s"); err == nil {
		t.Fatalf("expected namespace %s to hang while its pods are held: %s", ns, text)
	}

	bash(t, "bin/manager cleanup --scanners --stop-manager")
	kubectl(t, "wait", "--for=delete", "namespace/"+ns, "--timeout=90s")
	requireNothingLeft(t)
	bash(t, "bin/manager cleanup --scanners --stop-manager --database --results --crds")
	kubectl(t, "delete", "namespace", staying, "--timeout=90s")
}

// "make undeploy" removes everything while pods have finalizers, and the pods keep running.
func TestUndeploy(t *testing.T) {
	deployed(t)
	ns := scannedAndAnnounced(t)
	addPodFinalizers(t, ns)
	bash(t, "hack/undeploy.sh")
	requireNothingLeft(t)
	if pods := kubectl(t, "--namespace", ns, "get", "pods", "--output", "name"); strings.TrimSpace(pods) != "pod/api" {
		t.Errorf("expected the team's pod to run on, there are %q", pods)
	}
	bash(t, "hack/undeploy.sh")
}

// config/cleanup removes everything with permissions of its own, after the operator's were deleted.
func TestCleanupAsPod(t *testing.T) {
	page := readPage(t, "docs/operate/uninstall.md")
	deployed(t)
	ns := scannedAndAnnounced(t)
	addPodFinalizers(t, ns)
	kubectl(t, "delete", "namespace", scenario.SystemNamespace, "--timeout=120s")
	must(t, env.ApplyText(t.Context(), fmt.Sprintf(foreverJob, ns, env.Reference(images.API))))
	blocks := page.blocks(t, "When the operator went first", "bash")
	t.Setenv("IMAGE", currentImages(t)["scanner-operator"])
	t.Cleanup(func() {
		kubectlOrError(context.Background(), t, "delete", "--kustomize", filepath.Join(env.Root, "config", "cleanup"), "--ignore-not-found")
	})
	bash(t, blocks[1])
	kubectl(t, "--namespace", ns, "wait", "--for=delete", "job/scan-catalog-forever", "--timeout=60s")
	kubectl(t, "delete", "namespace", ns, "--timeout=90s")
	bash(t, "hack/undeploy.sh")
	requireNothingLeft(t)
}

// The page's commands for kubectl alone unblock the deletion of a namespace and keep finalizers of others on a Scanner.
func TestRemovalWithKubectlAlone(t *testing.T) {
	blocks := readPage(t, "docs/operate/uninstall.md").blocks(t, "When the operator went first", "bash")
	deployed(t)
	ns := scannedAndAnnounced(t)
	addPodFinalizers(t, ns)
	staying := scannedAndAnnounced(t)
	addPodFinalizers(t, staying)
	kubectl(t, "delete", "namespace", scenario.SystemNamespace, "--timeout=120s")
	kubectl(t, "--namespace", staying, "patch", "scanner", scenario.ScannerName, "--type=json",
		"--patch", `[{"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/theirs"}]`)
	kubectl(t, "delete", "namespace", ns, "--wait=false")
	bash(t, strings.Join(blocks[2:], "\n"))
	kubectl(t, "wait", "--for=delete", "namespace/"+ns, "--timeout=90s")
	kept := kubectl(t, "--namespace", staying, "get", "pods,scanners", "--output", "jsonpath={.items[*].metadata.finalizers}")
	if kept != `["example.com/theirs"]` {
		t.Errorf("expected only the finalizer of others to be left in %s, there are %s", staying, kept)
	}
	kubectl(t, "--namespace", staying, "patch", "scanner", scenario.ScannerName, "--type=merge", "--patch", `{"metadata": {"finalizers": null}}`)
	bash(t, "hack/undeploy.sh")
	requireNothingLeft(t)
}

// TestBackupAndRestore follows docs/operate/backup.md: a backup, further findings and messages, the loss of the volume, and a restore
// into an empty volume. What was announced after the backup is announced once more, as a summary, and nothing else.
func TestBackupAndRestore(t *testing.T) {
	page := readPage(t, "docs/operate/backup.md")
	deployed(t)
	ns := scannedAndAnnounced(t)
	file := filepath.Join(t.TempDir(), "store.backup")
	bash(t, strings.ReplaceAll(page.block(t, "Make one", "bash"), "store.backup", file))
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "cache", Image: env.Reference(images.Cache)}))
	must(t, env.WaitForCoverage(t.Context(), ns, 2, 0))
	waitForMessages(t, ns, 2)
	before := findings(t, ns)

	restored(t, file, func() {
		kubectl(t, "--namespace", scenario.SystemNamespace, "delete", "pvc", "scanner-operator-store", "--timeout=60s")
		kubectl(t, "--namespace", scenario.SystemNamespace, "apply", "--filename", filepath.Join(env.Root, "config", "manager", "claim.yaml"))
	})
	must(t, env.WaitForCoverage(t.Context(), ns, 2, 0))
	messages := waitForMessages(t, ns, 3)
	if last := messages[2]; !strings.Contains(last.Headline, "Restored from a backup") {
		t.Errorf("expected one summary of what was announced after the backup, Slack got %q", last.Headline)
	}
	if after := findings(t, ns); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("expected the same findings as before the restore:\n%s\nthere are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// TestReinstallation saves what docs/operate/uninstall.md describes, removes everything, and reinstalls with the saved data. No message is sent.
func TestReinstallation(t *testing.T) {
	page := readPage(t, "docs/operate/uninstall.md")
	deployed(t)
	ns := scannedAndAnnounced(t)
	dir := t.TempDir()
	inDir := strings.NewReplacer("store.backup", filepath.Join(dir, "store.backup"), "scanners-and-exceptions.yaml", filepath.Join(dir, "kept.yaml"))
	keep := page.blocks(t, "To keep what was found", "bash")
	bash(t, inDir.Replace(keep[0]))
	before := findings(t, ns)
	bash(t, "hack/undeploy.sh")
	requireNothingLeft(t)

	_, err := env.DeployOperator(t.Context())
	must(t, err)
	restored(t, filepath.Join(dir, "store.backup"), func() { bash(t, inDir.Replace(keep[1])) })
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	if after := findings(t, ns); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("expected the same findings as before:\n%s\nthere are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	// Only changes are announced: the first message after the restore is about this image.
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "cache", Image: env.Reference(images.Cache)}))
	must(t, env.WaitForCoverage(t.Context(), ns, 2, 0))
	if last := waitForMessages(t, ns, 2)[1]; strings.Contains(last.Headline, "Restored") {
		t.Errorf("expected nothing to be announced of what was announced before, Slack got %q", last.Headline)
	}
}

// restored follows docs/operate/backup.md and calls meanwhile while the manager is stopped.
func restored(t *testing.T, file string, meanwhile func()) {
	t.Helper()
	commands := strings.Split(strings.NewReplacer(
		"store.backup", file, "ghcr.io/scanner-operator/scanner-operator:0.1.0", currentImages(t)["scanner-operator"],
	).Replace(readPage(t, "docs/operate/backup.md").blocks(t, "Restore", "bash")[1]), "\n")
	bash(t, commands[0]) // scaled to zero
	kubectl(t, "--namespace", scenario.SystemNamespace, "wait", "--for=delete", "pod", "--selector=app.kubernetes.io/component=manager", "--timeout=60s")
	meanwhile()
	bash(t, strings.Join(commands[1:], "\n"))
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.ManagerDeployment))
}
