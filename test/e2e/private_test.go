package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// pullSecret is the image pull secret of the pods in these tests.
const pullSecret = "registry-credentials"

// An image behind TLS with a private authority and a password is scanned with the pod's own pull secret, in the pod's namespace. Each
// namespace scans with its own credentials.
func TestPrivateRegistry(t *testing.T) {
	t.Parallel()
	first, second := privateNamespace(t), privateNamespace(t)
	pod := privatePod(t, first)
	for _, ns := range []string{first, second} {
		must(t, env.RunPods(t.Context(), ns, pod))
		must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	}
	for _, ns := range []string{first, second} {
		must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	}
	// The catalog of one namespace is never used for another one.
	jobs := map[string]int{}
	for _, job := range env.Jobs.All() {
		jobs[job.Namespace]++
	}
	for _, ns := range []string{first, second} {
		if jobs[ns] != 1 {
			t.Errorf("expected one catalog Job in namespace %s, there were %d", ns, jobs[ns])
		}
	}
}

// A pull secret is deleted after the node has pulled the image.
func TestMissingCredentials(t *testing.T) {
	t.Parallel()
	ns := privateNamespace(t)
	pod := privatePod(t, ns)
	must(t, env.RunPods(t.Context(), ns, pod))
	must(t, env.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pullSecret}}))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	requireFailure(t, ns, "PullSecretMissing", pullSecret)
	// The scan is retried automatically when the Secret exists again.
	makePullSecret(t, ns, env.Private.Password)
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
}

// The password is changed after the node has pulled the image. The message names the Secret but not its content.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	ns := privateNamespace(t)
	pod := privatePod(t, ns)
	must(t, env.RunPods(t.Context(), ns, pod))
	const wrong = "a-password-of-last-year"
	makePullSecret(t, ns, wrong)
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	message := requireFailure(t, ns, "Unauthorized", pullSecret)
	if strings.Contains(message, wrong) {
		t.Errorf("the message holds the password: %s", message)
	}
	events, err := env.Kubectl(t.Context(), "--namespace", ns, "get", "events,pods,jobs,imagescans", "--output", "yaml")
	must(t, err)
	if strings.Contains(events, wrong) {
		t.Error("an object of the namespace holds the password")
	}
}

// privateNamespace creates a namespace with a valid pull secret.
func privateNamespace(t *testing.T) string {
	t.Helper()
	if env.Private == nil {
		t.Skip("there is no private registry: SCANNER_PRIVATE_REGISTRY is not set (the local cluster has one)")
	}
	ns := namespace(t, "private")
	makePullSecret(t, ns, env.Private.Password)
	return ns
}

// privatePod returns a pod with a new image in the private registry.
func privatePod(t *testing.T, name string) scenario.Pod {
	t.Helper()
	pod := variants(t, name, 1)[0]
	var err error
	pod.Image, err = env.Private.Reference(pod.Image)
	must(t, err)
	pod.PullSecrets = []string{pullSecret}
	return pod
}

func makePullSecret(t *testing.T, ns, password string) {
	t.Helper()
	config, err := env.Private.DockerConfig(password)
	must(t, err)
	must(t, env.ApplyText(t.Context(), fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: %q}
`, pullSecret, ns, config)))
}

// requireFailure waits until the only image of a namespace has failed, or waits, for a reason. It returns the message, which must contain the
// words.
func requireFailure(t *testing.T, ns, reason string, words ...string) string {
	t.Helper()
	message := ""
	err := wait.Eventually(t.Context(), reasonTimeout, wait.Normally, func(ctx context.Context) error {
		scans, err := env.ImageScans(ctx, ns)
		if err != nil {
			return err
		}
		if len(scans) != 1 {
			return fmt.Errorf("there are %d ImageScans", len(scans))
		}
		message, err = readyMessage(&scans[0], reason, words)
		return err
	})
	if err != nil {
		t.Fatalf("waiting for reason %s: %v", reason, err)
	}
	return message
}
