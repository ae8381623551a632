package pods

import (
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// anyPod generates pods with all fields that the compact form treats specially, in usual and unusual forms.
func anyPod() *rapid.Generator[*corev1.Pod] {
	return rapid.Custom(func(t *rapid.T) *corev1.Pod {
		text := func(name string) string { return rapid.StringN(0, 20, -1).Draw(t, name) }
		texts := func(name string) map[string]string {
			return rapid.MapOfN(rapid.StringN(1, 10, -1), rapid.StringN(0, 30, -1), 1, 4).Draw(t, name)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: text("name"), Namespace: text("namespace"), Labels: texts("labels"), Annotations: texts("annotations"),
				UID: types.UID(rapid.OneOf(
					rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
					rapid.StringMatching(`[0-9a-fA-F-]{36}`), rapid.SampledFrom([]string{"", "uid", "00000000-0000-0000-0000-000000000000"}),
				).Draw(t, "UID")),
				ResourceVersion: rapid.OneOf(
					rapid.StringMatching(`[1-9][0-9]{0,18}`), rapid.SampledFrom([]string{"", "0", "007", "+7", "18446744073709551615", "99999999999999999999", "x"}),
				).Draw(t, "version"),
				OwnerReferences: []metav1.OwnerReference{{Kind: text("owner"), Controller: new(bool)}},
				Finalizers:      rapid.SliceOfN(rapid.String(), 1, 2).Draw(t, "finalizers"),
			},
			Spec: corev1.PodSpec{
				NodeName: text("node"), ServiceAccountName: text("account"), ImagePullSecrets: []corev1.LocalObjectReference{{Name: text("secret")}},
				Containers:          []corev1.Container{{Name: text("container"), Image: text("image")}},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: text("ephemeral")}}},
				Volumes:             []corev1.Volume{{Name: text("volume"), VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: text("mounted")}}}},
			},
			Status: corev1.PodStatus{
				Phase:             corev1.PodPhase(text("phase")),
				ContainerStatuses: []corev1.ContainerStatus{{Name: text("status"), ImageID: text("imageID")}},
			},
		}
		if at := rapid.Int64Range(-100, 1<<33).Draw(t, "created"); at > -50 {
			pod.CreationTimestamp = metav1.Unix(at, 0)
		}
		if rapid.Bool().Draw(t, "deleted") {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
		}
		return pod
	})
}

// TestCompactPod: the compact form of a pod, decoded, is what the API's own encoding keeps of the pod.
func TestCompactPod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := anyPod().Draw(t, "pod")
		encoded, err := pod.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		want := &corev1.Pod{}
		if err := want.Unmarshal(encoded); err != nil {
			t.Fatal(err)
		}
		compact, err := newPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		var d decoder
		for range 2 { // the second time, the decoder knows the remainder
			got, err := d.pod(compact)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("pod (-want +got):\n%s", diff)
			}
		}
		object, err := meta.Accessor(compact)
		if err != nil {
			t.Fatal(err)
		}
		if object.GetName() != want.Name || object.GetNamespace() != want.Namespace || object.GetResourceVersion() != want.ResourceVersion {
			t.Errorf("an informer sees %s/%s at %q, want %s/%s at %q", object.GetNamespace(), object.GetName(), object.GetResourceVersion(),
				want.Namespace, want.Name, want.ResourceVersion)
		}
	})
}

// TestSharedRemainder: pods of one Deployment on several nodes share their remainder, and reading one does not change the others.
func TestSharedRemainder(t *testing.T) {
	var d decoder
	first, second := compactOf(t, replica(1)), compactOf(t, replica(2))
	if first.remainder != second.remainder {
		t.Error("two replicas have remainders of their own")
	}
	got, err := d.pod(first)
	if err != nil {
		t.Fatal(err)
	}
	got.Name, got.Spec.NodeName = "changed", "changed"
	again, err := d.pod(first)
	if err != nil {
		t.Fatal(err)
	}
	if again.Name != replica(1).Name || again.Spec.NodeName != replica(1).Spec.NodeName {
		t.Errorf("the pod is now %s on %s", again.Name, again.Spec.NodeName)
	}
}

// TestDamagedRemainder: bytes that are no pod give an error. They never end the process.
func TestDamagedRemainder(t *testing.T) {
	valid := compactOf(t, replica(1)).remainder.Value()
	rapid.Check(t, func(t *rapid.T) {
		damaged := rapid.OneOf(
			rapid.StringN(1, 50, -1),
			rapid.Map(rapid.IntRange(1, len(valid)-1), func(n int) string { return valid[:n] }),
			rapid.Map(rapid.IntRange(1, len(valid)-1), func(n int) string { return valid[n:] }),
		).Draw(t, "bytes")
		var d decoder
		_, _ = d.pod(&Pod{namespace: unique.Make(""), node: unique.Make(""), remainder: unique.Make(damaged)})
	})
	var d decoder
	if _, err := d.pod(&Pod{namespace: unique.Make("shop"), node: unique.Make(""), name: "web", remainder: unique.Make("\xff")}); err == nil || !strings.Contains(err.Error(), "shop/web") {
		t.Errorf("error %v, want one that names the pod", err)
	}
	if _, err := d.pod(&corev1.Node{}); err == nil {
		t.Error("a node is taken as a pod")
	}
}

// TestDecoderIsBounded: pods that have nothing in common do not fill the memory.
func TestDecoderIsBounded(t *testing.T) {
	var d decoder
	for n := range 3 * maxDecoded {
		pod := replica(n)
		pod.Labels["statefulset.kubernetes.io/pod-name"] = pod.Name
		if _, err := d.pod(compactOf(t, pod)); err != nil {
			t.Fatal(err)
		}
		if len(d.decoded) > maxDecoded {
			t.Fatalf("%d remainders are kept, want at most %d", len(d.decoded), maxDecoded)
		}
	}
}

func compactOf(t testing.TB, pod *corev1.Pod) *Pod {
	t.Helper()
	compact, err := newPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return compact
}
