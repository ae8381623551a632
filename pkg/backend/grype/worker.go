package grype

import (
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// What a worker does, in its Job's name and component label.
const (
	catalogWorker = "catalog"
	matchWorker   = "match"
)

const componentLabel = "app.kubernetes.io/component"

// workerLabels are on every Job and pod of the operator.
var workerLabels = map[string]string{"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/managed-by": "scanner-operator"}

// workerNames are what workers' Jobs are called; config/policy/jobs.yaml takes no others from the manager.
var workerNames = regexp.MustCompile(`^scan-(catalog|match)-[a-z0-9]+$`)

func workerName(component string, random func(int) string) string {
	return "scan-" + component + "-" + random(10)
}

// WorkerSelector selects Jobs that may be workers'.
func WorkerSelector() labels.Selector { return labels.SelectorFromSet(workerLabels) }

// IsWorker says whether a Job looks like the operator's. Anybody may put its labels on a Job of their own, so that the name
// and the component have to fit as well.
func IsWorker(job metav1.Object) bool { return isWorker(job.GetName(), job.GetLabels()) }

// IsWorkerPod says the same of the pod of such a Job.
func IsWorkerPod(pod metav1.Object) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && isWorker(owner.Name, pod.GetLabels())
}

func isWorker(job string, given labels.Set) bool {
	name := workerNames.FindStringSubmatch(job)
	return name != nil && name[1] == given[componentLabel] && labels.SelectorFromSet(workerLabels).Matches(given)
}
