package inventory

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// FuzzImagesOf: whatever a pod says, each of its containers and image volumes has an image with a digest, or is counted as one without. Nothing else is
// counted.
func FuzzImagesOf(f *testing.F) {
	const web = "registry.example.com/shop/web"
	id := web + "@sha256:" + strings.Repeat("a", 64)
	for _, pod := range []corev1.Pod{
		{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: web + ":1"}}}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "web", ImageID: id}}}},
		{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "a", Image: web}}, Containers: []corev1.Container{{Name: "b", Image: ":"}, {Name: "c", Image: web}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}}}, {Name: "foreign", ImageID: id}}}},
		{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: id}}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: web}}}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ImageID: "sha256:" + strings.Repeat("b", 64)}}}},
		{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: web + "@sha512:" + strings.Repeat("c", 128)}}}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ImageID: "sha256:" + strings.Repeat("d", 64)}}}},
		{},
	} {
		text, err := json.Marshal(pod)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var pod corev1.Pod
		if json.Unmarshal(text, &pod) != nil {
			return
		}
		resolved, unresolved := ImagesOf(&pod)
		specs := containerImages(&pod)
		counted := map[string]bool{}
		for _, img := range resolved {
			counted[img.Container] = true
			if !image.ValidDigest(img.ID.Digest) || img.Reference.Repository == "" || img.ID.Bare != (img.ID.Repository == "") {
				t.Errorf("%s: the container %q runs %+v", text, img.Container, img)
			}
		}
		for _, img := range unresolved {
			counted[img.Container] = true
			if img.Failed && img.Reason == "" || img.Image != specs[img.Container] {
				t.Errorf("%s: the container %q has no digest, with the image %q and the reason %q", text, img.Container, img.Image, img.Reason)
			}
		}
		for name := range specs {
			if !counted[name] {
				t.Errorf("%s: the container %q is not counted", text, name)
			}
		}
		if len(counted) != len(specs) {
			t.Errorf("%s: %d images are counted, the pod has %d", text, len(counted), len(specs))
		}
		secrets := PullSecrets(&pod)
		if !slices.IsSorted(secrets) || len(slices.Compact(slices.Clone(secrets))) != len(secrets) || slices.Contains(secrets, "") {
			t.Errorf("%s: pull secrets %q", text, secrets)
		}
	})
}

// FuzzReceivers: of an annotation, at most as many receivers as a Scanner may have are taken, each with a name that a receiver can have. The stored form has
// the same names.
func FuzzReceivers(f *testing.F) {
	for _, seed := range []string{"", "team-a", "team-a, team-b ,team-a", ",,A,-b,c-", strings.Repeat("a,b", 600), "ü," + strings.Repeat("x", 64)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{v1alpha1.AnnotationReceiver: annotation}
		names := receiversOf(pod, nil, func(string) bool { return true })
		for _, name := range names {
			if !receiverName.MatchString(name) || len(name) > maxReceiverName || !strings.Contains(annotation, name) {
				t.Errorf("%q names the receiver %q", annotation, name)
			}
		}
		stored := joinReceivers(slices.Clone(names))
		again := strings.Split(stored, ",")
		if len(again) > maxNamedReceivers || joinReceivers(slices.Clone(again)) != stored || len(names) == 0 && stored != "" || len(names) > 0 && len(again) != min(len(names), maxNamedReceivers) {
			t.Errorf("%q is stored as %q, which names %d receivers of %d", annotation, stored, len(again), len(names))
		}
	})
}
