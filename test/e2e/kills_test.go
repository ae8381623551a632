package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/story"
)

const (
	// killRounds are how often the manager and the notifier are killed each.
	killRounds = 5
	// podsPerRound bring images of their own, and so something to tell. Those of all rounds together are no more than one message
	// names: on a slow machine it is about all of them, and of a ninth repository it would only count the findings.
	podsPerRound = 1
	// restartsAtOnce is how often the kubelet starts a container again with no more than ten seconds' pause
	// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
	restartsAtOnce = 2
	// longestBreak is how long a program lives at most before it is killed: from new pods to messages about them.
	longestBreak = 8 * time.Second
)

// Manager and notifier are killed ten times at random moments, as kill -9 does, while messages go out. Nothing is lost, and no more
// messages come twice than there were kills.
func TestKills(t *testing.T) {
	ns := namespace(t, "kills")
	seed := rand.Uint64()
	draws := rand.New(rand.NewPCG(seed, 0))
	must(t, env.MakeScanner(t.Context(), ns, story.ScannerSettings{FirstScan: "All", GroupWait: time.Second, GroupInterval: 2 * time.Second}))
	pods := variants(t, ns, killRounds*podsPerRound)
	victims := []client.MatchingLabels{managerPods, notifierPods}
	for round := range killRounds {
		if round > 0 && round%restartsAtOnce == 0 {
			// A new pod's container is started again at once, and not after a pause that becomes longer and longer.
			kill(t, ns, managerPods)
			kill(t, ns, notifierPods)
		}
		for _, labels := range victims {
			waitFor(t, fmt.Sprintf("a ready pod with %v", labels), func(ctx context.Context) error { return onePodReady(ctx, labels) })
		}
		must(t, env.RunPods(t.Context(), ns, pods[round*podsPerRound:(round+1)*podsPerRound]...))
		draws.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		for _, labels := range victims {
			<-time.After(time.Duration(draws.Int64N(int64(longestBreak)))) // the random moment
			killContainer(t, ns, labels)
		}
	}
	must(t, env.Covered(t.Context(), ns, killRounds*podsPerRound, 0))
	all := checkToldAll(t, ns, 2*killRounds*podsPerRound)
	doubled := 0
	must(t, story.Throughout(t.Context(), 12*time.Second, func(ctx context.Context) (err error) {
		doubled, err = doubledMessages(ctx, ns)
		return err
	}))
	t.Logf("%d kills, %d findings told, lost 0, doubled messages %d (seed %d)", len(victims)*killRounds, len(all), doubled, seed)
	if doubled > len(victims)*killRounds {
		t.Errorf("%d messages came twice, more than there were kills", doubled)
	}
	must(t, env.CheckLimits(t.Context(), ns))
}

func onePodReady(ctx context.Context, labels client.MatchingLabels) error {
	_, err := podOf(ctx, labels, corev1.PodReady)
	return err
}

// podOf finds the one pod with labels that has a condition and is to stay.
func podOf(ctx context.Context, labels client.MatchingLabels, condition corev1.PodConditionType) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(story.SystemNamespace), labels); err != nil {
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

// killContainer kills the process of the one pod with labels. On a node of another machine only the pod can be ended, with as
// little time to put things away.
func killContainer(t *testing.T, ns string, labels client.MatchingLabels) {
	t.Helper()
	how := "its process"
	waitFor(t, fmt.Sprintf("a process of %v", labels), func(ctx context.Context) error {
		pod, err := podOf(ctx, labels, corev1.PodScheduled)
		if err != nil {
			return err
		}
		if os.Getenv("SCANNER_REGISTRY") == "" { // only beside the local cluster
			how = "its pod"
			return env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
		}
		pid, err := processOf(pod)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	})
	phases, err := phasesIn(t.Context(), ns)
	must(t, err)
	t.Logf("%s: killed %v (%s); images by phase: %v", time.Now().Format(time.TimeOnly), labels, how, phases)
}

// processOf finds the process of a pod's one container on this machine, by its control group, which has the container's id in its path.
func processOf(pod *corev1.Pod) (pid int, err error) {
	for _, container := range pod.Status.ContainerStatuses {
		_, id, known := strings.Cut(container.ContainerID, "://")
		if container.State.Running == nil || !known {
			continue
		}
		groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
		if err != nil {
			return 0, err
		}
		for _, file := range groups {
			if group, err := os.ReadFile(file); err == nil && strings.Contains(string(group), id) {
				return strconv.Atoi(filepath.Base(filepath.Dir(file)))
			}
		}
	}
	return 0, errors.New("the container does not run")
}

// doubledMessages counts the messages that tell something again.
func doubledMessages(ctx context.Context, ns string) (doubled int, err error) {
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
