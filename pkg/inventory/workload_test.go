package inventory

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	. "github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
)

// TestWorkloadOf: the workload that users deployed to get a pod.
func TestWorkloadOf(t *testing.T) {
	hash := func(value string) func(*corev1.Pod) { return Labelled("pod-template-hash", value) }
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a bare pod":                        {Pod(Namespace, "x"), "Pod/x"},
		"of a Deployment":                   {Pod(Namespace, "x", hash("5d4f8"), OwnedBy("apps/v1", "ReplicaSet", "web-5d4f8", "u")), "Deployment/web"},
		"of a Deployment with dashes":       {Pod(Namespace, "x", hash("5d4f8"), OwnedBy("apps/v1", "ReplicaSet", "a-b-5d4f8", "u")), "Deployment/a-b"},
		"of a ReplicaSet":                   {Pod(Namespace, "x", OwnedBy("apps/v1", "ReplicaSet", "web-5d4f8", "u")), "ReplicaSet/web-5d4f8"},
		"of a ReplicaSet with another hash": {Pod(Namespace, "x", hash("other"), OwnedBy("apps/v1", "ReplicaSet", "web-5d4f8", "u")), "ReplicaSet/web-5d4f8"},
		"of a CronJob":                      {Pod(Namespace, "x", OwnedBy("batch/v1", "Job", "nightly-29401440", "u")), "CronJob/nightly"},
		"of a Job":                          {Pod(Namespace, "x", OwnedBy("batch/v1", "Job", "migrate-2024", "u")), "Job/migrate-2024"},
		"of a Job that ends in a date":      {Pod(Namespace, "x", OwnedBy("batch/v1", "Job", "run-20240101x", "u")), "Job/run-20240101x"},
		"of a StatefulSet":                  {Pod(Namespace, "x", OwnedBy("apps/v1", "StatefulSet", "db", "u")), "StatefulSet/db"},
		"of a DaemonSet":                    {Pod(Namespace, "x", OwnedBy("apps/v1", "DaemonSet", "agent", "u")), "DaemonSet/agent"},
		"of a node":                         {Pod(Namespace, "x", OwnedBy("v1", "Node", "node-1", "u")), "Node/node-1"},
		"of something else":                 {Pod(Namespace, "x", OwnedBy("argoproj.io/v1alpha1", "Workflow", "w", "u")), "Workflow/w"},
		"with an owner that does not control": {
			func() *corev1.Pod {
				pod := Pod(Namespace, "x", OwnedBy("apps/v1", "ReplicaSet", "web-1", "u"))
				pod.OwnerReferences[0].Controller = ptr.To(false)
				return pod
			}(), "Pod/x",
		},
	} {
		kind, workload := workloadOf(tt.pod)
		if got := kind + "/" + workload; got != tt.want {
			t.Errorf("%s: the workload is %s, want %s", name, got, tt.want)
		}
	}
}
