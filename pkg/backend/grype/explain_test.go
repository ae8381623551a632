package grype

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
)

func waiting(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "worker", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
		}}}
	}
}

// TestExplainPod: what a worker's pod says about its end, in words that tell a user what to do.
func TestExplainPod(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  func(*corev1.Pod)
		want *backend.Failure
	}{
		"it says nothing yet":    {func(*corev1.Pod) {}, nil},
		"it ended well":          {terminated(0, "Completed", ""), nil},
		"it is being started":    {waiting("ContainerCreating", ""), nil},
		"its own image is bad":   {waiting("ImagePullBackOff", "no such host"), &backend.Failure{Reason: ReasonWorkerNotPulled, Message: "the worker's image cannot be pulled: ImagePullBackOff: no such host"}},
		"its own image is wrong": {waiting("ErrImagePull", "404"), &backend.Failure{Reason: ReasonWorkerNotPulled, Message: "the worker's image cannot be pulled: ErrImagePull: 404"}},
		"its image has no name":  {waiting("InvalidImageName", "x"), &backend.Failure{Reason: ReasonWorkerNotPulled, Message: "the worker's image cannot be pulled: InvalidImageName: x"}},
		"evicted": {func(pod *corev1.Pod) {
			pod.Status.Reason, pod.Status.Message = "Evicted", "The node was low on resource: ephemeral-storage."
		}, &backend.Failure{Reason: ReasonEvicted, Message: "the worker's pod was evicted: The node was low on resource: ephemeral-storage."}},
		"killed for its memory": {terminated(137, "OOMKilled", `{"reason":"CatalogFailed","message":"x"}`), &backend.Failure{
			Reason:  ReasonOutOfMemory,
			Message: "the worker needed more memory than it may have (grype.catalog.resources in the operator's configuration, or spec.backend.grype.job.resources)",
		}},
		"in the worker's own words": {terminated(1, "Error", `{"reason":"PlatformMismatch","message":"no linux/arm64"}`),
			&backend.Failure{Reason: "PlatformMismatch", Message: "no linux/arm64"}},
		"a registry that wants some rest": {terminated(1, "Error", `{"reason":"RegistryThrottled","message":"429","retryAfterSeconds":90}`),
			&backend.Failure{Reason: "RegistryThrottled", Message: "429", RetryAfter: 90 * time.Second}},
		"a log instead of words": {terminated(2, "Error", "line 1\nline 2\npanic: no\n"),
			&backend.Failure{Reason: ReasonWorkerCrashed, Message: "the worker ended with exit code 2: panic: no"}},
		"JSON, but no failure": {terminated(1, "Error", `{"level":"info"}`),
			&backend.Failure{Reason: ReasonWorkerCrashed, Message: `the worker ended with exit code 1: {"level":"info"}`}},
		"no words at all": {terminated(139, "Error", ""), &backend.Failure{Reason: ReasonWorkerCrashed, Message: "the worker ended with exit code 139: "}},
	} {
		t.Run(name, func(t *testing.T) {
			var pod corev1.Pod
			tt.pod(&pod)
			if diff := cmp.Diff(tt.want, explainPod(&pod)); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRetryAfterIsBounded: neither no time nor a year is believed, whatever a registry says.
func TestRetryAfterIsBounded(t *testing.T) {
	for seconds, want := range map[string]time.Duration{
		"0": 0, "-5": 0, "1": leastRetryAfter, "10": leastRetryAfter, "60": time.Minute, "31536000": mostRetryAfter, "9000000000000": mostRetryAfter,
	} {
		failure := parseFailure(`{"reason":"RegistryThrottled","retryAfterSeconds":` + seconds + `}`)
		if failure == nil || failure.RetryAfter != want {
			t.Errorf("%s seconds become %+v, want %s", seconds, failure, want)
		}
	}
}

// TestExplainOnlyOwnPods: a pod that carries the Job's label and belongs to somebody else says nothing about it.
func TestExplainOnlyOwnPods(t *testing.T) {
	e := newEngine(t)
	e.index(public("web"))
	job := e.job("catalog")
	forged := job.DeepCopy()
	forged.UID = "another"
	e.pod(forged, terminated(1, "Error", `{"reason":"ImageNotFound","message":"forged"}`))
	failure, err := e.explain(t.Context(), job, &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonDeadlineExceeded})
	e.must(err)
	if failure.Reason != ReasonDeadline || !strings.Contains(failure.Message, "15m0s (grype.catalog.deadline") {
		t.Errorf("failure %+v, want the deadline and where it is set", failure)
	}
	if ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0) != 15*60 {
		t.Errorf("the deadline is %d seconds, want 900", *job.Spec.ActiveDeadlineSeconds)
	}
}

// FuzzParseFailure: a worker in a tenant's namespace may write what it likes.
func FuzzParseFailure(f *testing.F) {
	f.Add(`{"reason":"ImageNotFound","message":"x","retryAfterSeconds":5}`)
	f.Add(`{"reason":""}`)
	f.Add("panic")
	f.Fuzz(func(t *testing.T, message string) {
		failure := parseFailure(message)
		if failure == nil {
			return
		}
		if failure.Reason == "" {
			t.Error("a failure without a reason")
		}
		if failure.RetryAfter != 0 && (failure.RetryAfter < leastRetryAfter || failure.RetryAfter > mostRetryAfter) {
			t.Errorf("it is tried again after %s", failure.RetryAfter)
		}
	})
}
