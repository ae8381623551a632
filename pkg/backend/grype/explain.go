package grype

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Bounds of what a registry may ask for, so that neither 0 nor a year is believed.
const (
	leastRetryAfter = 10 * time.Second
	mostRetryAfter  = 6 * time.Hour
)

// How long a Job's pod may take to start before its Job is given up. Another attempt comes later; meanwhile its
// place is free for others.
const (
	// startPatience is for what does not get better by itself: an image that is not there, a pod that is rejected.
	startPatience = time.Minute
	// slowPatience is for what does: a new node, a volume, a large image.
	slowPatience = 5 * time.Minute
)

// explain says why a Job failed, best from its worker's own words.
func (b *Backend) explain(ctx context.Context, record store.Job, job *batchv1.Job, condition *batchv1.JobCondition) (*backend.Failure, error) {
	pods, err := b.podsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if failure := explainPod(record, &pods[i]); failure != nil {
			return failure, nil
		}
	}
	if condition.Reason == batchv1.JobReasonDeadlineExceeded {
		return &backend.Failure{
			Reason:  ReasonDeadline,
			Message: fmt.Sprintf("the catalog Job did not end within %s (grype.catalog.deadline in the operator's configuration)", b.Config.Grype.Catalog.Deadline.Duration),
		}, nil
	}
	return &backend.Failure{Reason: ReasonWorkerCrashed, Message: "the Job failed: " + cmp.Or(condition.Message, condition.Reason)}, nil
}

// stuck says why a Job's pod does not start; nil if it has started, or still has time to.
func (b *Backend) stuck(ctx context.Context, record store.Job, job *batchv1.Job) (*backend.Failure, error) {
	age := b.Clock.Since(record.CreatedAt)
	if age < startPatience {
		return nil, nil
	}
	pods, err := b.podsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return &backend.Failure{
			Reason: ReasonNoPod,
			Message: fmt.Sprintf("no pod was made for the Job within %s: a quota, a policy or the pod security level of namespace %s rejects it "+
				"(kubectl -n %s get events)", startPatience, job.Namespace, job.Namespace),
		}, nil
	}
	failure := explainWaiting(&pods[0])
	if failure != nil && failure.Reason != ReasonWorkerNotPulled && age < slowPatience {
		return nil, nil
	}
	return failure, nil
}

// podsOf lists the pods that a Job controls.
func (b *Backend) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := b.Reader.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) }), err
}

// explainWaiting says what a pod that has not started waits for; nil if it has started.
func explainWaiting(pod *corev1.Pod) *backend.Failure {
	if pod.Status.Phase != corev1.PodPending {
		return nil
	}
	for _, status := range pod.Status.ContainerStatuses {
		waiting := status.State.Waiting
		switch {
		case waiting == nil:
		case strings.Contains(waiting.Reason, "Image"):
			return &backend.Failure{Reason: ReasonWorkerNotPulled, Message: fmt.Sprintf("the worker's image cannot be pulled: %s: %s", waiting.Reason, waiting.Message)}
		default:
			return &backend.Failure{Reason: ReasonNotStarted, Message: fmt.Sprintf("the worker's pod does not start: %s: %s", waiting.Reason, waiting.Message)}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return &backend.Failure{Reason: ReasonUnschedulable, Message: "no node takes the worker's pod: " + condition.Message}
		}
	}
	return &backend.Failure{Reason: ReasonNotStarted, Message: "the worker's pod does not start"}
}

// memoryAdvice names the setting that gives a worker more memory.
func memoryAdvice(record store.Job) string {
	switch {
	case record.Purpose == store.JobMatch:
		return "grype.match.resources in the operator's configuration"
	case record.Scope == store.Cluster:
		return "grype.catalog.resources in the operator's configuration"
	}
	return "spec.backend.grype.job.resources of the Scanner"
}

// explainPod reads how a worker's pod ended; nil if it says nothing.
func explainPod(record store.Job, pod *corev1.Pod) *backend.Failure {
	if pod.Status.Reason == "Evicted" {
		return &backend.Failure{Reason: ReasonEvicted, Message: "the worker's pod was evicted: " + pod.Status.Message}
	}
	for _, status := range pod.Status.ContainerStatuses {
		ended := status.State.Terminated
		if ended == nil || ended.ExitCode == 0 {
			continue
		}
		if ended.Reason == "OOMKilled" {
			return &backend.Failure{Reason: ReasonOutOfMemory, Message: "the worker needed more memory than it may have: raise " + memoryAdvice(record)}
		}
		if failure := parseFailure(ended.Message); failure != nil {
			return failure
		}
		return &backend.Failure{Reason: ReasonWorkerCrashed, Message: fmt.Sprintf("the worker ended with exit code %d: %s", ended.ExitCode, lastLine(ended.Message))}
	}
	return nil
}

// parseFailure reads what a worker left in its termination message; nil if that is something else.
func parseFailure(message string) *backend.Failure {
	var reported workerapi.Failure
	if err := json.Unmarshal([]byte(message), &reported); err != nil || reported.Reason == "" {
		return nil //nolint:nilerr // then it is plain text
	}
	failure := &backend.Failure{Reason: reported.Reason, Message: reported.Message, Registry: reported.Registry}
	if reported.RetryAfterSeconds > 0 {
		// Bounded before it is a Duration, in which not every number of seconds has a place.
		seconds := min(reported.RetryAfterSeconds, int(mostRetryAfter/time.Second))
		failure.RetryAfter = max(time.Duration(seconds)*time.Second, leastRetryAfter)
	}
	return failure
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
