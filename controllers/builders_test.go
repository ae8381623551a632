package controllers

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// The nodes of the tests.
const (
	nodeAMD = "node-amd64"
	nodeARM = "node-arm64"
)

var amd64 = image.Platform{OS: "linux", Architecture: "amd64"}

// digest returns a digest that is unique for the name.
func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// imageID returns the image ID that containerd reports for an image that was pulled by this reference. Each tag is another image.
func imageID(reference string) string {
	ref, err := image.ParseReference(reference)
	if err != nil {
		panic(err) // a mistake in the test
	}
	if ref.Digest != "" {
		return ref.Repository + "@" + ref.Digest
	}
	return ref.Repository + "@" + digest(ref.String())
}

// keyOfImage returns the key of an image on nodeAMD.
func keyOfImage(reference string) image.Key {
	id, err := image.ParseID(imageID(reference))
	if err != nil {
		panic(err) // a mistake in the test
	}
	return image.Key{Digest: id.Digest, Platform: amd64}
}

func node(name, architecture string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			NodeInfo:  corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: architecture, KubeletVersion: "v1.37.0"},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		},
	}
}

// aPod returns a pod that runs on nodeAMD. Its containers are added by running, creating and similar functions.
func aPod(namespace, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: nodeAMD},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// running adds a container that runs an image.
func running(container, reference string) func(*corev1.Pod) {
	return containerWith(container, reference, corev1.ContainerStatus{ImageID: imageID(reference)})
}

// creating adds a container that has not started yet.
func creating(container, reference string) func(*corev1.Pod) {
	return waiting(container, reference, "ContainerCreating")
}

// waiting adds a container that waits for the given reason.
func waiting(container, reference, reason string) func(*corev1.Pod) {
	return containerWith(container, reference, corev1.ContainerStatus{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "the kubelet says more"}},
	})
}

// loaded adds a container whose image only its node knows, by an image ID without a registry.
func loaded(container, reference string) func(*corev1.Pod) {
	return containerWith(container, reference, corev1.ContainerStatus{ImageID: digest("loaded " + reference)})
}

func containerWith(name, reference string, status corev1.ContainerStatus) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: reference})
		status.Name, status.Image = name, reference
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
}

// initialised adds an init container that ran an image.
func initialised(name, reference string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: reference})
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, Image: reference, ImageID: imageID(reference)})
	}
}

// unscheduled makes the pod unschedulable and adds a container.
func unscheduled(container, reference string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: reference})
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
}

// mounting adds an image volume that the last container mounts. reported is the image that the node reports for the mount; empty for none.
func mounting(volume, reference, reported string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference}}})
		statuses := pod.Status.ContainerStatuses
		if len(statuses) == 0 {
			return
		}
		mount := corev1.VolumeMountStatus{Name: volume, MountPath: "/" + volume}
		if reported != "" {
			mount.VolumeStatus = &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: reported}}
		}
		last := &statuses[len(statuses)-1]
		last.VolumeMounts = append(last.VolumeMounts, mount)
	}
}

// debugged adds an ephemeral container that runs an image.
func debugged(name, reference string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: reference, TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways},
		})
		pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name, Image: reference, ImageID: imageID(reference)})
	}
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[key] = value
	}
}

func onNode(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = name } }

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// finishedAt sets the time when all containers finished.
func finishedAt(at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}
		}
	}
}

// ofCronJob makes the pod belong to a run of a CronJob.
func ofCronJob(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		ownedBy("batch/v1", "Job", name+"-29401440", "job-uid")(pod)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
}

func pulledWith(secrets ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, secret := range secrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
		}
	}
}

func runAs(account string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = account }
}

func ownedBy(apiVersion, kind, name, uid string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: ptr.To(true),
		})
	}
}

// aScanner returns a Scanner of the type Grype, which the tests map to their own engine.
func aScanner(namespace, name string, changes ...func(*v1alpha1.Scanner)) *v1alpha1.Scanner {
	scanner := &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ScannerSpec{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}},
	}
	for _, change := range changes {
		change(scanner)
	}
	return scanner
}

func selecting(key, value string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) {
		s.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

func excluding(globs ...string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) { s.Spec.Images.Exclude = globs }
}

// scanOf returns the ImageScan of a Scanner for an image.
func scanOf(scanner *v1alpha1.Scanner, reference string, changes ...func(*v1alpha1.ImageScan)) *v1alpha1.ImageScan {
	key := keyOfImage(reference)
	ref, _ := image.ParseReference(reference)
	scan := &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: scanner.Namespace, Name: inventory.ImageScanName(scanner.UID, key, ref.Repository),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(scanner, v1alpha1.GroupVersion.WithKind("Scanner"))},
		},
		Spec: v1alpha1.ImageScanSpec{
			Digest: key.Digest, DigestType: v1alpha1.DigestManifest, Platform: key.Platform.String(),
			Scanner: scanner.Name, References: []string{ref.String()},
		},
	}
	for _, change := range changes {
		change(scan)
	}
	return scan
}

// repeatToLength repeats a text to the given number of bytes.
func repeatToLength(text string, bytes int) string {
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}
