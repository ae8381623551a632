package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	for i := range pods.Items {
		all = append(all, replicaOf(&pods.Items[i], &lease))
	}
	slices.SortFunc(all, func(a, b restv1.Replica) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// replicaOf describes a pod of the manager. The holder of the lease is the pod's name, "_" and a UUID (controller-runtime, pkg/leaderelection).
func replicaOf(pod *corev1.Pod, lease *coordinationv1.Lease) restv1.Replica {
	r := restv1.Replica{Name: pod.Name, Node: pod.Spec.NodeName, Ending: pod.DeletionTimestamp != nil, StartTime: pod.CreationTimestamp.UTC()}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		name, _, _ := strings.Cut(*holder, "_")
		r.Leads = name == pod.Name
	}
	if r.Leads && lease.Spec.AcquireTime != nil {
		r.LeadsSince = lease.Spec.AcquireTime.UTC()
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			r.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	return r
}
