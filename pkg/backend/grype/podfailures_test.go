package grype

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

func waiting(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: workerContainer, State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
		}}}
	}
}

// withSidecar adds an injected container to the pod.
func withSidecar(state corev1.ContainerState) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		sidecar := corev1.ContainerStatus{Name: "proxy", State: state}
		pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{sidecar}, pod.Status.ContainerStatuses...)
	}
}

// withMemoryLimit sets the memory limit of the pod's worker.
func withMemoryLimit(memory string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers = []corev1.Container{{Name: workerContainer, Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
		}}}
	}
}

// disruption adds the condition that the scheduler, the taint manager or an eviction sets on a pod.
func disruption(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
	}
}

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: noon} }

// TestExplainPod: each end of a worker's pod gives a failure that tells a user what to do.
func TestExplainPod(t *testing.T) {
	all := func(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			for _, change := range changes {
				change(pod)
			}
		}
	}
	killed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	const moreThan2Gi = "OutOfMemory: the worker needed more memory than 2Gi: add a larger limit to grype.catalog.memoryLadder in the operator's configuration"
	for name, tt := range map[string]struct {
		pod    func(*corev1.Pod)
		want   string
		killed bool
	}{
		"it says nothing yet": {func(*corev1.Pod) {}, "", false},
		"it ended well":       {terminated(0, "Completed", ""), "", false},
		"it is being started": {waiting("ContainerCreating", ""), "", false},
		"evicted by its node": {func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: ephemeral-storage."
		}, "Evicted: the worker's pod was evicted: Evicted: The node was low on resource: ephemeral-storage.", false},
		"evicted for its scratch space": {func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", `Usage of EmptyDir volume "tmp" exceeds the limit "10Gi". `
		}, `Evicted: the worker's pod was evicted: Evicted: Usage of EmptyDir volume "tmp" exceeds the limit "10Gi". Raise grype.catalog.scratchSize in the operator's configuration`, false},
		"evicted for a more important pod": {all(disruption("PreemptionByScheduler", "preempted"), terminated(1, "Error", `{"reason":"CatalogFailed","message":"context canceled"}`)),
			"Evicted: the worker's pod was evicted: PreemptionByScheduler: preempted", false},
		"deleted by somebody":                           {all(deleted, terminated(1, "Error", `{"reason":"CatalogFailed","message":"context canceled"}`)), podDeleted.Error(), false},
		"killed because it was deleted and did not end": {all(deleted, terminated(137, "Error", "")), podDeleted.Error(), false},
		"killed for its memory":                         {all(withMemoryLimit("2Gi"), terminated(137, "OOMKilled", `{"reason":"CatalogFailed","message":"x"}`)), moreThan2Gi, true},
		"a child was killed for its memory":             {all(withMemoryLimit("2Gi"), terminated(1, "OOMKilled", "")), moreThan2Gi, true},
		"killed, and the runtime missed why":            {all(withMemoryLimit("2Gi"), terminated(137, "Error", "pulling layer 3")), moreThan2Gi, true},
		"killed without a limit": {terminated(137, "OOMKilled", ""), "OutOfMemory: the worker was killed because its node had no memory left: " +
			"set a memory request and limit in grype.catalog.resources in the operator's configuration", true},
		"a container beside it was killed":  {all(terminated(0, "Completed", ""), withSidecar(killed)), "", false},
		"in the worker's own words":         {terminated(1, "Error", `{"reason":"PlatformMismatch","message":"no linux/arm64"}`), "PlatformMismatch: no linux/arm64", false},
		"the ingest API refused the upload": {terminated(1, "Error", `{"reason":"UploadRefused","message":"413"}`), "UploadRefused: 413", false},
		"a log instead of words":            {terminated(2, "Error", "line 1\nline 2\npanic: no\n"), "WorkerCrashed: the worker ended with exit code 2: panic: no", false},
		"JSON, but no failure":              {terminated(1, "Error", `{"level":"info"}`), `WorkerCrashed: the worker ended with exit code 1: {"level":"info"}`, false},
		"no words at all":                   {terminated(139, "Error", ""), "WorkerCrashed: the worker ended with exit code 139: ", false},
	} {
		t.Run(name, func(t *testing.T) {
			var pod corev1.Pod
			tt.pod(&pod)
			e := newEngine(t).explainPod(store.Job{Purpose: store.JobCatalog, Namespace: operatorNamespace}, &pod)
			got := ""
			if e.failure != nil {
				got = e.failure.Error()
			}
			if got != tt.want || e.killed != tt.killed {
				t.Errorf("it says %q (killed for its memory: %v), want %q", got, e.killed, tt.want)
			}
		})
	}
}

