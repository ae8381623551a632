package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	. "github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
)

// TestImagesOf: which images of a pod are resolved to a digest and which are not.
func TestImagesOf(t *testing.T) {
	pinned := "ghcr.io/a/b@" + Digest("pinned")
	sha512 := "ghcr.io/a/b@sha512:" + strings.Repeat("c", 128)
	resolved := func(container, reference string) PodImage {
		ref, _ := image.ParseReference(reference)
		id, _ := image.ParseID(ImageID(reference))
		return PodImage{Container: container, ID: id, Reference: ref}
	}
	const volumeUnknown = "the node does not report which image the volume model holds: nodes do from Kubernetes 1.35 on, of volumes that a container mounts"
	for name, tt := range map[string]struct {
		pod        *corev1.Pod
		resolved   []PodImage
		unresolved []UnresolvedImage
	}{
		"all kinds of containers": {
			Pod(Namespace, "a", Initialised("i", "init:1"), Running("c", Web), Debugged("e", "debug:1")),
			[]PodImage{resolved("i", "init:1"), resolved("c", Web), resolved("e", "debug:1")}, nil,
		},
		"not started yet": {Pod(Namespace, "a", Creating("c", Web)), nil, []UnresolvedImage{{Container: "c", Image: Web}}},
		"no status at all": {
			&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "b", Image: "b:1"}, {Name: "a", Image: "a:1"}}}},
			nil, []UnresolvedImage{{Container: "a", Image: "a:1"}, {Container: "b", Image: "b:1"}},
		},
		"not pulled": {
			Pod(Namespace, "a", Waiting("c", Web, "ImagePullBackOff")), nil,
			[]UnresolvedImage{{Container: "c", Image: Web, Failed: true, Reason: v1alpha1.ReasonNotPulled, Message: "ImagePullBackOff: the kubelet says more"}},
		},
		"crashing, but pulled": {
			Pod(Namespace, "a", WithContainer("c", Web, corev1.ContainerStatus{
				ImageID: ImageID(Web), State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			})), []PodImage{resolved("c", Web)}, nil,
		},
		"a name that is none": {
			Pod(Namespace, "a", Waiting("c", "Not A Name", "InvalidImageName")), nil,
			[]UnresolvedImage{{Container: "c", Image: "Not A Name", Failed: true, Reason: v1alpha1.ReasonNotPulled,
				Message: `image reference "Not A Name": invalid reference format: repository name (library/Not A Name) must be lowercase`}},
		},
		"loaded on the node": {
			Pod(Namespace, "a", Loaded("c", Web)),
			[]PodImage{{Container: "c", ID: image.ID{Digest: Digest("loaded " + Web), Bare: true}, Reference: resolved("c", Web).Reference}}, nil,
		},
		"loaded on the node, and its name there says which": {
			Pod(Namespace, "a", Loaded("c", pinned)),
			[]PodImage{{Container: "c", ID: image.ID{Repository: "ghcr.io/a/b", Digest: Digest("pinned")}, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"loaded on the node, and the spec names a digest that is not SHA-256": {
			Pod(Namespace, "a", Loaded("c", sha512)),
			[]PodImage{{Container: "c", ID: image.ID{Digest: Digest("loaded " + sha512), Bare: true}, Reference: resolved("c", sha512).Reference}}, nil,
		},
		"loaded on the node, and only the spec says which": {
			Pod(Namespace, "a", Loaded("c", Web), func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = pinned }),
			[]PodImage{{Container: "c", ID: image.ID{Digest: Digest("loaded " + Web), Bare: true}, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"loaded on a node with CRI-O, and its name there says which": {
			Pod(Namespace, "a", WithContainer("c", pinned, corev1.ContainerStatus{ImageID: strings.TrimPrefix(Digest("loaded"), "sha256:")})),
			[]PodImage{{Container: "c", ID: image.ID{Repository: "ghcr.io/a/b", Digest: Digest("pinned")}, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"a volume whose image the node reports": {
			Pod(Namespace, "a", Running("c", Web), Mounting("model", Vulnerable, ImageID(Vulnerable))),
			[]PodImage{resolved("c", Web), resolved("volume/model", Vulnerable)}, nil,
		},
		"a volume whose image is pinned, which no node reports": {
			Pod(Namespace, "a", Running("c", Web), Mounting("model", pinned, "")), []PodImage{resolved("c", Web)},
			[]UnresolvedImage{{Container: "volume/model", Image: pinned, Failed: true, Reason: v1alpha1.ReasonVolumeDigestUnknown, Message: volumeUnknown}},
		},
		"a volume whose image is pinned, and the node reports another": {
			Pod(Namespace, "a", Running("c", Web), Mounting("model", pinned, ImageID(Vulnerable))),
			[]PodImage{resolved("c", Web), {Container: "volume/model", ID: resolved("c", Vulnerable).ID, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"a volume whose image is pinned, and the node reports its own ID of it": {
			Pod(Namespace, "a", Running("c", Web), Mounting("model", pinned, Digest("loaded"))),
			[]PodImage{resolved("c", Web), {Container: "volume/model", ID: image.ID{Digest: Digest("loaded"), Bare: true}, Reference: resolved("c", pinned).Reference}}, nil,
		},
		"a volume of which nothing is known": {
			Pod(Namespace, "a", Running("c", Web), Mounting("model", Vulnerable, "")),
			[]PodImage{resolved("c", Web)},
			[]UnresolvedImage{{Container: "volume/model", Image: Vulnerable, Failed: true, Reason: v1alpha1.ReasonVolumeDigestUnknown, Message: volumeUnknown}},
		},
		"a volume of a pod that has not started": {
			Pod(Namespace, "a", Creating("c", Web), Mounting("model", pinned, "")), nil,
			[]UnresolvedImage{{Container: "c", Image: Web}, {Container: "volume/model", Image: pinned}},
		},
		"no node takes the pod": {
			&corev1.Pod{
				Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: Web}}},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}},
			}, nil, []UnresolvedImage{{Container: "c", Image: Web, Reason: v1alpha1.ReasonPodUnschedulable}},
		},
		"an imageID that is none": {
			Pod(Namespace, "a", WithContainer("c", Web, corev1.ContainerStatus{ImageID: "sha512:abc"})), nil,
			[]UnresolvedImage{{Container: "c", Image: Web, Failed: true, Reason: v1alpha1.ReasonBareImageID, Message: `imageID "sha512:abc": no SHA-256 digest in it`}},
		},
		"a status of a container that is not there": {
			&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "ghost", ImageID: ImageID(Web)}}}}, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			gotResolved, gotUnresolved := ImagesOf(tt.pod)
			if diff := cmp.Diff(tt.resolved, gotResolved); diff != "" {
				t.Errorf("resolved (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.unresolved, gotUnresolved); diff != "" {
				t.Errorf("unresolved (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPullSecrets: each name is returned once and sorted; empty names are dropped.
func TestPullSecrets(t *testing.T) {
	if diff := cmp.Diff([]string{"a", "b"}, PullSecrets(Pod(Namespace, "x", PulledWith("b", "a", "", "b")))); diff != "" {
		t.Errorf("pull secrets (-want +got):\n%s", diff)
	}
}
