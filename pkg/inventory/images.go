package inventory

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// volumePrefix is the beginning of the name under which an image volume is listed among a pod's containers. Names of containers have no
// slash.
const volumePrefix = "volume/"

// PodImage is an image that one container of a pod runs, or that the pod mounts as a volume.
type PodImage struct {
	// Container is the name of the container, or volumePrefix and the name of the volume.
	Container string
	ID        image.ID
	// Reference is the one in the pod's spec.
	Reference image.Reference
}

// UnresolvedImage is an image without a digest, since no container of it has started yet.
type UnresolvedImage struct {
	Container string
	// Image is the text in the pod's spec.
	Image string
	// Excluded is true if the Scanner excludes the image. Set by RunningImages.
	Excluded bool
	// Failed means that waiting alone will not resolve the image. Reason is a reason of ImageScan conditions; a pending image may have one
	// too.
	Failed          bool
	Reason, Message string
}

// RunningImage is an image that a container of a pod runs, on a node whose platform is known.
type RunningImage struct {
	PodImage
	Key image.Key
	// Excluded is true if the Scanner excludes the image.
	Excluded bool
}

// pullFailures are the reasons by which kubelets report that an image could not be pulled
// (https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go).
var pullFailures = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
	"RegistryUnavailable", "SignatureValidationFailed",
}

// ImagesOf returns the images of all containers of a pod, including init and ephemeral containers, and of its image volumes.
func ImagesOf(pod *corev1.Pod) (resolved []PodImage, unresolved []UnresolvedImage) {
	specs := containerImages(pod)
	seen := map[string]bool{}
	for _, status := range slices.Concat(containerStatuses(pod), volumeStatuses(pod)) {
		spec, found := specs[status.Name]
		if !found {
			continue
		}
		seen[status.Name] = true
		img, missing := resolve(status, spec)
		if missing != nil {
			unresolved = append(unresolved, *missing)
			continue
		}
		resolved = append(resolved, img)
	}
	for name, spec := range specs {
		if !seen[name] {
			unresolved = append(unresolved, UnresolvedImage{Container: name, Image: spec, Reason: unscheduledReason(pod)})
		}
	}
	slices.SortFunc(unresolved, func(a, b UnresolvedImage) int { return strings.Compare(a.Container, b.Container) })
	return resolved, unresolved
}

// unscheduledReason returns PodUnschedulable for a pod that no node can take; empty for any other.
func unscheduledReason(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return v1alpha1.ReasonPodUnschedulable
		}
	}
	return ""
}

// resolve returns the image of one container status. Only what the node reports identifies the image: a tenant writes the pod's spec, and would
// get the results of any digest that it names there. An image that the node knows only by its own ID is identified by the digest in the name that
// the node reports beside it, if there is one.
func resolve(status corev1.ContainerStatus, spec string) (PodImage, *UnresolvedImage) {
	missing := &UnresolvedImage{Container: status.Name, Image: spec}
	fail := func(reason, message string) (PodImage, *UnresolvedImage) {
		missing.Failed, missing.Reason, missing.Message = true, reason, message
		return PodImage{}, missing
	}
	ref, err := image.ParseReference(spec)
	if err != nil {
		return fail(v1alpha1.ReasonNotPulled, err.Error())
	}
	if status.ImageID == "" {
		switch waiting := status.State.Waiting; {
		case waiting == nil:
		case waiting.Reason == v1alpha1.ReasonVolumeDigestUnknown:
			return fail(waiting.Reason, waiting.Message)
		case slices.Contains(pullFailures, waiting.Reason):
			return fail(v1alpha1.ReasonNotPulled, waiting.Reason+": "+waiting.Message)
		}
		return PodImage{}, missing
	}
	id, err := image.ParseID(status.ImageID)
	if err != nil {
		return fail(v1alpha1.ReasonBareImageID, err.Error())
	}
	if named, err := image.ParseReference(status.Image); err == nil && id.Bare && image.ValidDigest(named.Digest) {
		id = image.ID{Repository: named.Repository, Digest: named.Digest}
	}
	return PodImage{Container: status.Name, ID: id, Reference: ref}, nil
}

func containerStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
}

