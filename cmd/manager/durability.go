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

// storeDurability looks at the process's own pod: is the data directory on a volume that outlives it? Outside
// a cluster nothing speaks against it.
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

// onDurableVolume finds the volume whose mount holds a directory, the longest path winning as in a file system.
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
