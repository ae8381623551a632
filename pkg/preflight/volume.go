package preflight

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// volumeWait is how long a store on an ephemeral volume stays unused while Scanners remember one on a durable volume. During an
	// upgrade, OLM 0.38 may run the old version for half a minute without the volumes of its Subscription.
	volumeWait = 2 * time.Minute
	// volumeCheckInterval is the interval between two checks.
	volumeCheckInterval = 5 * time.Second
)

// StoreVolume checks the volume that the operator's store is on.
type StoreVolume struct {
	// Reader must not read from a cache.
	Reader client.Reader
	// Namespace and PodName name the operator's own pod. PodName is empty outside a cluster.
	Namespace, PodName string
	// DataDir is the directory of the store.
	DataDir string
	// OnServer means that the store is a database on a server, which outlives pods.
	OnServer bool
	// Namespaces are those whose Scanners are read; "" stands for all.
	Namespaces []string
	Log        logr.Logger
}

// Durability reports whether the data directory is on a volume that outlives the process's own pod. If it is not, advice says what to do.
// Outside a cluster the directory counts as durable, and so does a server.
func (v StoreVolume) Durability(ctx context.Context) (durable bool, advice string, err error) {
	if v.PodName == "" || v.OnServer {
		return true, "", nil
	}
	var pod corev1.Pod
	err = v.Reader.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: v.PodName}, &pod)
	if apierrors.IsNotFound(err) {
		return false, "", fmt.Errorf("--pod-name: there is no pod %s/%s", v.Namespace, v.PodName)
	}
	if err != nil {
		return false, "", err
	}
	durable = onDurableVolume(&pod, v.DataDir)
	if !durable {
		advice = fmt.Sprintf("findings are lost with the operator's pod: mount a PersistentVolumeClaim at %s of the Deployment "+
			"(with OLM: spec.config.volumes and volumeMounts of the Subscription)", v.DataDir)
	}
	return durable, advice, nil
}

// Wait waits if the store with the given ID is on an ephemeral volume while Scanners remember a store on a durable one. This is usually a
// moment of an upgrade, and the new store would have everything scanned and announced again. If somebody has removed the volume on purpose,
// Wait returns after volumeWait. Meanwhile the process is alive and not ready.
func (v StoreVolume) Wait(ctx context.Context, storeID, probeAddress string) error {
	durable, advice, err := v.Durability(ctx)
	if err != nil || durable {
		return err
	}
	otherScanner, err := scannerOfOtherDurableStore(ctx, v.Reader, v.Namespaces, storeID)
	if err != nil || otherScanner == "" {
		return err
	}
	const waiting = "waiting for the volume with the store that Scanners remember"
	v.Log.Info(waiting, "scanner", otherScanner, "atMost", volumeWait.String(), "advice", advice)
	stop, err := ServeNotReady(ctx, probeAddress, waiting)
	if err != nil {
		return err
	}
	defer stop()
	for began := time.Now(); otherScanner != "" && time.Since(began) < volumeWait; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(volumeCheckInterval):
		}
		if otherScanner, err = scannerOfOtherDurableStore(ctx, v.Reader, v.Namespaces, storeID); err != nil {
			return err
		}
	}
	v.Log.Info("The wait for the volume is over", "storeOnVolume", false)
	return nil
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
