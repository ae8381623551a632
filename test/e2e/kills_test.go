package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

const (
	// killRounds is the number of kills of the manager and of the notifier each.
	killRounds = 5
	// podsPerRound is the number of new pods per round, with images of their own and so with findings to announce. All rounds together
	// have no more images than one message names. On a slow machine one message is about all of them, and it would only count the
	// findings of a ninth repository.
	podsPerRound = 1
	// restartsAtOnce is the number of restarts of a container that the kubelet delays by at most ten seconds
	// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
	restartsAtOnce = 2
	// maxKillDelay is the maximum time from new pods to a kill: long enough for messages about them.
	maxKillDelay = 8 * time.Second
)

// Manager and notifier are killed ten times with SIGKILL at random moments while messages are sent. Nothing is lost, and there are no
// more repeated messages than kills.
func TestKills(t *testing.T) {
	ns := namespace(t, "kills")
	seed := rand.Uint64()
	draws := rand.New(rand.NewPCG(seed, 0))
	must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{FirstScan: "All", GroupWait: time.Second, GroupInterval: 2 * time.Second}))
	pods := variants(t, ns, killRounds*podsPerRound)
	victims := []client.MatchingLabels{managerPods, notifierPods}
	for round := range killRounds {
		if round > 0 && round%restartsAtOnce == 0 {
			// The container of a new pod restarts without backoff.
			kill(t, ns, managerPods)
			kill(t, ns, notifierPods)
		}
		for _, labels := range victims {
			waitFor(t, fmt.Sprintf("a ready pod with %v", labels), func(ctx context.Context) error { return onePodReady(ctx, labels) })
		}
		must(t, env.RunPods(t.Context(), ns, pods[round*podsPerRound:(round+1)*podsPerRound]...))
		draws.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		for _, labels := range victims {
			<-time.After(time.Duration(draws.Int64N(int64(maxKillDelay)))) // the random moment
			killContainer(t, ns, labels)
		}
	}
	must(t, env.WaitForCoverage(t.Context(), ns, killRounds*podsPerRound, 0))
	all := checkAllAnnounced(t, ns, 2*killRounds*podsPerRound)
	repeated := 0
	must(t, wait.Consistently(t.Context(), 12*time.Second, wait.Normally, func(ctx context.Context) (err error) {
		repeated, err = repeatedMessages(ctx, ns)
		return err
	}))
	t.Logf("%d kills, %d findings announced, lost 0, doubled messages %d (seed %d)", len(victims)*killRounds, len(all), repeated, seed)
	if repeated > len(victims)*killRounds {
		t.Errorf("%d messages came twice, more than there were kills", repeated)
	}
	must(t, env.CheckLimits(t.Context(), ns))
}

func onePodReady(ctx context.Context, labels client.MatchingLabels) error {
	_, err := podOf(ctx, labels, corev1.PodReady)
	return err
}

// podOf returns the only pod with the labels and a true condition that is not being deleted.
func podOf(ctx context.Context, labels client.MatchingLabels, condition corev1.PodConditionType) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(scenario.SystemNamespace), labels); err != nil {
		return nil, err
	}
	for i, pod := range pods.Items {
		for _, c := range pod.Status.Conditions {
			if pod.DeletionTimestamp == nil && c.Type == condition && c.Status == corev1.ConditionTrue {
				return &pods.Items[i], nil
			}
		}
	}
	return nil, fmt.Errorf("none of %d pods is %s", len(pods.Items), condition)
}

// killContainer kills the process of the only pod with the labels. On a node of another machine it deletes the pod without a grace
// period instead.
func killContainer(t *testing.T, ns string, labels client.MatchingLabels) {
	t.Helper()
	how := "its process"
	waitFor(t, fmt.Sprintf("a process of %v", labels), func(ctx context.Context) error {
		pod, err := podOf(ctx, labels, corev1.PodScheduled)
		if err != nil {
			return err
		}
		if os.Getenv("SCANNER_REGISTRY") == "" { // another cluster than the local one
			how = "its pod"
			return env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
		}
		pid, err := process.OfPod(pod)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	})
	phases, err := phasesIn(t.Context(), ns)
	must(t, err)
	t.Logf("%s: killed %v (%s); images by phase: %v", time.Now().Format(time.TimeOnly), labels, how, phases)
}

// repeatedMessages counts the messages with a line that an earlier message contained.
func repeatedMessages(ctx context.Context, ns string) (doubled int, err error) {
	messages, err := env.Messages(ctx, ns)
	known := map[string]bool{}
	for _, message := range messages {
		again := false
		for _, line := range linesOf(message) {
			again = again || known[line]
			known[line] = true
		}
		if again {
			doubled++
		}
	}
	return doubled, err
}
