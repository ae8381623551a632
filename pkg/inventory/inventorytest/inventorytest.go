// Package inventorytest builds pods, Scanners and ImageScans for tests.
package inventorytest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Namespace is the namespace of TheScanner.
const Namespace = "shop"

// Images of the tests.
const (
	Web        = "registry.example.com/shop/web:1"
	Vulnerable = "registry.example.com/shop/vulnerable:1"
)

// Noon is the time at which the tests begin.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// The nodes of the tests.
const (
	NodeAMD = "node-amd64"
	NodeARM = "node-arm64"
)

// AMD64 is the platform of NodeAMD.
var AMD64 = image.Platform{OS: "linux", Architecture: "amd64"}

// Digest returns a digest that is unique for the name.
func Digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// ImageID returns the image ID that containerd reports for an image that was pulled by this reference. Each tag is another image.
func ImageID(reference string) string {
	ref, err := image.ParseReference(reference)
	if err != nil {
		panic(err) // a mistake in the test
	}
	if ref.Digest != "" {
		return ref.Repository + "@" + ref.Digest
	}
	return ref.Repository + "@" + Digest(ref.String())
}

// KeyOfImage returns the key of an image on NodeAMD.
func KeyOfImage(reference string) image.Key {
	id, err := image.ParseID(ImageID(reference))
	if err != nil {
		panic(err) // a mistake in the test
	}
	return image.Key{Digest: id.Digest, Platform: AMD64}
}

// Node returns a node with a Linux of the given architecture.
func Node(name, architecture string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			NodeInfo:  corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: architecture, KubeletVersion: "v1.37.0"},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		},
	}
}

// Pod returns a pod that runs on NodeAMD. Its containers are added by Running, Creating and similar functions.
func Pod(namespace, name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: NodeAMD},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// Running adds a container that runs an image.
func Running(container, reference string) func(*corev1.Pod) {
	return WithContainer(container, reference, corev1.ContainerStatus{ImageID: ImageID(reference)})
}

// Creating adds a container that has not started yet.
func Creating(container, reference string) func(*corev1.Pod) {
	return Waiting(container, reference, "ContainerCreating")
}

// Waiting adds a container that waits for the given reason.
func Waiting(container, reference, reason string) func(*corev1.Pod) {
	return WithContainer(container, reference, corev1.ContainerStatus{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "the kubelet says more"}},
	})
}

// Loaded adds a container whose image only its node knows, by an image ID without a registry.
func Loaded(container, reference string) func(*corev1.Pod) {
	return WithContainer(container, reference, corev1.ContainerStatus{ImageID: Digest("loaded " + reference)})
}

// WithContainer adds a container with the given status.
func WithContainer(name, reference string, status corev1.ContainerStatus) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: reference})
		status.Name, status.Image = name, reference
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
}

// Initialised adds an init container that ran an image.
func Initialised(name, reference string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: reference})
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, Image: reference, ImageID: ImageID(reference)})
	}
}

// Unscheduled makes the pod unschedulable and adds a container.
func Unscheduled(container, reference string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: reference})
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
}

// Mounting adds an image volume that the last container mounts. reported is the image that the node reports for the mount; empty for none.
func Mounting(volume, reference, reported string) func(*corev1.Pod) {
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

// Debugged adds an ephemeral container that runs an image.
func Debugged(name, reference string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: reference, TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways},
		})
		pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name, Image: reference, ImageID: ImageID(reference)})
	}
}

// Labelled sets a label.
func Labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[key] = value
	}
}

// OnNode sets the node.
func OnNode(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = name } }

// InPhase sets the phase.
func InPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// FinishedAt sets the time when all containers finished.
func FinishedAt(at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}
		}
	}
}

// OfCronJob makes the pod belong to a run of a CronJob.
func OfCronJob(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		OwnedBy("batch/v1", "Job", name+"-29401440", "job-uid")(pod)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
}

// PulledWith adds pull secrets.
func PulledWith(secrets ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, secret := range secrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
		}
	}
}

// RunAs sets the ServiceAccount.
func RunAs(account string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = account }
}

// OwnedBy adds an owner that controls the pod.
func OwnedBy(apiVersion, kind, name, uid string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: ptr.To(true),
		})
	}
}

// Scanner returns a Scanner of the type Grype, which the tests map to their own engine.
func Scanner(namespace, name string, changes ...func(*v1alpha1.Scanner)) *v1alpha1.Scanner {
	scanner := &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
	}
	for _, change := range changes {
		change(scanner)
	}
	return scanner
}

// Selecting sets a pod selector with one label.
func Selecting(key, value string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) {
		s.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

// Excluding sets the excluded images.
func Excluding(globs ...string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) { s.Spec.Images.Exclude = globs }
}

// TheScanner returns the Scanner of most tests, with the defaults of the API server.
func TheScanner(changes ...func(*v1alpha1.Scanner)) *v1alpha1.Scanner {
	return Scanner(Namespace, "all", append([]func(*v1alpha1.Scanner){func(s *v1alpha1.Scanner) {
		s.UID, s.Generation, s.Spec.IgnoreLabel, s.Spec.AddPodAnnotation = "scanner-uid", 1, "scanner-operator.io/ignore", ptr.To(true)
		s.Spec.UnusedImageRetention = &metav1.Duration{Duration: 24 * time.Hour}
	}}, changes...)...)
}

// ImageScan returns the ImageScan of a Scanner for an image.
func ImageScan(scanner *v1alpha1.Scanner, reference string, changes ...func(*v1alpha1.ImageScan)) *v1alpha1.ImageScan {
	key := KeyOfImage(reference)
	ref, _ := image.ParseReference(reference)
	scan := &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: scanner.Namespace, Name: strings.TrimPrefix(key.Digest, "sha256:"),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(scanner, v1alpha1.GroupVersion.WithKind("Scanner"))},
		},
		Spec: v1alpha1.ImageScanSpec{
			Digest: key.Digest, DigestType: v1alpha1.DigestManifest, Platform: key.Platform.String(),
			ScannerRef: v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: scanner.Name}, References: []string{ref.String()},
		},
	}
	for _, change := range changes {
		change(scan)
	}
	return scan
}

// Scanned sets the status of an ImageScan whose image has a result.
func Scanned(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseScanned }

// Cataloging sets the status of an ImageScan whose image is being cataloged.
func Cataloging(s *v1alpha1.ImageScan) { s.Status.Phase = v1alpha1.PhaseCataloging }

// Failed sets the status of an ImageScan whose image could not be scanned.
func Failed(s *v1alpha1.ImageScan) {
	s.Status.Phase, s.Status.Attempts = v1alpha1.PhaseFailed, 2
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "ImageNotFound", ObservedGeneration: 1,
	})
}

// Indexer adds indexes to a fake client.
type Indexer struct{ *fakeclient.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (b Indexer) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	b.WithIndex(o, field, values)
	return nil
}