// volumeStatuses represents image volumes as container statuses. Nothing is known of a volume until a container has started. From then on
// its digest is the one that the node reports for a container that mounts it.
func volumeStatuses(pod *corev1.Pod) (statuses []corev1.ContainerStatus) {
	containers := containerStatuses(pod)
	started := slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool { return c.ImageID != "" })
	for _, volume := range pod.Spec.Volumes {
		if volume.Image == nil || volume.Image.Reference == "" || !started {
			continue
		}
		status := corev1.ContainerStatus{Name: volumePrefix + volume.Name, ImageID: mountedImage(containers, volume.Name)}
		if status.ImageID == "" {
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: v1alpha1.ReasonVolumeDigestUnknown, Message: "the node does not report " +
				"which image the volume " + volume.Name + " holds: nodes do from Kubernetes 1.35 on, of volumes that a container mounts"}
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// mountedImage returns what the node reports of an image volume; empty if it reports nothing.
func mountedImage(containers []corev1.ContainerStatus, volume string) string {
	for _, c := range containers {
		for _, mount := range c.VolumeMounts {
			if mount.Name == volume && mount.VolumeStatus != nil && mount.VolumeStatus.Image != nil && mount.VolumeStatus.Image.ImageRef != "" {
				return mount.VolumeStatus.Image.ImageRef
			}
		}
	}
	return ""
}

// containerImages maps the names of all containers, and of image volumes after volumePrefix, to the images in the pod's spec.
func containerImages(pod *corev1.Pod) map[string]string {
	images := map[string]string{}
	for _, c := range pod.Spec.InitContainers {
		images[c.Name] = c.Image
	}
	for _, c := range pod.Spec.Containers {
		images[c.Name] = c.Image
	}
	for _, c := range pod.Spec.EphemeralContainers {
		images[c.Name] = c.Image
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Image != nil && volume.Image.Reference != "" {
			images[volumePrefix+volume.Name] = volume.Image.Reference
		}
	}
	return images
}

// RunningImages returns the images that the containers of a pod run, and those without a known key. known is false while the pod's node, or its
// platform, is not in the cache: no image is known to run then. The names of unresolved images are normalized if they are valid.
func (i *Inventory) RunningImages(
	ctx context.Context, scanner v1alpha1.GenericScanner, pod *corev1.Pod,
) (running []RunningImage, unresolved []UnresolvedImage, known bool, err error) {
	resolved, unresolved := ImagesOf(pod)
	for n := range unresolved {
		if ref, err := image.ParseReference(unresolved[n].Image); err == nil {
			unresolved[n].Image, unresolved[n].Excluded = ref.String(), isExcluded(scanner, ref)
		}
	}
	platform, known := image.Platform{}, true
	if len(resolved) > 0 {
		platform, known, err = i.platformOf(ctx, pod.Spec.NodeName)
	}
	for _, img := range resolved {
		excluded := isExcluded(scanner, img.Reference)
		if !known {
			unresolved = append(unresolved, UnresolvedImage{
				Container: img.Container, Image: img.Reference.String(), Excluded: excluded, Reason: v1alpha1.ReasonNodeUnknown,
			})
			continue
		}
		key := image.Key{Digest: img.ID.Digest, Platform: platform}
		running = append(running, RunningImage{PodImage: img, Key: key, Excluded: excluded})
	}
	return running, unresolved, known, err
}

// platformOf returns the platform of a node. Nodes report no variant of their architecture. On Windows, the version of the kernel is that of the system,
// and decides which image of an index the node runs. known is false while the node, or its platform, is not in the cache.
func (i *Inventory) platformOf(ctx context.Context, name string) (platform image.Platform, known bool, err error) {
	var node corev1.Node
	if err := i.Client.Get(ctx, types.NamespacedName{Name: name}, &node, client.UnsafeDisableDeepCopy); err != nil {
		return image.Platform{}, false, client.IgnoreNotFound(err)
	}
	info := node.Status.NodeInfo
	platform = image.NewPlatform(info.OperatingSystem, info.Architecture, info.KernelVersion)
	return platform, platform.OS != "" && platform.Architecture != "", nil
}

// isExcluded reports whether a Scanner excludes an image.
func isExcluded(scanner v1alpha1.GenericScanner, ref image.Reference) bool {
	return slices.ContainsFunc(scanner.Settings().Images.Exclude, func(glob string) bool {
		return image.Match(glob, ref)
	})
}

// PullSecrets returns the names of a pod's pull secrets, sorted, each once.
func PullSecrets(pod *corev1.Pod) []string {
	var names []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name != "" {
			names = append(names, ref.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
