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
	"github.com/scanner-operator/scanner-operator/pkg/store"
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
		"it says nothing yet": {func(*corev1.Pod) {}, nil},
		"it ended well":       {terminated(0, "Completed", ""), nil},
		"it is being started": {waiting("ContainerCreating", ""), nil},
		"evicted": {func(pod *corev1.Pod) {
			pod.Status.Reason, pod.Status.Message = "Evicted", "The node was low on resource: ephemeral-storage."
		}, &backend.Failure{Reason: ReasonEvicted, Message: "the worker's pod was evicted: The node was low on resource: ephemeral-storage."}},
		"killed for its memory": {terminated(137, "OOMKilled", `{"reason":"CatalogFailed","message":"x"}`), &backend.Failure{
			Reason:  ReasonOutOfMemory,
			Message: "the worker needed more memory than it may have: raise grype.catalog.resources in the operator's configuration",
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
			if diff := cmp.Diff(tt.want, explainPod(store.Job{Purpose: store.JobCatalog}, &pod)); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExplainWaiting: why a worker's pod does not start.
func TestExplainWaiting(t *testing.T) {
	unschedulable := func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient memory."}}
	}
	for name, tt := range map[string]struct {
		phase corev1.PodPhase
		pod   func(*corev1.Pod)
		want  string
	}{
		"it runs":                {corev1.PodRunning, waiting("ImagePullBackOff", "of a sidecar"), ""},
		"its own image is bad":   {corev1.PodPending, waiting("ImagePullBackOff", "no such host"), "WorkerImageNotPulled: the worker's image cannot be pulled: ImagePullBackOff: no such host"},
		"its own image is wrong": {corev1.PodPending, waiting("ErrImagePull", "404"), "WorkerImageNotPulled: the worker's image cannot be pulled: ErrImagePull: 404"},
		"its image has no name":  {corev1.PodPending, waiting("InvalidImageName", "x"), "WorkerImageNotPulled: the worker's image cannot be pulled: InvalidImageName: x"},
		"a volume is missing":    {corev1.PodPending, waiting("ContainerCreating", ""), "NotStarted: the worker's pod does not start: ContainerCreating: "},
		"no node has room":       {corev1.PodPending, unschedulable, "Unschedulable: no node takes the worker's pod: 0/1 nodes are available: 1 Insufficient memory."},
		"nobody knows":           {corev1.PodPending, func(*corev1.Pod) {}, "NotStarted: the worker's pod does not start"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{Status: corev1.PodStatus{Phase: tt.phase}}
			tt.pod(&pod)
			got := ""
			if failure := explainWaiting(&pod); failure != nil {
				got = failure.Error()
			}
			if got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

// TestMemoryAdvice: the setting that is named is the one that helps.
func TestMemoryAdvice(t *testing.T) {
	for want, record := range map[string]store.Job{
		"grype.match.resources in the operator's configuration":   {Purpose: store.JobMatch},
		"grype.catalog.resources in the operator's configuration": {Purpose: store.JobCatalog},
		"spec.backend.grype.job.resources of the Scanner":         {Purpose: store.JobCatalog, Scope: "shop"},
	} {
		if got := memoryAdvice(record); got != want {
			t.Errorf("%+v: %q, want %q", record, got, want)
		}
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
	failure, err := e.explain(t.Context(), store.Job{Purpose: store.JobCatalog}, job, &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonDeadlineExceeded})
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
