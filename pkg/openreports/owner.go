package openreports

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kinds are the kinds of workloads that can own a Report. The inventory knows workloads of other kinds by their names only.
var kinds = map[string]schema.GroupVersion{
	"Deployment": appsv1.SchemeGroupVersion, "StatefulSet": appsv1.SchemeGroupVersion, "DaemonSet": appsv1.SchemeGroupVersion,
	"ReplicaSet": appsv1.SchemeGroupVersion, "CronJob": batchv1.SchemeGroupVersion, "Job": batchv1.SchemeGroupVersion, "Pod": corev1.SchemeGroupVersion,
}

// ownerOf returns a reference to a workload, so that the API server deletes its Report with it; nil if the workload has no known kind, is gone, or
// may not be read. Only the workload's metadata is read.
func ownerOf(ctx context.Context, reader client.Reader, w workload) (*metav1.OwnerReference, error) {
	version, known := kinds[w.kind]
	if !known {
		return nil, nil
	}
	var object metav1.PartialObjectMetadata
	object.SetGroupVersionKind(version.WithKind(w.kind))
	err := reader.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: w.name}, &object)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &metav1.OwnerReference{APIVersion: version.String(), Kind: w.kind, Name: w.name, UID: object.UID}, nil
}
