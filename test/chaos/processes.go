package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// program is a program in pods of the operator's namespace.
type program struct {
	name   string
	labels client.MatchingLabels
	// delivery is true if it takes part in deliveries.
	delivery bool
}

func component(name string) client.MatchingLabels {
	return client.MatchingLabels{"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/component": name}
}

// Programs that are killed. Those of deliveries run all the time, and their ends are counted.
var (
	manager     = program{ledger.Manager, component("manager"), true}
	notifier    = program{ledger.Notifier, component("notifier"), true}
	matchWorker = program{"match worker", component("match"), false}
	catalogJob  = program{"catalog Job", component("catalog"), false}
	postgreSQL  = program{"PostgreSQL", client.MatchingLabels{"app.kubernetes.io/name": "scanner-operator-postgresql"}, true}
)

// workerTimeout bounds the wait for a worker that can be killed. Workers run only while there is work.
const workerTimeout = 10 * time.Second

// pods returns the program's pods.
func (p program) pods(ctx context.Context, api client.Client) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var pods corev1.PodList
	err := api.List(ctx, &pods, client.InNamespace(scenario.SystemNamespace), p.labels)
	return pods.Items, err
}

// apiTimeout bounds a request to the API server, which may be away.
const apiTimeout = 10 * time.Second

// kill kills one process of the program. It waits for a moment until there is one.
func (w *watcher) kill(ctx context.Context, p program) error {
	return wait.Eventually(ctx, workerTimeout, wait.Normally, func(ctx context.Context) error {
		for _, pod := range w.podsOf(ctx, p) {
			if pid, err := process.OfPod(&pod); err == nil {
				return syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return errAbsent
	})
}

// killFaults returns a fault for each program.
func (w *watcher) killFaults(programs ...program) (faults []fault) {
	for _, p := range programs {
		faults = append(faults, fault{
			name: "kill of " + p.name, process: p.name, delivery: p.delivery, begin: func(ctx context.Context) error { return w.kill(ctx, p) },
		})
	}
	return faults
}

// clusterFaults returns a fault for each program of the local cluster: it is killed, and started again after a while.
func clusterFaults(root string, programs map[string]string) (faults []fault) {
	script := func(command, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			text, err := exec.CommandContext(ctx, filepath.Join(root, "hack", "cluster", "cluster.sh"), command, name).CombinedOutput()
			if err != nil {
				return fmt.Errorf("cluster.sh %s %s: %w\n%s", command, name, err, text)
			}
			return nil
		}
	}
	for _, name := range clusterPrograms {
		faults = append(faults, fault{
			name: "kill of " + name, lasts: true, delivery: programs[name] != "", begin: script("kill", name), end: script("start", name),
		})
	}
	return faults
}

// clusterPrograms are the programs of the local cluster that are killed.
var clusterPrograms = []string{"containerd", "kube-apiserver", "registry"}

// inDelivery are those of them that take part in deliveries.
var inDelivery = map[string]string{"containerd": "kubectl exec", "kube-apiserver": "leases, tokens and Secrets"}

// watcher observes the pods of programs that run all the time.
type watcher struct {
	api      client.Client
	programs []program
	journal  *journal
	// seen are the ends of containers that are recorded already, by container ID.
	seen map[string]bool

	mu sync.Mutex
	// known are the pods of each program that the API server has returned last.
	known map[string][]corev1.Pod
}

func newWatcher(api client.Client, j *journal, programs ...program) *watcher {
	return &watcher{api: api, programs: programs, journal: j, seen: map[string]bool{}, known: map[string][]corev1.Pod{}}
}

// podsOf returns the pods of a program; those that are known while the API server is away.
func (w *watcher) podsOf(ctx context.Context, p program) []corev1.Pod {
	pods, err := p.pods(ctx, w.api)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.known[p.name] = pods
	}
	return w.known[p.name]
}

// observe records the containers that ended without a kill. It deletes the pod of a container whose restart the kubelet delays: after a few
// restarts, the delay would be minutes
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
func (w *watcher) observe(ctx context.Context) error {
	for _, p := range w.programs {
		pods, err := p.pods(ctx, w.api)
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.known[p.name] = pods
		w.mu.Unlock()
		for i := range pods {
			if err := w.observePod(ctx, p, &pods[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *watcher) observePod(ctx context.Context, p program, pod *corev1.Pod) error {
	for _, status := range pod.Status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			if ended := state.Terminated; ended != nil && !w.seen[ended.ContainerID] {
				w.seen[ended.ContainerID] = true
				w.recordEnd(p, ended)
			}
		}
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason == "CrashLoopBackOff" {
			w.journal.log("watcher", p.name, "its pod is replaced, since the kubelet delays its restart")
			if err := w.api.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

// sigkilled is the exit code of a process that SIGKILL ended.
const sigkilled = 128 + int32(syscall.SIGKILL)

// recordEnd records the end of a process, unless it was killed here. The kubelet's times are whole seconds.
func (w *watcher) recordEnd(p program, ended *corev1.ContainerStateTerminated) {
	if ended.ExitCode == sigkilled && ended.Reason != "OOMKilled" {
		return
	}
	w.journal.log("watcher", p.name, fmt.Sprintf("ended by itself at %s: exit code %d, %s",
		ended.FinishedAt.Format(time.TimeOnly), ended.ExitCode, lastLine(ended.Message)))
	w.journal.add(ledger.Fault{What: p.name, From: ended.FinishedAt.Add(-time.Second), To: ended.FinishedAt.Add(time.Second), ByItself: true})
}
