package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// storeDurability reports whether the data directory is on a volume that outlives the process's own pod. If it is not, advice says what to
// do. Outside a cluster the directory counts as durable.
func storeDurability(ctx context.Context, direct client.Reader, o options) (durable bool, advice string, err error) {
	if o.PodName == "" {
		return true, "", nil
	}
	var pod corev1.Pod
	err = direct.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.PodName}, &pod)
	if apierrors.IsNotFound(err) {
		return false, "", fmt.Errorf("--pod-name: there is no pod %s/%s", o.Namespace, o.PodName)
	}
	if err != nil {
		return false, "", err
	}
	durable = onDurableVolume(&pod, o.DataDir)
	if !durable {
		advice = fmt.Sprintf("findings are lost with the operator's pod: mount a PersistentVolumeClaim at %s of the Deployment "+
			"(with OLM: spec.config.volumes and volumeMounts of the Subscription)", o.DataDir)
	}
	return durable, advice, nil
}

// onDurableVolume reports whether the volume that holds a directory outlives the pod. Of several mounts above the directory, the one with
// the longest path counts.
func onDurableVolume(pod *corev1.Pod, dir string) bool {
	dir = filepath.Clean(dir)
	best, name := "", ""
	for _, container := range pod.Spec.Containers {
		for _, mount := range container.VolumeMounts {
			path := strings.TrimSuffix(mount.MountPath, "/")
			if (dir == path || strings.HasPrefix(dir, path+"/")) && len(path) >= len(best) {
				best, name = path, mount.Name
			}
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == name {
			return volume.EmptyDir == nil && volume.Ephemeral == nil
		}
	}
	return false
}
