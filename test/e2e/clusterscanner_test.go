package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// A ClusterScanner covers the namespaces that a label selects, leaves one to a Scanner of its own, takes in another that gets the label, and
// sends what it finds to one channel. When it is deleted, nothing of it stays in the namespaces.
func TestClusterScanner(t *testing.T) {
	t.Parallel()
	covered, own, joins := namespace(t, "covered"), namespace(t, "own"), namespace(t, "joins")
	name := covered
	manifest := clusterScanner(name)
	t.Cleanup(func() {
		if _, err := env.Kubectl(context.Background(), "delete", "clusterscanner", name, "--ignore-not-found", "--timeout=60s"); err != nil {
			t.Error(err)
		}
		must(t, env.DeleteText(context.Background(), manifest))
	})
	label := func(ns string) {
		_, err := env.Kubectl(t.Context(), "label", "namespace", ns, "scanned-by="+name)
		must(t, err)
	}
	for _, ns := range []string{covered, own, joins} {
		must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	}
	must(t, env.MakeScanner(t.Context(), own, scenario.ScannerSettings{}))
	must(t, env.WaitForCoverage(t.Context(), own, 1, 0))
	label(covered)
	label(own)
	must(t, env.ApplyText(t.Context(), manifest))

	waitForNamespaces(t, name, v1alpha1.NamespaceCounts{Selected: 2, Covered: 1, Own: 1})
	label(joins)
	waitForNamespaces(t, name, v1alpha1.NamespaceCounts{Selected: 3, Covered: 2, Own: 1})
	for ns, kind := range map[string]v1alpha1.ScannerKind{covered: v1alpha1.KindClusterScanner, own: v1alpha1.KindScanner, joins: v1alpha1.KindClusterScanner} {
		scans, err := env.ImageScans(t.Context(), ns)
		must(t, err)
		if len(scans) != 1 || scans[0].Spec.ScannerRef.Kind != kind {
			t.Errorf("namespace %s: expected one ImageScan of a %s, there are %d: %+v", ns, kind, len(scans), scans)
		}
	}
	waitFor(t, "messages to "+name, func(ctx context.Context) error {
		messages, err := env.Messages(ctx, name)
		if err == nil && len(messages) == 0 {
			err = errors.New("there is none")
		}
		return err
	})

	_, err := env.Kubectl(t.Context(), "delete", "clusterscanner", name, "--timeout=60s")
	must(t, err)
	for _, ns := range []string{covered, joins} {
		must(t, wait.Eventually(t.Context(), deletionTimeout, wait.Normally, func(ctx context.Context) error {
			return errors.Join(noImageScans(ctx, ns), noFinalizers(ctx, ns))
		}))
	}
}

// waitForNamespaces waits until a ClusterScanner counts these namespaces and is ready, with a result for the one image that all of them run.
func waitForNamespaces(t *testing.T, name string, want v1alpha1.NamespaceCounts) {
	t.Helper()
	waitFor(t, "the ClusterScanner "+name, func(ctx context.Context) error {
		var scanner v1alpha1.ClusterScanner
		if err := env.Client.Get(ctx, client.ObjectKey{Name: name}, &scanner); err != nil {
			return err
		}
		if got := scanner.Status.Namespaces; got != want {
			return fmt.Errorf("expected namespaces %+v, the ClusterScanner says %+v", want, got)
		}
		ready := meta.IsStatusConditionTrue(scanner.Status.Conditions, v1alpha1.ConditionReady)
		if got := scanner.Status.Images; !ready || got.Scanned != 1 {
			return fmt.Errorf("expected one scanned image, the ClusterScanner says %+v and %+v", got, scanner.Status.Conditions)
		}
		return nil
	})
}

// clusterScanner returns the YAML of a ClusterScanner for namespaces with the label scanned-by, with a receiver whose Secret is in the
// operator's namespace. The receiver's channel has the ClusterScanner's name.
func clusterScanner(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %[1]s, namespace: %[2]s}
stringData: {url: "%[3]s"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: slack-%[1]s, namespace: %[2]s}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [%[1]s], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slack-%[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: slack-%[1]s}
subjects:
- {kind: ServiceAccount, name: scanner-operator-notifier, namespace: %[2]s}
---
apiVersion: scanner-operator.io/v1alpha1
kind: ClusterScanner
metadata: {name: %[1]s}
spec:
  namespaceSelector: {matchLabels: {scanned-by: %[1]s}}
  notifications:
  - name: platform
    slack: {webhookURLSecretRef: {name: %[1]s, key: url}}
    groupWait: 1s
    groupInterval: 2s
`, name, scenario.SystemNamespace, scenario.WebhookURL(name))
}
