package install

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/test/docs/commands"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/suite"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// shop is the namespace of the pages' examples.
const shop = "shop"

// removal is the section whose commands remove the operator, so they run last.
const removal = "Remove it"

// preparations put the cluster into the state that a page begins with, where the page before it ends with another one.
var preparations = map[string]string{
	// Both pages begin with the same Secret of the operator's namespace.
	"docs/operate/whole-cluster.md": "kubectl -n scanner-operator-system delete secret slack-webhook",
	// The receiver that the namespace names on the page before is not one of this page's Scanner.
	"docs/use/one-namespace.md": "kubectl annotate namespace shop scanner-operator.io/receiver-",
	// The namespace has the Deployment of the example.
	"docs/use/notifications.md": "kubectl -n shop create deployment cart --image=docker.io/library/nginx:1.25.3",
	"docs/use/scanner.md":       "kubectl -n shop delete secret slack-webhook",
}

// channels are those of the stand-in for Slack that have a message when the commands of a page were run.
var channels = map[string]string{
	"docs/try/slack.md":                  "platform",
	"docs/operate/whole-cluster.md":      "#payments-security",
	"docs/use/notifications-delivery.md": shop,
}

// TestDocuments runs the commands of the pages by which people try and use the operator, one after the other, as a user does who reads all of
// them. What differs from a user's cluster is in replacements. Blocks that are not run are printed with their reason.
func TestDocuments(t *testing.T) {
	startFromNothing(t)
	shopNamespace(t)
	file := quickstartWithSlack(t)
	var last []commands.Block
	for _, page := range commands.Whole() {
		if prepare, needed := preparations[page]; needed {
			bash(t, commands.Replace(prepare, replacements(page, file)...))
		}
		for _, block := range documentedBlocks(t, page) {
			if block.Section == removal {
				last = append(last, block)
				continue
			}
			runBlock(t, block, file)
			if strings.Contains(block.Commands, "/quickstart.yaml") {
				labelSystemNamespace(t)
			}
		}
		if channel, expected := channels[page]; expected {
			waitForAnyMessage(t, channel)
		}
	}
	kubectl(t, "--namespace", shop, "delete", "scanners", "--all", "--timeout=2m")
	if len(last) == 0 {
		t.Fatalf("expected commands below the heading %q", removal)
	}
	for _, block := range last {
		runBlock(t, block, file)
	}
	requireNothingLeft(t, "Pod "+shop+"/cart-*") // its annotation names a receiver, as a page has it
}

// replacements are pairs of a text on the pages and what stands for it on the test's cluster: files of the release, images, and Slack.
func replacements(page, quickstart string) []string {
	channel := shop
	if page == "docs/try/slack.md" || page == "docs/operate/whole-cluster.md" {
		channel = "platform"
	}
	return []string{
		"https://github.com/scanner-operator/scanner-operator/releases/download/v0.1.0/quickstart.yaml", quickstart,
		"https://raw.githubusercontent.com/scanner-operator/scanner-operator/v0.1.0/", "",
		"docker.io/library/nginx:1.25.3", env.Reference(images.Web),
		"nginx=docker.io/library/nginx:1.29", path.Base(images.Web) + "=" + env.Reference(images.WebUpdated), // the container has the name of the image
		"https://hooks.slack.com/services/…", scenario.WebhookURL(channel),
		"xoxb-…", "xoxb-documents",
		"grant.yaml", work("grant.yaml"),
	}
}

func documentedBlocks(t *testing.T, page string) []commands.Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(env.Root, filepath.FromSlash(page)))
	must(t, err)
	blocks, err := commands.Read(page, string(text))
	must(t, err)
	return blocks
}

func runBlock(t *testing.T, block commands.Block, quickstart string) {
	t.Helper()
	if block.NotRun != "" {
		t.Logf("%s is not run: %s", block.Place(), block.NotRun)
		return
	}
	start := time.Now()
	text, err := runCommands(t.Context(), commands.Replace(block.Commands, replacements(block.Page, quickstart)...))
	if err != nil {
		t.Errorf("%s\n%s\n%v\n%s", block.Place(), block.Commands, err, text)
		return
	}
	t.Logf("%s  %.1f s\n%s\n%s", block.Place(), time.Since(start).Seconds(), block.Commands, text)
}

// shopNamespace creates the namespace of the pages' examples with an image that has findings, and removes what the pages leave in the cluster.
func shopNamespace(t *testing.T) {
	t.Helper()
	must(t, env.MakeNamespace(t.Context(), shop))
	t.Cleanup(func() {
		if suite.Keep() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), suite.CleanUpTimeout)
		defer cancel()
		kubectlOrError(ctx, t, "delete", "namespace", shop, "--ignore-not-found", "--timeout=60s")
		kubectlOrError(ctx, t, "delete", "clusterrolebinding", "except", "--ignore-not-found")
		kubectlOrError(ctx, t, "--namespace", "default", "delete", "deployment", "scanner-example", "--ignore-not-found")
	})
	must(t, env.PushBuilt(t.Context(), images.WebUpdated)) // the others are there
	must(t, env.RunPods(t.Context(), shop, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
}

// quickstartWithSlack returns a file as the release's quickstart.yaml whose notifier trusts the stand-in for Slack and posts to it.
func quickstartWithSlack(t *testing.T) string {
	t.Helper()
	quickstart(t)
	// kustomize takes a directory beside this one, but no file outside of it.
	must(t, os.MkdirAll(work("quickstart-slack"), 0o755))
	writeWork(t, "quickstart-slack/authority.crt", string(env.SlackAuthority))
	writeWork(t, "quickstart-slack/kustomization.yaml", fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../quickstart]
configMapGenerator:
- {name: scanner-notifier-trust, namespace: %s, files: [ca.crt=authority.crt], options: {disableNameSuffixHash: true}}
patches:
- target: {kind: Deployment, name: scanner-operator-notifier}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--allowed-webhook-hosts=%[2]s"}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--slack-api-url=https://%[2]s/api"}
`, scenario.SystemNamespace, scenario.SlackHost))
	return writeWork(t, "quickstart-slack.yaml", kubectl(t, "kustomize", work("quickstart-slack")))
}

// waitForAnyMessage waits until a channel has a message.
func waitForAnyMessage(t *testing.T, channel string) {
	t.Helper()
	must(t, wait.Eventually(t.Context(), messageTimeout, wait.Normally, func(ctx context.Context) error {
		messages, err := env.Messages(ctx, channel)
		if err == nil && len(messages) == 0 {
			err = fmt.Errorf("expected a message in the channel %s", channel)
		}
		return err
	}))
}