// TestExplainWaiting: each state of a waiting pod gives the reason.
func TestExplainWaiting(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  func(*corev1.Pod)
		want string
	}{
		"its own image is bad":         {waiting("ImagePullBackOff", "no such host"), "WorkerImageNotPulled: the worker's image cannot be pulled: ImagePullBackOff: no such host"},
		"its own image is wrong":       {waiting("ErrImagePull", "404"), "WorkerImageNotPulled: the worker's image cannot be pulled: ErrImagePull: 404"},
		"its image has no name":        {waiting("InvalidImageName", "x"), "WorkerImageNotPulled: the worker's image cannot be pulled: InvalidImageName: x"},
		"an injected image is bad":     {withSidecar(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "404"}}), "NotStarted: the worker's pod does not start: ErrImagePull: 404"},
		"a key of a Secret is missing": {waiting("CreateContainerConfigError", "no key"), "NotStarted: the worker's pod does not start: CreateContainerConfigError: no key"},
		"no node has room":             {unschedulable, "Unschedulable: no node takes the worker's pod: 0/1 nodes are available: 1 Insufficient memory."},
		"nobody knows":                 {waiting("ContainerCreating", ""), "NotStarted: the worker's pod does not start (kubectl -n shop describe pod scan-1)"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "scan-1"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
			tt.pod(&pod)
			if got := explainWaiting(&pod).Error(); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
		})
	}
}

func unschedulable(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient memory."})
}

// TestSetting: the named setting is the one that applies to the Job.
func TestSetting(t *testing.T) {
	for want, record := range map[string]store.Job{
		"grype.match.x in the operator's configuration":                                                {Purpose: store.JobMatch, Namespace: operatorNamespace},
		"grype.catalog.x in the operator's configuration":                                              {Purpose: store.JobCatalog, Namespace: operatorNamespace},
		"spec.backend.grype.job.x of the Scanner (or grype.catalog.x in the operator's configuration)": {Purpose: store.JobCatalog, Namespace: "shop", Scope: "shop"},
	} {
		if got := newEngine(t).settingName(record, "x"); got != want {
			t.Errorf("%+v: %q, want %q", record, got, want)
		}
	}
}

// TestRetryAfterIsBounded: values such as 0 or a year are bounded, whatever a registry sends.
func TestRetryAfterIsBounded(t *testing.T) {
	for seconds, want := range map[string]time.Duration{
		"0": 0, "-5": 0, "1": minRetryAfter, "10": minRetryAfter, "60": time.Minute, "31536000": maxRetryAfter, "9000000000000": maxRetryAfter,
	} {
		failure := parseFailure(`{"reason":"RegistryThrottled","retryAfterSeconds":` + seconds + `}`)
		if failure == nil || failure.RetryAfter != want {
			t.Errorf("%s seconds become %+v, want %s", seconds, failure, want)
		}
	}
}

// TestExplainOnlyOwnPods: a pod with the Job's label that the Job does not control is ignored.
func TestExplainOnlyOwnPods(t *testing.T) {
	e := newEngine(t)
	e.index(public("web"))
	job := e.job("catalog")
	forged := job.DeepCopy()
	forged.UID = "another"
	e.pod(forged, terminated(1, "Error", `{"reason":"ImageNotFound","message":"forged"}`))
	got, err := e.failureOf(t.Context(), store.Job{Purpose: store.JobCatalog}, job, &batchv1.JobCondition{Type: batchv1.JobFailed, Reason: batchv1.JobReasonDeadlineExceeded})
	e.must(err)
	if got.failure.Reason != backend.ReasonDeadline || !strings.Contains(got.failure.Message, "15m0s (grype.catalog.deadline") {
		t.Errorf("failure %+v, want the deadline and where it is set", got.failure)
	}
	if ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0) != 15*60 {
		t.Errorf("the deadline is %d seconds, want 900", *job.Spec.ActiveDeadlineSeconds)
	}
}

// FuzzParseFailure: parseFailure handles any termination message, since a worker in a tenant's namespace may write anything.
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
		if failure.RetryAfter != 0 && (failure.RetryAfter < minRetryAfter || failure.RetryAfter > maxRetryAfter) {
			t.Errorf("it is tried again after %s", failure.RetryAfter)
		}
	})
}
