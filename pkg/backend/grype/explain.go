package grype

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Bounds of what a registry may ask for, so that neither 0 nor a year is believed.
const (
	leastRetryAfter = 10 * time.Second
	mostRetryAfter  = 6 * time.Hour
)

// explain says why a Job failed, best from its worker's own words.
func (b *Backend) explain(ctx context.Context, job *batchv1.Job, condition *batchv1.JobCondition) (*backend.Failure, error) {
	var pods corev1.PodList
	err := b.Reader.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if !metav1.IsControlledBy(&pods.Items[i], job) {
			continue
		}
		if failure := explainPod(&pods.Items[i]); failure != nil {
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

// explainPod reads how a worker's pod ended; nil if it says nothing.
func explainPod(pod *corev1.Pod) *backend.Failure {
	if pod.Status.Reason == "Evicted" {
		return &backend.Failure{Reason: ReasonEvicted, Message: "the worker's pod was evicted: " + pod.Status.Message}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && strings.Contains(waiting.Reason, "Image") {
			return &backend.Failure{Reason: ReasonWorkerNotPulled, Message: fmt.Sprintf("the worker's image cannot be pulled: %s: %s", waiting.Reason, waiting.Message)}
		}
		ended := status.State.Terminated
		if ended == nil || ended.ExitCode == 0 {
			continue
		}
		if ended.Reason == "OOMKilled" {
			return &backend.Failure{Reason: ReasonOutOfMemory, Message: "the worker needed more memory than it may have (grype.catalog.resources in the operator's configuration, or spec.backend.grype.job.resources)"}
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
	failure := &backend.Failure{Reason: reported.Reason, Message: reported.Message}
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
