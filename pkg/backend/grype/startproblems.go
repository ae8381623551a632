package grype

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Timeouts after which a Job without progress is given up. Its image is retried later; meanwhile other images use its slot. The reason why
// the Job waits is shown long before.
const (
	// firstCheckAge is the age at which a Job's pod is first inspected: most pods have started by then.
	firstCheckAge = 10 * time.Second
	// startTimeout is for problems that do not resolve themselves: an image that is missing, a pod that is rejected.
	startTimeout = time.Minute
	// slowStartTimeout is for delays that resolve themselves: a new node, a volume, a large image.
	slowStartTimeout = 5 * time.Minute
	// endTimeout is how long a pod may keep running after its worker ended, or after its deletion is due.
	endTimeout = 15 * time.Second
)

// jobState is the state of a Job that has not ended.
type jobState struct {
	jobEnd
	// hasFailed means that the Job cannot succeed any more. Otherwise failure, unless nil, is what the Job waits for.
	hasFailed bool
}

// observe returns the state of a Job that has not ended. A catalog Job normally ends by its own deadline. If a tenant removed the deadline
// or keeps the pod from ending, the operator's own record ends the Job.
func (b *Backend) observe(ctx context.Context, record store.Job, job *batchv1.Job) (jobState, error) {
	age := b.jobAge(record)
	if age < firstCheckAge {
		return jobState{}, nil
	}
	now, err := b.observePod(ctx, record, job, age)
	late := record.Purpose == store.JobCatalog && age >= b.Config.Grype.Catalog.Deadline.Duration+slowStartTimeout
	if err == nil && late && !now.hasFailed {
		return jobState{jobEnd: jobEnd{failure: b.deadlineFailure(record)}, hasFailed: true}, nil
	}
	if silent := b.silentFailure(record); err == nil && silent != nil && !now.hasFailed {
		return jobState{jobEnd: jobEnd{failure: silent}, hasFailed: true}, nil
	}
	return now, err
}

// observePod returns the state of a Job according to its pod.
func (b *Backend) observePod(ctx context.Context, record store.Job, job *batchv1.Job, age time.Duration) (jobState, error) {
	pods, err := b.podsOf(ctx, job)
	if err != nil {
		return jobState{}, err
	}
	if len(pods) == 0 {
		failure, err := b.explainNoPod(ctx, record)
		return jobState{jobEnd: jobEnd{failure: failure}, hasFailed: age >= startTimeout}, err
	}
	pod := &pods[0]
	if worker := workerStatus(pod); worker != nil && worker.State.Terminated != nil {
		// The Job ends by itself, unless an injected container keeps the pod running.
		if pod.Status.Phase == corev1.PodRunning && b.Clock.Since(worker.State.Terminated.FinishedAt.Time) >= endTimeout {
			return jobState{jobEnd: b.explainPod(record, pod), hasFailed: true}, nil
		}
		return jobState{}, nil
	}
	switch {
	case !pod.DeletionTimestamp.IsZero():
		// A pod on a lost node stays forever.
		return jobState{jobEnd: jobEnd{failure: cmp.Or(disruptionFailure(record, pod), podDeleted)}, hasFailed: b.Clock.Since(pod.DeletionTimestamp.Time) >= endTimeout}, nil
	case pod.Status.Phase == corev1.PodRunning:
		failure, err := b.nodeLost(ctx, pod)
		return jobState{jobEnd: jobEnd{failure: failure}, hasFailed: failure != nil}, err
	case pod.Status.Phase == corev1.PodPending:
		failure := explainWaiting(pod)
		over := age >= slowStartTimeout || age >= startTimeout && failure.Reason == backend.ReasonWorkerNotPulled
		if failure.Reason == backend.ReasonNotStarted && age < startTimeout {
			failure = nil // creating containers takes some time
		}
		return jobState{jobEnd: jobEnd{failure: failure}, hasFailed: over}, nil
	}
	return jobState{}, nil
}

// explainWaiting returns what a pod that has not started waits for.
func explainWaiting(pod *corev1.Pod) *backend.Failure {
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		waiting := status.State.Waiting
		switch {
		case waiting == nil:
		case status.Name == workerContainer && strings.Contains(waiting.Reason, "Image"):
			return &backend.Failure{Reason: backend.ReasonWorkerNotPulled, Message: fmt.Sprintf("the worker's image cannot be pulled: %s: %s", waiting.Reason, waiting.Message)}
		case waiting.Message != "":
			return &backend.Failure{Reason: backend.ReasonNotStarted, Message: fmt.Sprintf("the worker's pod does not start: %s: %s", waiting.Reason, waiting.Message)}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return &backend.Failure{Reason: backend.ReasonUnschedulable, Message: "no node takes the worker's pod: " + condition.Message}
		}
	}
	return &backend.Failure{Reason: backend.ReasonNotStarted, Message: fmt.Sprintf("the worker's pod does not start (kubectl -n %s describe pod %s)", pod.Namespace, pod.Name)}
}

// nodeLost returns a failure if a pod that seems to run is on a node that is gone or not ready; nil otherwise. Workers have no readiness
// probe, so only the node's loss makes their pods unready.
func (b *Backend) nodeLost(ctx context.Context, pod *corev1.Pod) (*backend.Failure, error) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.PodReady || condition.Status == corev1.ConditionTrue {
			continue
		}
		var node corev1.Node
		err := b.Reader.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && nodeReady(&node) {
			return nil, nil
		}
		return &backend.Failure{Reason: backend.ReasonNodeLost, Message: fmt.Sprintf("the worker's node %s does not report any more", pod.Spec.NodeName)}, nil
	}
	return nil, nil
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// startProblems remembers why Jobs do not start, by Job UID, between two runs of the Job loop.
type startProblems struct{ known sync.Map }

// get returns why a Job does not start; nil if nothing is known.
func (t *startProblems) get(job store.Job) *backend.Failure {
	known, _ := t.known.Load(job.UID)
	problem, _ := known.(*backend.Failure)
	return problem
}

// set replaces what is known about a Job; nil clears it. It reports whether the reason changed. Messages are not compared, because they
// change all the time.
func (t *startProblems) set(job store.Job, problem *backend.Failure) (news bool) {
	if problem == nil {
		_, known := t.known.LoadAndDelete(job.UID)
		return known
	}
	before, known := t.known.Swap(job.UID, problem)
	return !known || before.(*backend.Failure).Reason != problem.Reason
}
