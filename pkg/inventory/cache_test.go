package inventory

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	. "github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// anyPod generates pods with fields that the operator reads and many that it does not.
func anyPod() *rapid.Generator[*corev1.Pod] {
	return rapid.Custom(func(t *rapid.T) *corev1.Pod {
		draw := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
		pod := Pod(Namespace, draw("name", "a", "b"))
		pod.UID, pod.ResourceVersion = "uid", "7"
		pod.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 500)}
		if rapid.Bool().Draw(t, "annotated") {
			pod.Annotations["all"+podmark.AnnotationSuffix] = "{}"
		}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		pod.Finalizers = []string{"example.com/x"}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data"}}
		for i := range rapid.IntRange(0, 4).Draw(t, "containers") {
			name := string(rune('a' + i))
			reference := draw("image", Web, Vulnerable, "nginx", "Not A Name", "ghcr.io/a/b@"+Digest("pinned"))
			add := []func(string, string) func(*corev1.Pod){Creating, loadedIf, runningIf, notPulled, initialisedIf, debuggedIf}
			add[rapid.IntRange(0, len(add)-1).Draw(t, "kind")](name, reference)(pod)
		}
		for key, values := range map[string][]string{"tier": {"front", "back"}, "scanner-operator.io/ignore": {"true", "false"}, "pod-template-hash": {"5d4f8", "x"}} {
			if rapid.Bool().Draw(t, "labelled "+key) {
				Labelled(key, draw(key, values...))(pod)
			}
		}
		if rapid.Bool().Draw(t, "mounting") {
			Mounting("model", draw("volume", Web, "Not A Name", "ghcr.io/a/b@"+Digest("pinned")), draw("mounted", "", ImageID(Web)))(pod)
		}
		if rapid.Bool().Draw(t, "unschedulable") {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}, {Type: corev1.PodReady}}
		}
		if rapid.Bool().Draw(t, "owned") {
			OwnedBy("apps/v1", draw("owner", "ReplicaSet", "Job", "StatefulSet"), draw("owner's name", "web-5d4f8", "nightly-29401440"), "owner")(pod)
		}
		if rapid.Bool().Draw(t, "with pull secrets") {
			PulledWith("b", "a")(pod)
		}
		pod.Spec.NodeName = draw("node", NodeAMD, NodeARM, "", "unknown")
		pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
		pod.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever}).Draw(t, "restart policy")
		if rapid.Bool().Draw(t, "finished") {
			FinishedAt(Noon.Add(-time.Hour))(pod)
		}
		if rapid.Bool().Draw(t, "with a readiness") && !IsActive(pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, LastTransitionTime: metav1.NewTime(Noon.Add(-2 * time.Hour))})
		}
		return pod
	})
}

func valid(reference string) bool {
	_, err := image.ParseReference(reference)
	return err == nil
}

// runningIf, initialisedIf and debuggedIf fall back to creating if the reference is invalid, so that any reference can be drawn.
func runningIf(container, reference string) func(*corev1.Pod) {
	if !valid(reference) {
		return Creating(container, reference)
	}
	return Running(container, reference)
}

func loadedIf(container, reference string) func(*corev1.Pod) {
	return Loaded(container, reference)
}

func notPulled(container, reference string) func(*corev1.Pod) {
	return Waiting(container, reference, "ErrImagePull")
}

func initialisedIf(container, reference string) func(*corev1.Pod) {
	if !valid(reference) {
		return Creating(container, reference)
	}
	return Initialised(container, reference)
}

func debuggedIf(container, reference string) func(*corev1.Pod) {
	if !valid(reference) {
		return Creating(container, reference)
	}
	return Debugged(container, reference)
}

// TestStripPod: a stripped pod gives the same decisions as the original, and has no other fields.
func TestStripPod(t *testing.T) {
	scanners := []*v1alpha1.Scanner{TheScanner(), TheScanner(Selecting("tier", "front"))}
	rapid.Check(t, func(t *rapid.T) {
		pod := anyPod().Draw(t, "pod")
		original := pod.DeepCopy()
		stripped := StripPod(pod)
		resolved, unresolved := ImagesOf(original)
		gotResolved, gotUnresolved := ImagesOf(stripped)
		workloadKind, workloadName := workloadOf(original)
		gotKind, gotName := workloadOf(stripped)
		for what, pair := range map[string][2]any{
			"resolved images":   {resolved, gotResolved},
			"unresolved images": {unresolved, gotUnresolved},
			"container images":  {containerImages(original), containerImages(stripped)},
			"pull secrets":      {PullSecrets(original), PullSecrets(stripped)},
			"ServiceAccount":    {original.Spec.ServiceAccountName, stripped.Spec.ServiceAccountName},
			"workload":          {workloadKind + "/" + workloadName, gotKind + "/" + gotName},
			"runs":              {IsActive(original), IsActive(stripped)},
			"end":               {endedAt(original, Noon), endedAt(stripped, Noon)},
			"is meant to end":   {runsToCompletion(original), runsToCompletion(stripped)},
			"identity":          {[]any{original.Name, original.Namespace, original.UID, original.ResourceVersion}, []any{stripped.Name, stripped.Namespace, stripped.UID, stripped.ResourceVersion}},
			"node":              {original.Spec.NodeName, stripped.Spec.NodeName},
			"deletion":          {original.DeletionTimestamp, stripped.DeletionTimestamp},
			"annotation":        {original.Annotations["all"+podmark.AnnotationSuffix], stripped.Annotations["all"+podmark.AnnotationSuffix]},
		} {
			if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
				t.Errorf("%s (-original +stripped):\n%s", what, diff)
			}
		}
		for _, scanner := range scanners {
			if coversPod(scanner, original) != coversPod(scanner, stripped) {
				t.Errorf("the Scanner with the selector %v selects one of the two", scanner.Spec.PodSelector)
			}
		}
		data := slices.ContainsFunc(stripped.Spec.Volumes, func(v corev1.Volume) bool { return v.Image == nil })
		if data || len(stripped.ManagedFields)+len(stripped.Finalizers) > 0 || len(slices.Collect(maps.Keys(stripped.Annotations))) > 1 {
			t.Errorf("more is kept than is used: %+v", stripped)
		}
		if diff := cmp.Diff(original, pod); diff != "" {
			t.Errorf("the pod itself is changed:\n%s", diff)
		}
	})
}

// TestStripOthers: other objects, such as the tombstone of a missed deletion, pass unchanged. A node keeps only its platform.
func TestStripOthers(t *testing.T) {
	if got, err := StripNode("tombstone"); err != nil || got != "tombstone" {
		t.Errorf("something else becomes %v, %v", got, err)
	}
	full := Node(NodeARM, "arm64")
	full.Labels, full.Status.NodeInfo.KernelVersion = map[string]string{"a": "b"}, "6.8.0-45-generic"
	kept, err := StripNode(full)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeARM},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "arm64"}},
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	full.Status.NodeInfo.OperatingSystem, full.Status.NodeInfo.KernelVersion = "windows", "10.0.20348.2340"
	if kept, err = StripNode(full); err != nil {
		t.Fatal(err)
	}
	want.Status.NodeInfo.OperatingSystem, want.Status.NodeInfo.KernelVersion = "windows", "10.0.20348"
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("node of Windows (-want +got):\n%s", diff)
	}
}
