package inventory

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// Names of cache indexes.
const (
	// PodsByDigest indexes pods by the digests of the images that their containers run or their image volumes mount.
	PodsByDigest = "imageDigest"
	// ImageScansByDigest indexes ImageScans by spec.digest and by status.platformDigest.
	ImageScansByDigest = "digest"
	// ImageScansByScanner indexes ImageScans by spec.scannerRef.
	ImageScansByScanner = "spec.scannerRef"
	// ImageScansByScannerDigest indexes ImageScans by spec.scannerRef and spec.digest. A lookup reads one ImageScan per platform. Unlike a
	// lookup by digest alone, its cost does not grow with the number of Scanners.
	ImageScansByScannerDigest = "spec.scannerRef,spec.digest"
)

// ScannerValue returns the value under which ImageScansByScanner indexes an ImageScan. No Scanner has the name of a ClusterScanner's value.
func ScannerValue(scanner v1alpha1.ScannerReference) string {
	if scanner.Kind == v1alpha1.KindClusterScanner {
		return "cluster/" + scanner.Name
	}
	return scanner.Name
}

// ScannerDigest returns the value under which ImageScansByScannerDigest indexes an ImageScan.
func ScannerDigest(scanner v1alpha1.ScannerReference, digest string) string {
	return ScannerValue(scanner) + "," + digest
}

// SetupIndexes adds the cache indexes that the reconcilers need.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range indexes {
		if err := indexer.IndexField(ctx, index.object, index.name, index.values); err != nil {
			return err
		}
	}
	return nil
}

var indexes = []struct {
	object client.Object
	name   string
	values client.IndexerFunc
}{
	{&corev1.Pod{}, PodsByDigest, func(o client.Object) []string {
		var digests []string
		resolved, _ := ImagesOf(o.(*corev1.Pod))
		for _, img := range resolved {
			digests = append(digests, img.ID.Digest)
		}
		return digests
	}},
	{&v1alpha1.ImageScan{}, ImageScansByDigest, func(o client.Object) []string {
		scan := o.(*v1alpha1.ImageScan)
		return slices.Compact([]string{scan.Spec.Digest, scan.Status.PlatformDigest})
	}},
	{&v1alpha1.ImageScan{}, ImageScansByScanner, func(o client.Object) []string {
		return []string{ScannerValue(o.(*v1alpha1.ImageScan).Spec.ScannerRef)}
	}},
	{&v1alpha1.ImageScan{}, ImageScansByScannerDigest, func(o client.Object) []string {
		scan := o.(*v1alpha1.ImageScan)
		return []string{ScannerDigest(scan.Spec.ScannerRef, scan.Spec.Digest)}
	}},
}

// StripPod returns a pod with only the fields that the reconcilers read. It is what the cache keeps. The result shares lists and maps with its
// argument.
func StripPod(pod *corev1.Pod) *corev1.Pod {
	stripped := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp,
			CreationTimestamp: pod.CreationTimestamp,
			Annotations:       ownAnnotations(pod.Annotations), Finalizers: podmark.Finalizers(pod.Finalizers),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, ImagePullSecrets: pod.Spec.ImagePullSecrets, ServiceAccountName: pod.Spec.ServiceAccountName,
			RestartPolicy: pod.Spec.RestartPolicy,
		},
		Status: corev1.PodStatus{
			Phase:                      pod.Status.Phase,
			Conditions:                 stripConditions(pod),
			InitContainerStatuses:      stripStatuses(pod.Status.InitContainerStatuses),
			ContainerStatuses:          stripStatuses(pod.Status.ContainerStatuses),
			EphemeralContainerStatuses: stripStatuses(pod.Status.EphemeralContainerStatuses),
		},
	}
	for _, c := range pod.Spec.InitContainers {
		stripped.Spec.InitContainers = append(stripped.Spec.InitContainers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	for _, c := range pod.Spec.Containers {
		stripped.Spec.Containers = append(stripped.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	for _, c := range pod.Spec.EphemeralContainers {
		stripped.Spec.EphemeralContainers = append(stripped.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image},
		})
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Image != nil {
			stripped.Spec.Volumes = append(stripped.Spec.Volumes, corev1.Volume{Name: volume.Name, VolumeSource: corev1.VolumeSource{
				Image: &corev1.ImageVolumeSource{Reference: volume.Image.Reference},
			}})
		}
	}
	return stripped
}

// stripConditions keeps two facts: that no node can take the pod and, for a pod that has ended, the time since when it is not ready.
func stripConditions(pod *corev1.Pod) (kept []corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			kept = append(kept, corev1.PodCondition{Type: c.Type, Status: c.Status})
		case c.Type == corev1.PodReady && !IsActive(pod):
			kept = append(kept, corev1.PodCondition{Type: c.Type, LastTransitionTime: c.LastTransitionTime})
		}
	}
	return kept
}

// ownAnnotations returns the annotations that this operator sets on pods, and the annotation by which a pod names its receivers. It cuts
// the latter to maxReceiverAnnotation bytes.
func ownAnnotations(all map[string]string) map[string]string {
	var own map[string]string
	for key, value := range all {
		switch {
		case strings.HasSuffix(key, podmark.AnnotationSuffix):
		case key == v1alpha1.AnnotationReceiver:
			value = value[:min(len(value), maxReceiverAnnotation)]
		default:
			continue
		}
		if own == nil {
			own = map[string]string{}
		}
		own[key] = value
	}
	return own
}

func stripStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var stripped []corev1.ContainerStatus
	for _, s := range statuses {
		kept := corev1.ContainerStatus{Name: s.Name, ImageID: s.ImageID}
		if id, err := image.ParseID(s.ImageID); err == nil && id.Bare {
			kept.Image = s.Image
		}
		if s.ImageID == "" && s.State.Waiting != nil {
			kept.State.Waiting = s.State.Waiting
		}
		if s.State.Terminated != nil {
			kept.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: s.State.Terminated.FinishedAt}
		}
		for _, mount := range s.VolumeMounts {
			if mount.VolumeStatus != nil && mount.VolumeStatus.Image != nil {
				kept.VolumeMounts = append(kept.VolumeMounts, corev1.VolumeMountStatus{Name: mount.Name, VolumeStatus: mount.VolumeStatus})
			}
		}
		stripped = append(stripped, kept)
	}
	return stripped
}

// StripNode is a cache transform. It keeps a node's name and what platformOf reads. Other objects pass unchanged.
func StripNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	info := node.Status.NodeInfo
	platform := image.NewPlatform(info.OperatingSystem, info.Architecture, info.KernelVersion)
	return &corev1.Node{
		TypeMeta:   node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem: platform.OS, Architecture: platform.Architecture, KernelVersion: platform.OSVersion,
		}},
	}, nil
}

// StripNamespace is a cache transform. It keeps a namespace's labels, by which exceptions and ClusterScanners select it, and the receivers and
// the Slack channel that it names. Other objects pass unchanged.
func StripNamespace(o any) (any, error) {
	namespace, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	stripped := &metav1.PartialObjectMetadata{
		TypeMeta: namespace.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion, Labels: namespace.Labels,
			DeletionTimestamp: namespace.DeletionTimestamp,
		},
	}
	for _, key := range []string{v1alpha1.AnnotationReceiver, v1alpha1.AnnotationSlackChannel} {
		if value, found := namespace.Annotations[key]; found {
			metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, key, value)
		}
	}
	return stripped, nil
}
