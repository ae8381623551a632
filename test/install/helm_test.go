package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// published is the reference of the chart on the page. The tests replace it by a directory.
const published = "oci://ghcr.io/scanner-operator/charts/scanner-operator --version 0.1.0"

// cleanupJob is the Job of the chart's pre-delete hook.
const cleanupJob = "job/scanner-operator-cleanup"

// TestHelm follows docs/operate/install/helm.md: installing an earlier version, a first Scanner, an upgrade, and uninstalling.
func TestHelm(t *testing.T) {
	page := readPage(t, "docs/operate/install/helm.md")
	useHelm(t)
	startFromNothing(t)
	page.followWith(t, "Install", published, previousChart(t)+" --values "+helmValues(t))
	labelSystemNamespace(t)
	ns := firstScanner(t, page)
	waitForCondition(t, ns, v1alpha1.ConditionStoreDurable, "True")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	before, found := waitForMessages(t, ns, 1), findings(t, ns)
	if len(found) == 0 || before[0].Findings != len(found) {
		t.Fatalf("expected a summary of the %d findings that the store has, Slack got %q with %d", len(found), before[0].Headline, before[0].Findings)
	}

	page.followWith(t, "Upgrade", published, currentChart(t))
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.ManagerDeployment, scenario.NotifierDeployment))
	requireManagerImage(t, currentImages(t)["scanner-operator"])
	requireUnchanged(t, ns, found)
	checkNewImageAnnounced(t, ns)

	addPodFinalizers(t, ns)
	found = findings(t, ns)
	page.follow(t, "Uninstall")
	requireNothingLeft(t, page.list(t, "What stays")...)
	checkReinstall(t, page, ns, found)
	page.follow(t, "Uninstall")
	kubectl(t, "delete", "namespace", ns, "--timeout=60s") // also deletes its pods, which have no finalizers left
	page.follow(t, "What stays")
	requireNothingLeft(t)
}

// checkReinstall reinstalls the operator with the Scanner and the store that remained: the findings still exist, and nothing is announced again.
func checkReinstall(t *testing.T, page page, ns string, found []string) {
	t.Helper()
	_, install, cut := strings.Cut(page.block(t, "Install", "bash"), "helm install")
	if !cut {
		t.Fatal("docs/operate/install/helm.md: expected helm install below the heading Install")
	}
	bash(t, "helm install"+strings.Replace(install, published, currentChart(t)+" --values "+helmValues(t), 1))
	must(t, env.WaitForRollout(t.Context(), scenario.SystemNamespace, scenario.ManagerDeployment, scenario.NotifierDeployment))
	requireFindingsAndMessages(t, ns, 2, 2, found)
}

// An operator without permissions in other namespaces works in its own ones, and deletes its CRDs with crds.keep=false.
func TestHelmLimitedToNamespaces(t *testing.T) {
	page := readPage(t, "docs/operate/install/helm.md")
	useHelm(t)
	ns, other := namespace(t, "team"), namespace(t, "other")
	startFromNothing(t)
	page.followWith(t, "Install", published, fmt.Sprintf("%s --values %s --set watchNamespaces={%s} --set crds.keep=false --set store.keep=false --set networkPolicy.enabled=true",
		currentChart(t), helmValues(t), ns))
	labelSystemNamespace(t)
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	waitForMessages(t, ns, 1)
	for verb, want := range map[string]string{"list": "no", "patch": "no"} {
		answer, _ := env.Kubectl(t.Context(), "auth", "can-i", verb, "pods", "--namespace", other,
			"--as", "system:serviceaccount:"+scenario.SystemNamespace+":scanner-operator-manager")
		if strings.TrimSpace(answer) != want {
			t.Errorf("expected the manager not to %s pods of namespace %s, the API server says %q", verb, other, answer)
		}
	}
	addPodFinalizers(t, ns)
	page.follow(t, "Uninstall")
	requireNothingLeft(t)
}

// If the clean-up cannot run, uninstalling fails after a timeout with the name of the Job and the reason.
func TestHelmUninstallThatFails(t *testing.T) {
	page := readPage(t, "docs/operate/install/helm.md")
	useHelm(t)
	startFromNothing(t)
	page.followWith(t, "Install", published, currentChart(t)+" --values "+helmValues(t)+" --set cleanup.timeoutSeconds=10 --set cleanup.nodeSelector.no=such-node")
	labelSystemNamespace(t)
	output, err := runCommands(t.Context(), page.block(t, "Uninstall", "bash"))
	if err == nil || !strings.Contains(output, "scanner-operator-cleanup") || !strings.Contains(output, "DeadlineExceeded") {
		t.Errorf("expected uninstalling to fail and to name the Job and the reason, got %v\n%s", err, output)
	}
	kubectl(t, "--namespace", scenario.SystemNamespace, "get", cleanupJob)
	bash(t, page.blocks(t, "When uninstalling fails", "sh")[1])
	page.follow(t, "What stays")
	requireNothingLeft(t)
}

