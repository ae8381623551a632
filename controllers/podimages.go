package controllers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// podImage is an image that one container of a pod runs.
type podImage struct {
	Container string
	ID        image.ID
	// Reference is what the pod's spec says.
	Reference image.Reference
}

// unresolvedImage is an image that has no digest (yet), since no container of it was started.
type unresolvedImage struct {
	Container string
	// Image is the pod spec's text.
	Image string
	// NotPulled says that the node tried and failed; Reason and Message are its words.
	NotPulled       bool
	Reason, Message string
}

// pullFailures are the reasons by which kubelets say that they could not get an image
// (https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go).
var pullFailures = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
	"RegistryUnavailable", "SignatureValidationFailed",
}

// imagesOf returns the images of all containers of a pod, init and ephemeral containers included.
func imagesOf(pod *corev1.Pod) (resolved []podImage, unresolved []unresolvedImage) {
	specs := containerImages(pod)
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
	seen := map[string]bool{}
	for _, status := range statuses {
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
			unresolved = append(unresolved, unresolvedImage{Container: name, Image: spec})
		}
	}
	slices.SortFunc(unresolved, func(a, b unresolvedImage) int { return strings.Compare(a.Container, b.Container) })
	return resolved, unresolved
}

// resolve reads one container's status. An image that a node knows only by its own id is taken by the
// digest in the pod's spec, if there is one.
func resolve(status corev1.ContainerStatus, spec string) (podImage, *unresolvedImage) {
	missing := &unresolvedImage{Container: status.Name, Image: spec}
	ref, err := image.ParseReference(spec)
	if err != nil {
		missing.NotPulled, missing.Reason, missing.Message = true, "InvalidImageName", err.Error()
		return podImage{}, missing
	}
	if status.ImageID == "" {
		if waiting := status.State.Waiting; waiting != nil && slices.Contains(pullFailures, waiting.Reason) {
			missing.NotPulled, missing.Reason, missing.Message = true, waiting.Reason, waiting.Message
		}
		return podImage{}, missing
	}
	id, err := image.ParseID(status.ImageID)
	if err != nil {
		missing.NotPulled, missing.Reason, missing.Message = true, v1alpha1.ReasonBareImageID, err.Error()
		return podImage{}, missing
	}
	if id.Bare && ref.Digest != "" {
		id = image.ID{Repository: ref.Repository, Digest: ref.Digest}
	}
	return podImage{Container: status.Name, ID: id, Reference: ref}, nil
}

// containerImages maps the names of all containers to the images that the pod's spec gives them.
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
	return images
}

// runs says whether a pod runs, or is about to.
func runs(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// selects says whether a Scanner is about a pod of its namespace. A pod that is being deleted is not counted: it may
// hang for long on a node that is gone. Neither are workers: a namespace would be told of the operator's image.
func selects(scanner *v1alpha1.Scanner, pod *corev1.Pod) bool {
	if grype.IsWorkerPod(pod) || !runs(pod) || !pod.DeletionTimestamp.IsZero() || !scanner.DeletionTimestamp.IsZero() || pod.Labels[scanner.Spec.IgnoreLabel] == "true" {
		return false
	}
	if scanner.Spec.PodSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(scanner.Spec.PodSelector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// excluded says whether a Scanner leaves an image out.
func excluded(scanner *v1alpha1.Scanner, ref image.Reference) bool {
	return slices.ContainsFunc(scanner.Spec.Images.Exclude, func(glob string) bool {
		return image.Match(glob, ref)
	})
}

// pullSecrets are the names of the Secrets that a pod pulls with, sorted.
func pullSecrets(pod *corev1.Pod) []string {
	var names []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name != "" {
			names = append(names, ref.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
