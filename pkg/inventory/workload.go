package inventory

import (
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cronJobSuffix is what the CronJob controller appends to its own name for a Job: the scheduled time in minutes since 1970
// (https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/cronjob/utils.go).
var cronJobSuffix = regexp.MustCompile(`-[0-9]{8}$`)

// workloadOf returns the workload that users deployed to get this pod: its owner or, if the names that Kubernetes' own controllers generate
// reveal it, the owner's owner. It reads no further object, so that no further kind has to be watched.
func workloadOf(pod *corev1.Pod) (kind, name string) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "Pod", pod.Name
	}
	switch owner.Kind {
	case "ReplicaSet":
		// A Deployment names its ReplicaSets <name>-<hash> and labels their pods with the hash.
		hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		if deployment, found := strings.CutSuffix(owner.Name, "-"+hash); found && hash != "" {
			return "Deployment", deployment
		}
	case "Job":
		if suffix := cronJobSuffix.FindString(owner.Name); suffix != "" {
			return "CronJob", strings.TrimSuffix(owner.Name, suffix)
		}
	}
	return owner.Kind, owner.Name
}
