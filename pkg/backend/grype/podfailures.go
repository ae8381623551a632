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

// killedBySignal is the exit code of a process that SIGKILL ended.
const killedBySignal = 137

// Bounds of a registry's Retry-After, against values such as 0 or a year.
const (
	minRetryAfter = 10 * time.Second
	maxRetryAfter = 6 * time.Hour
)

// scratchFull begins the kubelet's message about a pod that exceeded the size limit of its scratch volume (k8s.io/kubernetes,
// pkg/kubelet/eviction/helpers.go: emptyDirMessageFmt).
const scratchFull = `Usage of EmptyDir volume "` + scratchVolume + `"`

var podDeleted = &backend.Failure{Reason: backend.ReasonPodDeleted, Message: "the Job's pod was deleted before it ended, by somebody or with its node"}

// jobEnd is how a Job ended.
type jobEnd struct {
	// failure is why the Job delivered no result; nil if it did not fail.
	failure *backend.Failure
	// killed means that the worker was OOM-killed. limit is the memory limit of its pod in bytes; 0 if there was none.
	killed bool
	limit  int64
}

// failureOf returns why a Job failed, preferably as its worker reported it.
func (b *Backend) failureOf(ctx context.Context, record store.Job, job *batchv1.Job, condition *batchv1.JobCondition) (jobEnd, error) {
	if condition.Reason == batchv1.JobReasonDeadlineExceeded { // the worker would report only that it was stopped
		return jobEnd{failure: b.deadlineFailure(record)}, nil
	}
	pods, err := b.podsOf(ctx, job)
	if err != nil {
		return jobEnd{}, err
	}
	for i := range pods {
		if e := b.explainPod(record, &pods[i]); e.failure != nil {
			return e, nil //nolint:nilerr // it is what was asked for
		}
	}
	switch seen := b.startProblems.get(record); {
	case seen != nil:
		return jobEnd{failure: seen}, nil //nolint:nilerr // it is what was asked for
	case len(pods) == 0:
		return jobEnd{failure: podDeleted}, nil
	}
	return jobEnd{failure: &backend.Failure{Reason: backend.ReasonWorkerCrashed, Message: "the Job failed: " + cmp.Or(condition.Message, condition.Reason)}}, nil
}

// deadlineFailure returns the failure of a catalog Job that exceeded its deadline, with the reason why it waited.
func (b *Backend) deadlineFailure(record store.Job) *backend.Failure {
	message := fmt.Sprintf("the catalog Job did not end within %s (grype.catalog.deadline in the operator's configuration)", b.Config.Grype.Catalog.Deadline.Duration)
	if seen := b.startProblems.get(record); seen != nil {
		message += ": " + seen.Message
	}
	return &backend.Failure{Reason: backend.ReasonDeadline, Message: message}
}

// podsOf returns the pods that a Job controls.
func (b *Backend) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := b.Reader.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) }), err
}

// workerStatus returns the status of the worker's own container; nil if there is none. Other containers of the pod were injected and say
// nothing about the worker.
func workerStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == workerContainer {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// explainPod returns how a worker's pod ended. Without a failure, the pod succeeded or has not ended.
func (b *Backend) explainPod(record store.Job, pod *corev1.Pod) jobEnd {
	if failure := disruptionFailure(record, pod); failure != nil {
		return jobEnd{failure: failure}
	}
	worker := workerStatus(pod)
	if worker == nil || worker.State.Terminated == nil {
		return jobEnd{}
	}
	ended := worker.State.Terminated
	reported := parseFailure(ended.Message)
	switch {
	// The kernel may kill a child of the container's first process, and the runtime may miss that it was an OOM kill. Then only the signal
	// is left, which nobody else sends to a pod that is not being deleted.
	case ended.Reason == "OOMKilled", ended.ExitCode == killedBySignal && reported == nil && pod.DeletionTimestamp.IsZero():
		limit := memoryLimit(pod)
		return jobEnd{failure: b.outOfMemoryFailure(record, limit), killed: true, limit: limit}
	case ended.ExitCode == 0:
		return jobEnd{}
	case !pod.DeletionTimestamp.IsZero(): // the worker would report only that it was stopped
		return jobEnd{failure: podDeleted}
	case reported != nil:
		return jobEnd{failure: reported}
	}
	message := fmt.Sprintf("the worker ended with exit code %d: %s", ended.ExitCode, lastLine(ended.Message))
	return jobEnd{failure: &backend.Failure{Reason: backend.ReasonWorkerCrashed, Message: message}}
}

// memoryLimit returns the worker's memory limit in bytes, as webhooks and the namespace's LimitRange left it; 0 for none.
func memoryLimit(pod *corev1.Pod) int64 {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == workerContainer {
			return pod.Spec.Containers[i].Resources.Limits.Memory().Value()
		}
	}
	return 0
}

// disruptionFailure returns the failure of a pod that its node, the scheduler or an eviction ended; nil for any other pod.
func disruptionFailure(record store.Job, pod *corev1.Pod) *backend.Failure {
	const message = "the worker's pod was evicted: "
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" {
		text := message + pod.Status.Reason + ": " + pod.Status.Message
		if record.Purpose == store.JobCatalog && strings.Contains(pod.Status.Message, scratchFull) {
			text = strings.TrimSpace(text) + " Raise grype.catalog.scratchSize in the operator's configuration"
		}
		return &backend.Failure{Reason: backend.ReasonEvicted, Message: text}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			return &backend.Failure{Reason: backend.ReasonEvicted, Message: message + condition.Reason + ": " + condition.Message}
		}
	}
	return nil
}

// parseFailure reads the failure in a worker's termination message; nil if the message is something else.
func parseFailure(message string) *backend.Failure {
	var reported workerapi.Failure
	if err := json.Unmarshal([]byte(message), &reported); err != nil || reported.Reason == "" {
		return nil //nolint:nilerr // then it is plain text
	}
	failure := &backend.Failure{Reason: reported.Reason, Message: reported.Message, Registry: reported.Registry}
	if reported.RetryAfterSeconds > 0 {
		// The seconds are bounded before the conversion, since a Duration cannot hold every number of seconds.
		seconds := min(reported.RetryAfterSeconds, int(maxRetryAfter/time.Second))
		failure.RetryAfter = max(time.Duration(seconds)*time.Second, minRetryAfter)
	}
	return failure
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
