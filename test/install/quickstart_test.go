package install

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// TestQuickstart follows docs/try/quickstart.md with a stopwatch: one kubectl apply, and the worst finding of an image with its fix in the
// terminal. Applying the file again changes no ClusterScanner, and the page's last commands remove everything.
func TestQuickstart(t *testing.T) {
	startFromNothing(t)
	ns := namespace(t, "team")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	file := quickstart(t)

	watch := stopwatch{t: t, start: time.Now()}
	kubectl(t, "apply", "--server-side", "--filename", file)
	labelSystemNamespace(t)
	watch.lap("kubectl apply")
	kubectl(t, "wait", "--for=create", "clusterscanner/platform", "--timeout=5m")
	watch.lap("the ClusterScanner exists")
	kubectl(t, "wait", "--for=condition=Ready", "clusterscanner/platform", "--timeout=15m")
	watch.lap("the ClusterScanner is Ready")
	scan := imageScanWithFinding(t, ns)
	watch.lap("the first finding")
	table := kubectl(t, "--namespace", ns, "get", "imagescans", "--output", "wide")
	t.Logf("$ kubectl -n %s get imagescans -o wide\n%s", ns, table)
	for _, want := range []string{" DETAIL", scan.Status.Image, scan.Status.Columns.Detail} {
		if !strings.Contains(table, want) {
			t.Errorf("expected %q in the table:\n%s", want, table)
		}
	}

	requireUnchangedByAnotherApply(t, file)
	requireGrant(t)

	kubectl(t, "delete", "clusterscanners", "--all", "--timeout=2m")
	kubectl(t, "delete", "--filename", file, "--ignore-not-found", "--timeout=3m")
	requireNothingLeft(t)
}

// stopwatch logs how long after its start something has happened.
type stopwatch struct {
	t     *testing.T
	start time.Time
}

func (s stopwatch) lap(what string) {
	s.t.Helper()
	s.t.Logf("%5.1f s  %s", time.Since(s.start).Seconds(), what)
}

// quickstart returns a file as the release's quickstart.yaml, with the images of the last "make images", and with the configuration of the
// tests: the cluster has no access to the public vulnerability data.
func quickstart(t *testing.T) string {
	t.Helper()
	run(t, "image-builder", "overlay", "-registry="+env.Registry)
	config, err := env.OperatorConfig()
	must(t, err)
	must(t, os.MkdirAll(work("quickstart"), 0o755))
	writeWork(t, "quickstart/config.yaml", config)
	writeWork(t, "quickstart/kustomization.yaml", fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../quickstart]
configMapGenerator:
- {name: scanner-operator-config, namespace: %s, behavior: replace, files: [config.yaml]}
`, scenario.SystemNamespace))
	return writeWork(t, "quickstart.yaml", kubectl(t, "kustomize", work("quickstart")))
}

// imageScanWithFinding waits until the only image of a namespace has a worst finding.
func imageScanWithFinding(t *testing.T, ns string) v1alpha1.ImageScan {
	t.Helper()
	var found v1alpha1.ImageScan
	eventually(t, func(ctx context.Context) error {
		scans, err := env.ImageScans(ctx, ns)
		if err != nil {
			return err
		}
		if len(scans) != 1 || scans[0].Status.WorstFinding == "" {
			return fmt.Errorf("expected one ImageScan with a worst finding, there are %d: %+v", len(scans), scans)
		}
		found = scans[0]
		return nil
	})
	return found
}

// requireUnchangedByAnotherApply changes the ClusterScanner as a user would, and applies the file again.
func requireUnchangedByAnotherApply(t *testing.T, file string) {
	t.Helper()
	kubectl(t, "patch", "clusterscanner", "platform", "--type=merge", "--patch", `{"spec": {"excludeNamespaces": ["kube-system", "default"]}}`)
	kubectl(t, "--namespace", scenario.SystemNamespace, "delete", "job", "scanner-operator-quickstart", "--ignore-not-found") // as after five minutes
	kubectl(t, "apply", "--server-side", "--filename", file)
	kubectl(t, "--namespace", scenario.SystemNamespace, "wait", "--for=condition=Complete", "job/scanner-operator-quickstart", "--timeout=2m")
	if got := kubectl(t, "get", "clusterscanner", "platform", "--output", "jsonpath={.spec.excludeNamespaces}"); got != `["kube-system","default"]` {
		t.Errorf("expected the ClusterScanner to keep the user's change, it excludes %s", got)
	}
}

// requireGrant runs the pages' command for the permission to read a Secret in the manager's pod.
func requireGrant(t *testing.T) {
	t.Helper()
	const secret = "slack-webhook"
	account := "system:serviceaccount:" + scenario.SystemNamespace + ":scanner-operator-notifier"
	mayRead := func(name string) string {
		answer, _ := env.Kubectl(t.Context(), "--namespace", scenario.SystemNamespace, "auth", "can-i", "get", "secrets/"+name, "--as", account)
		return strings.TrimSpace(answer)
	}
	if got := mayRead(secret); got != "no" {
		t.Fatalf("expected the notifier not to read the Secret yet, the API server says %q", got)
	}
	bash(t, grantCommand+" --namespace "+scenario.SystemNamespace+" --secret "+secret+" | kubectl apply -f -")
	for name, want := range map[string]string{secret: "yes", "another": "no"} {
		if got := mayRead(name); got != want {
			t.Errorf("whether the notifier may read the Secret %s: expected %s, the API server says %q", name, want, got)
		}
	}
}
