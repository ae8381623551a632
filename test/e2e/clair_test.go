package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// usingClair returns the environment with Clair as the engine of new Scanners.
func usingClair() *scenario.Environment { return env.WithBackend(v1alpha1.BackendClair) }

// The scenarios of the demo with Clair, each step as a test.
func TestClairDemo(t *testing.T) { runScenarios(t, usingClair()) }

// clairReason waits until a namespace's Scanner has the given reason for its unavailable backend.
func clairReason(t *testing.T, ns, reason string) {
	t.Helper()
	waitFor(t, "reason "+reason, func(ctx context.Context) error {
		scanner, err := env.Scanner(ctx, ns)
		if err != nil {
			return err
		}
		available := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionBackendAvailable)
		if available == nil || available.Status != "False" || available.Reason != reason {
			return fmt.Errorf("the Scanner's condition %s is %+v", v1alpha1.ConditionBackendAvailable, available)
		}
		return nil
	})
}

// A Scanner with a wrong key reports it, and works without further action when it gets the right key.
func TestClairWrongKey(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "clair-key")
	clair := usingClair()
	must(t, clair.RunPods(t.Context(), ns, variants(t, ns, 1)...))
	must(t, clair.MakeScanner(t.Context(), ns, scenario.ScannerSettings{ClairKey: "YSBrZXkgdGhhdCBpcyBub3QgdGhlIG9uZSB0aGF0IENsYWlyIGhhcw=="}))
	clairReason(t, ns, "ClairUnauthorized")
	must(t, clair.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, clair.WaitForCoverage(t.Context(), ns, 1, 0))
}

// Clair restarts while it has work, and its database is unavailable for some time. Meanwhile, no finding is lost or added, and
// afterwards everything is scanned.
func TestClairUnavailable(t *testing.T) {
	ns := namespace(t, "clair-trouble")
	clair := usingClair()
	must(t, clair.RunPods(t.Context(), ns, variants(t, ns+"-first", batch)...))
	must(t, clair.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, restart(t.Context(), scenario.ClairDeployment))
	must(t, clair.WaitForCoverage(t.Context(), ns, batch, 0))
	before := findingsByImage(t, ns)

	scale(t, scenario.ClairDatabaseDeployment, 0)
	must(t, clair.RunPods(t.Context(), ns, variants(t, ns+"-second", 1)...))
	waitFor(t, "an ImageScan of the new image", func(ctx context.Context) error {
		scans, err := env.ImageScans(ctx, ns)
		if err == nil && len(scans) != batch+1 {
			err = fmt.Errorf("%d ImageScans", len(scans))
		}
		return err
	})
	must(t, wait.Consistently(t.Context(), 15*time.Second, wait.Normally, func(ctx context.Context) error {
		phases, err := phasesIn(ctx, ns)
		if err == nil && (phases[v1alpha1.PhaseScanned] != batch || phases[v1alpha1.PhaseFailed] != 0) {
			err = fmt.Errorf("expected the results of before, and neither result nor failure of the new image; phases: %v", phases)
		}
		return err
	}))
	for digest, while := range findingsByImage(t, ns) {
		if while != before[digest] {
			t.Errorf("%s had %d findings before Clair was without a database, and has %d", digest, before[digest], while)
		}
	}
	scale(t, scenario.ClairDatabaseDeployment, 1)
	must(t, clair.WaitForCoverage(t.Context(), ns, batch+1, 0))
}

// findingsByImage returns the number of findings of each image in a namespace.
func findingsByImage(t *testing.T, ns string) map[string]int {
	t.Helper()
	found, err := env.Findings(t.Context(), ns)
	must(t, err)
	numbers := map[string]int{}
	for _, img := range found {
		numbers[img.Digest] = len(img.Findings)
	}
	return numbers
}

func restart(ctx context.Context, deployment string) error {
	_, err := env.Kubectl(ctx, "--namespace", scenario.ClairNamespace, "rollout", "restart", deployment)
	return err
}

// scale scales a deployment to 0 or 1 replicas. It restores 1 replica after the test.
func scale(t *testing.T, deployment string, replicas int) {
	t.Helper()
	to := func(ctx context.Context, replicas int) error {
		_, err := env.Kubectl(ctx, "--namespace", scenario.ClairNamespace, "scale", deployment, fmt.Sprintf("--replicas=%d", replicas))
		return errors.Join(err, env.WaitForRollout(ctx, scenario.ClairNamespace, deployment))
	}
	must(t, to(t.Context(), replicas))
	if replicas == 0 {
		// The rollout counts as complete while the pod still terminates and still serves.
		waitFor(t, "the end of "+deployment, func(ctx context.Context) error {
			pods, err := env.Kubectl(ctx, "--namespace", scenario.ClairNamespace, "get", "pods", "--output=name")
			if _, name, _ := strings.Cut(deployment, "/"); err == nil && strings.Contains(pods, "pod/"+name+"-") {
				err = fmt.Errorf("its pod is still there: %s", pods)
			}
			return err
		})
		t.Cleanup(func() { // the test's context has ended
			if err := to(context.Background(), 1); err != nil {
				t.Error(err)
			}
		})
	}
}

// The notifier rejects webhooks without a key.
func TestClairForgedWebhook(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "clair-forged")
	clair := usingClair()
	image, err := env.PushVariant(t.Context(), images.API, "test/"+ns)
	must(t, err)
	must(t, clair.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: image}))
	must(t, clair.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
	must(t, clair.WaitForCoverage(t.Context(), ns, 1, 0))
	const body = `{"notification_id":"269886f3-0146-4f08-9bf7-cb1138d48643","callback":"http://somewhere.else/"}`
	for path, want := range map[string]int{
		"clair/" + ns + "/" + scenario.ScannerName: 401,
		"clair/" + ns + "/nobody":                  401,
		"v1/digests":                               404,
	} {
		_, err := env.Clientset.CoreV1().RESTClient().Post().Namespace(scenario.SystemNamespace).Resource("services").
			Name("http:scanner-operator-notifier:clair-webhooks").SubResource("proxy").Suffix(path).
			SetHeader("X-Scanner-Operator-Token", "guessed").Body([]byte(body)).DoRaw(t.Context())
		var status apierrors.APIStatus
		if !errors.As(err, &status) || int(status.Status().Code) != want {
			t.Errorf("POST /%s without a key: want status %d, got %v", path, want, err)
		}
	}
	scans, err := env.ImageScans(t.Context(), ns)
	must(t, err)
	for _, scan := range scans {
		if len(scan.Annotations) > 0 {
			t.Errorf("a forged webhook marked ImageScan %s: %v", scan.Name, scan.Annotations)
		}
	}
}
