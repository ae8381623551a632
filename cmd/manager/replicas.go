package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// managerLabels select the pods of the manager's Deployment, whichever installer made it.
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "scanner-operator", "app.kubernetes.io/component": "manager"}

// replicas returns the manager's pods, ordered by name, and which of them leads. It is empty outside of a cluster.
func (op *operator) replicas(ctx context.Context) (all []restv1.Replica, err error) {
	if op.options.PodName == "" {
		return nil, nil
	}
	reader := op.manager.GetAPIReader()
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(op.options.Namespace), managerLabels); err != nil {
		return nil, fmt.Errorf("listing the manager's pods: %w", err)
	}
	var lease coordinationv1.Lease
	err = reader.Get(ctx, types.NamespacedName{Namespace: op.options.Namespace, Name: managerName}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the manager's lease: %w", err)
	}
	leader := op.leaderOf(&lease)
	for i := range pods.Items {
		all = append(all, replicaOf(&pods.Items[i], &lease, leader))
	}
	slices.SortFunc(all, func(a, b restv1.Replica) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// leaderOf returns the name of the pod that holds the lease; empty if nobody holds it. The identity of a manager with a store in a file does not
// have the name of its pod, but only the manager that holds the lock of the file answers requests.
func (op *operator) leaderOf(lease *coordinationv1.Lease) string {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == op.identity {
		return op.options.PodName
	}
	name, _, _ := strings.Cut(holder, "_")
	return name
}

// replicaOf describes a pod of the manager. A pod that took over the lease of one with the same store leads since its own start.
func replicaOf(pod *corev1.Pod, lease *coordinationv1.Lease, leader string) restv1.Replica {
	r := restv1.Replica{Name: pod.Name, Node: pod.Spec.NodeName, Ending: pod.DeletionTimestamp != nil, StartTime: pod.CreationTimestamp.UTC(), Leads: pod.Name == leader}
	if r.Leads && lease.Spec.AcquireTime != nil {
		r.LeadsSince = slices.MaxFunc([]time.Time{lease.Spec.AcquireTime.UTC(), r.StartTime}, time.Time.Compare)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			r.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	return r
}
