package backend

import (
	"maps"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Types of workers, used in the Job's name and component label.
const (
	CatalogWorker = "catalog"
	MatchWorker   = "match"
)

const componentLabel = "app.kubernetes.io/component"

// workerLabels are on every Job and pod of the operator.
var workerLabels = map[string]string{"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/managed-by": "scanner-operator"}

// workerNames matches the names of workers' Jobs. The admission policy in config/policy/jobs.yaml accepts no other names from the manager.
var workerNames = regexp.MustCompile(`^scan-(catalog|match)-[a-z0-9]+$`)

// WorkerName returns the name of a new Job for a worker of a type. random returns a string of the given length in lower case letters and digits.
func WorkerName(worker string, random func(int) string) string {
	return "scan-" + worker + "-" + random(10)
}

// WorkerLabels returns the labels of the Job and pod of a worker of a type. The caller may change them.
func WorkerLabels(worker string) map[string]string {
	all := maps.Clone(workerLabels)
	all[componentLabel] = worker
	return all
}

// WorkerSelector selects Jobs with the labels of workers. Other Jobs may have these labels too: see IsWorker.
func WorkerSelector() labels.Selector { return labels.SelectorFromSet(workerLabels) }

// IsWorker reports whether a Job looks like one of the operator's. Anybody may put the operator's labels on a Job, so the name and the
// component label must match as well.
func IsWorker(job metav1.Object) bool { return isWorker(job.GetName(), job.GetLabels()) }

// IsWorkerPod reports whether a pod belongs to a Job for which IsWorker holds.
func IsWorkerPod(pod metav1.Object) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && isWorker(owner.Name, pod.GetLabels())
}

func isWorker(job string, given labels.Set) bool {
	name := workerNames.FindStringSubmatch(job)
	return name != nil && name[1] == given[componentLabel] && labels.SelectorFromSet(workerLabels).Matches(given)
}
