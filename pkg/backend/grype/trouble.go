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

// How long a Job may take to get on before it is given up. Another attempt comes later; meanwhile its place is free for
// others. What it waits for is shown long before.
const (
	// firstLook is how old a Job is when it is first asked what it waits for: most have started by then.
	firstLook = 10 * time.Second
	// startPatience is for what does not get better by itself: an image that is not there, a pod that is rejected.
	startPatience = time.Minute
	// slowPatience is for what does: a new node, a volume, a large image.
	slowPatience = 5 * time.Minute
	// endPatience is how long a pod may live on when its worker has ended, or when it should be gone.
	endPatience = 15 * time.Second
)

// standing is what a Job that has not ended is up to.
type standing struct {
	end
	// over says that nothing more will come of it. Otherwise the failure, if there is one, is what it waits for.
	over bool
}

// observe looks at a Job that has not ended. Its own deadline ends a catalog Job, unless somebody who controls its
// namespace took that away or keeps its pod from ending: then it is over by the operator's own record.
func (b *Backend) observe(ctx context.Context, record store.Job, job *batchv1.Job) (standing, error) {
	age := b.age(record)
	if age < firstLook {
		return standing{}, nil
	}
	now, err := b.observePod(ctx, record, job, age)
	late := record.Purpose == store.JobCatalog && age >= b.Config.Grype.Catalog.Deadline.Duration+slowPatience
	if err == nil && late && !now.over {
		return standing{end: end{failure: b.tooLate(record)}, over: true}, nil
	}
	if silent := b.silent(record); err == nil && silent != nil && !now.over {
		return standing{end: end{failure: silent}, over: true}, nil
	}
	return now, err
}

// observePod looks at the pod of a Job of that age.
func (b *Backend) observePod(ctx context.Context, record store.Job, job *batchv1.Job, age time.Duration) (standing, error) {
	pods, err := b.podsOf(ctx, job)
	if err != nil {
		return standing{}, err
	}
	if len(pods) == 0 {
		failure, err := b.explainNoPod(ctx, record)
		return standing{end: end{failure: failure}, over: age >= startPatience}, err
	}
	pod := &pods[0]
	if worker := workerOf(pod); worker != nil && worker.State.Terminated != nil {
		// The Job ends by itself, unless a container that somebody put beside the worker keeps the pod running.
		if pod.Status.Phase == corev1.PodRunning && b.Clock.Since(worker.State.Terminated.FinishedAt.Time) >= endPatience {
			return standing{end: b.explainPod(record, pod), over: true}, nil
		}
		return standing{}, nil
	}
	switch {
	case !pod.DeletionTimestamp.IsZero():
		// On a node that is lost it stays for ever.
		return standing{end: end{failure: cmp.Or(disrupted(record, pod), podDeleted)}, over: b.Clock.Since(pod.DeletionTimestamp.Time) >= endPatience}, nil
	case pod.Status.Phase == corev1.PodRunning:
		failure, err := b.nodeLost(ctx, pod)
		return standing{end: end{failure: failure}, over: failure != nil}, err
	case pod.Status.Phase == corev1.PodPending:
		failure := explainWaiting(pod)
		over := age >= slowPatience || age >= startPatience && failure.Reason == ReasonWorkerNotPulled
		if failure.Reason == ReasonNotStarted && age < startPatience {
			failure = nil // containers take some time to be created
		}
		return standing{end: end{failure: failure}, over: over}, nil
	}
	return standing{}, nil
}

// explainWaiting says what a pod that has not started waits for.
func explainWaiting(pod *corev1.Pod) *backend.Failure {
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		waiting := status.State.Waiting
		switch {
		case waiting == nil:
		case status.Name == workerContainer && strings.Contains(waiting.Reason, "Image"):
			return &backend.Failure{Reason: ReasonWorkerNotPulled, Message: fmt.Sprintf("the worker's image cannot be pulled: %s: %s", waiting.Reason, waiting.Message)}
		case waiting.Message != "":
			return &backend.Failure{Reason: ReasonNotStarted, Message: fmt.Sprintf("the worker's pod does not start: %s: %s", waiting.Reason, waiting.Message)}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return &backend.Failure{Reason: ReasonUnschedulable, Message: "no node takes the worker's pod: " + condition.Message}
		}
	}
	return &backend.Failure{Reason: ReasonNotStarted, Message: fmt.Sprintf("the worker's pod does not start (kubectl -n %s describe pod %s)", pod.Namespace, pod.Name)}
}

// nodeLost says that a pod that seems to run is on a node that is not there any more; nil if it runs. A worker has no
// readiness probe: only its node can make it unready.
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
		return &backend.Failure{Reason: ReasonNodeLost, Message: fmt.Sprintf("the worker's node %s does not report any more", pod.Spec.NodeName)}, nil
	}
	return nil, nil
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// troubles remembers what Jobs wait for, by UID, between two looks of the Tender.
type troubles struct {
	mu    sync.Mutex
	known map[string]*backend.Failure
}

// of a Job; nil if there is none.
func (t *troubles) of(job store.Job) *backend.Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[job.UID]
}

// note replaces what is known of a Job; nil for nothing. It says whether that is news: texts change all the time.
func (t *troubles) note(job store.Job, trouble *backend.Failure) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.known[job.UID]
	if trouble == nil {
		delete(t.known, job.UID)
		return before != nil
	}
	if t.known == nil {
		t.known = map[string]*backend.Failure{}
	}
	t.known[job.UID] = trouble
	return before == nil || before.Reason != trouble.Reason
}