// useHelm adds the helm of "make bin/helm" to the PATH.
func useHelm(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(env.Root, "bin", "helm")); err != nil {
		t.Fatalf("make bin/helm: %v", err)
	}
	t.Setenv("PATH", filepath.Join(env.Root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// labelSystemNamespace labels the namespace that a page's commands have created, so that the environment's Remove deletes it.
func labelSystemNamespace(t *testing.T) {
	t.Helper()
	kubectl(t, "label", "namespace", scenario.SystemNamespace, scenario.Label+"=true")
}

// helmValues writes a values file with the operator's configuration and the permission for the notifier to post to the stand-in.
func helmValues(t *testing.T) string {
	t.Helper()
	text, err := env.OperatorConfig()
	must(t, err)
	var config map[string]any
	must(t, yaml.Unmarshal([]byte(text), &config))
	content, err := yaml.Marshal(map[string]any{"config": config, "notifier": map[string]any{
		"allowedWebhookHosts": []string{scenario.SlackHost}, "trust": map[string]any{"certificates": string(env.SlackAuthority)},
	}})
	must(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(file, content, 0o644))
	return file
}

func currentImages(t *testing.T) map[string]string {
	t.Helper()
	operator, err := env.OperatorImages()
	must(t, err)
	return operator
}

func currentChart(t *testing.T) string {
	t.Helper()
	version, err := os.ReadFile(filepath.Join(env.Root, "VERSION"))
	must(t, err)
	return chartOf(t, strings.TrimSpace(string(version)), currentImages(t))
}

// previousChart returns this chart with the images and the CRDs of the previous version, which had no chart. That version does not work with
// CRDs of this one: it creates ImageScans that name their Scanner by a text.
func previousChart(t *testing.T) string {
	t.Helper()
	tree := filepath.Join(env.Root, "bin", "previous")
	operator, err := scenario.ImagesOf(tree)
	must(t, err)
	chart := chartOf(t, previousVersion(t), operator)
	crds, err := filepath.Glob(filepath.Join(tree, "config", "crd", "bases", "*.yaml"))
	must(t, err)
	if len(crds) == 0 {
		t.Fatalf("expected CRDs of the previous version in %s", tree)
	}
	for _, crd := range crds {
		text, err := os.ReadFile(crd)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(chart, "files", "crd", filepath.Base(crd)), text, 0o644))
	}
	return chart
}

// digest matches the place of an image's digest in values.yaml.
var digest = regexp.MustCompile(`repository: ([a-z-]+)\n( +#.*\n)* +digest: ""`)

// chartOf returns the path of a released chart: with a version and the images by digest.
func chartOf(t *testing.T, version string, operator map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chart")
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join(env.Root, "charts", "scanner-operator"))))
	rewrite(t, filepath.Join(dir, "Chart.yaml"), func(text string) string {
		return regexp.MustCompile(`(?m)^(version|appVersion): .*$`).ReplaceAllString(text, "$1: "+version)
	})
	rewrite(t, filepath.Join(dir, "values.yaml"), func(text string) string {
		pinned := 0
		text = digest.ReplaceAllStringFunc(text, func(place string) string {
			pinned++
			_, image, _ := strings.Cut(operator[digest.FindStringSubmatch(place)[1]], "@")
			return strings.Replace(place, `digest: ""`, `digest: "`+image+`"`, 1)
		})
		if pinned != len(operator) {
			t.Fatalf("expected places for the digests of %d images in values.yaml, there are %d", len(operator), pinned)
		}
		return strings.Replace(text, "registry: ghcr.io/scanner-operator", "registry: "+env.Registry, 1)
	})
	return dir
}

func rewrite(t *testing.T, file string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(change(string(text))), 0o644))
}

// firstScanner follows the page in a namespace of its own and shortens the receiver's delays.
func firstScanner(t *testing.T, page page) string {
	t.Helper()
	ns := namespace(t, "team")
	page.followWith(t, "A first Scanner", "--namespace shop", "--namespace "+ns, "https://hooks.slack.com/services/…", scenario.WebhookURL(ns),
		grantCommand, localGrant)
	shortenDelays(t, ns)
	return ns
}

// requireManagerImage checks the manager's image.
func requireManagerImage(t *testing.T, image string) {
	t.Helper()
	if got := kubectl(t, "--namespace", scenario.SystemNamespace, "get", scenario.ManagerDeployment, "--output", "jsonpath={.spec.template.spec.containers[0].image}"); got != image {
		t.Fatalf("expected the manager to run %s, it runs %s", image, got)
	}
}

// addPodFinalizers adds the operator's finalizers to pods. Without a manager, the finalizers block the deletion of the pods and their namespace.
func addPodFinalizers(t *testing.T, ns string) {
	t.Helper()
	kubectl(t, "--namespace", ns, "patch", "scanner", scenario.ScannerName, "--type=merge", "--patch", `{"spec": {"addPodFinalizer": true}}`)
	eventually(t, func(ctx context.Context) error {
		finalizers, err := env.Kubectl(ctx, "--namespace", ns, "get", "pods,scanners", "--output", "jsonpath={.items[*].metadata.finalizers}")
		if err == nil && (!strings.Contains(finalizers, ".scanner-operator.io/release") || !strings.Contains(finalizers, "scanner-operator.io/pod-finalizers")) {
			err = fmt.Errorf("expected finalizers on pods and Scanner of %s, there are %q", ns, finalizers)
		}
		return err
	})
}
