package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Sizes of the batches, and the maximum time for all of them. Two batches have as many images as one message names.
const (
	batch         = 4
	restartsLimit = 4 * time.Minute
)

// Labels of the operator's pods.
var (
	managerPods  = client.MatchingLabels{"app.kubernetes.io/component": "manager"}
	notifierPods = client.MatchingLabels{"app.kubernetes.io/component": "notifier"}
	matchPods    = client.MatchingLabels{"app.kubernetes.io/component": "match"}
)

// Manager, match worker and notifier are stopped during their work. Everything is still scanned and announced, and nothing is announced
// twice.
func TestRestarts(t *testing.T) {
	ns := namespace(t, "restarts")
	must(t, env.RunPods(t.Context(), ns, variants(t, ns+"-first", batch)...))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{FirstScan: "All", GroupWait: time.Second, GroupInterval: 2 * time.Second}))

	waitFor(t, "work on some images, and not all", func(ctx context.Context) error { return partlyScanned(ctx, ns, batch) })
	kill(t, ns, managerPods)
	waitFor(t, "another result", func(ctx context.Context) error { return atLeastScanned(ctx, ns, batch/2) })
	kill(t, ns, matchPods)

	waitFor(t, "a first message", func(ctx context.Context) error { return atLeastMessages(ctx, ns, 1) })
	must(t, env.RunPods(t.Context(), ns, variants(t, ns+"-second", batch)...))
	waitFor(t, "a result of the second batch", func(ctx context.Context) error { return atLeastScanned(ctx, ns, batch+1) })
	kill(t, ns, notifierPods)
	kill(t, ns, managerPods, client.GracePeriodSeconds(0)) // this time without a grace period

	must(t, env.WaitForCoverage(t.Context(), ns, 2*batch, 0))
	checkAnnouncedOnce(t, ns)
	must(t, env.CheckLimits(t.Context(), ns))
}

// variants returns pods with images of their own, each with the same few vulnerabilities, so that a message names all of them.
func variants(t *testing.T, name string, count int) []scenario.Pod {
	t.Helper()
	var pods []scenario.Pod
	for i := range count {
		pod := scenario.Pod{Name: fmt.Sprintf("%s-%d", name, i+1)}
		var err error
		pod.Image, err = env.PushVariant(t.Context(), images.API, "test/"+pod.Name)
		must(t, err)
		pods = append(pods, pod)
	}
	return pods
}

func waitFor(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	if err := wait.Eventually(t.Context(), restartsLimit, wait.Normally, check); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// partlyScanned returns an error unless some images have at least a catalog Job and some have no result.
func partlyScanned(ctx context.Context, ns string, total int) error {
	phases, err := phasesIn(ctx, ns)
	if err != nil {
		return err
	}
	begun := phases[v1alpha1.PhaseCataloging] + phases[v1alpha1.PhaseMatching] + phases[v1alpha1.PhaseScanned]
	if begun > 0 && phases[v1alpha1.PhaseScanned] < total {
		return nil
	}
	return fmt.Errorf("phases: %v", phases)
}

func atLeastScanned(ctx context.Context, ns string, count int) error {
	phases, err := phasesIn(ctx, ns)
	if err == nil && phases[v1alpha1.PhaseScanned] < count {
		err = fmt.Errorf("expected %d images with a result; phases: %v", count, phases)
	}
	return err
}

func phasesIn(ctx context.Context, ns string) (map[v1alpha1.ImageScanPhase]int, error) {
	scans, err := env.ImageScans(ctx, ns)
	if err != nil {
		return nil, err
	}
	phases := map[v1alpha1.ImageScanPhase]int{}
	for _, scan := range scans {
		phases[scan.Status.Phase]++
	}
	return phases, nil
}

func atLeastMessages(ctx context.Context, ns string, count int) error {
	messages, err := env.Messages(ctx, ns)
	if err == nil && len(messages) < count {
		err = fmt.Errorf("%d messages", len(messages))
	}
	return err
}

// kill deletes the pods with the labels, by default with their grace period as when a node is drained, and logs the state of the work.
// It waits until there is at least one such pod, since the test would otherwise prove nothing.
func kill(t *testing.T, ns string, labels client.MatchingLabels, how ...client.DeleteOption) {
	t.Helper()
	waitFor(t, fmt.Sprintf("a pod with %v", labels), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := env.Client.List(ctx, &pods, client.InNamespace(scenario.SystemNamespace), labels); err != nil {
			return err
		}
		killed := 0
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				continue
			}
			if err := env.Client.Delete(ctx, pod, how...); err != nil {
				return err
			}
			killed++
		}
		if killed == 0 {
			return errors.New("none is running")
		}
		return nil
	})
	phases, err := phasesIn(t.Context(), ns)
	must(t, err)
	t.Logf("%s: ended %v; images by phase: %v", time.Now().Format(time.TimeOnly), labels, phases)
}

// checkAnnouncedOnce waits until every stored finding is announced, and checks that each is announced once.
func checkAnnouncedOnce(t *testing.T, ns string) {
	t.Helper()
	want := checkAllAnnounced(t, ns, 2*2*batch)
	must(t, wait.Consistently(t.Context(), 6*time.Second, wait.Normally, func(ctx context.Context) error {
		messages, err := env.Messages(ctx, ns)
		if diff := cmp.Diff(want, linesOf(messages...)); err == nil && diff != "" {
			err = fmt.Errorf("what was announced (-expected, each once +got):\n%s", diff)
		}
		return err
	}))
}

// checkAllAnnounced waits until every stored finding is announced at least once, and returns the lines in order. Fewer than atLeast findings
// are an error, since they would prove nothing.
func checkAllAnnounced(t *testing.T, ns string, atLeast int) (want []string) {
	t.Helper()
	var found []scenario.ImageFindings
	waitFor(t, "a manager that answers", func(ctx context.Context) (err error) {
		found, err = env.Findings(ctx, ns)
		return err
	})
	for _, line := range scenario.AnnouncedLines(found) {
		want = append(want, line.String())
	}
	if len(want) < atLeast {
		t.Fatalf("%d findings to be announced are too few to prove anything; expected %d", len(want), atLeast)
	}
	slices.Sort(want)
	waitFor(t, "everything to be announced", func(ctx context.Context) error {
		messages, err := env.Messages(ctx, ns)
		got := slices.Compact(linesOf(messages...))
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = fmt.Errorf("%d of %d findings were announced (-expected +got):\n%s", len(got), len(want), diff)
		}
		return err
	})
	return want
}

// linesOf returns the findings that messages name, sorted.
func linesOf(messages ...scenario.Message) []string {
	var lines []string
	for _, message := range messages {
		for _, line := range message.Lines {
			lines = append(lines, line.String())
		}
	}
	slices.Sort(lines)
	return lines
}
