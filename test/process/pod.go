package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OfPod returns the ID of the process of a pod's only container on this machine. It searches for the cgroup whose path contains the container ID.
func OfPod(pod *corev1.Pod) (pid int, err error) {
	for _, container := range pod.Status.ContainerStatuses {
		_, id, known := strings.Cut(container.ContainerID, "://")
		if container.State.Running == nil || !known {
			continue
		}
		groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
		if err != nil {
			return 0, err
		}
		for _, file := range groups {
			if group, err := os.ReadFile(file); err == nil && strings.Contains(string(group), id) {
				return strconv.Atoi(filepath.Base(filepath.Dir(file)))
			}
		}
	}
	return 0, errors.New("the container does not run")
}
