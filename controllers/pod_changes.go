package controllers

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/scanner-operator/scanner-operator/pkg/podmark"
)

// podChanged passes updates that change what other reconcilers read of a pod. The operator's own annotation, which each pod gets, is read
// only by the PodReconciler.
var podChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return before.UID != after.UID || !equality.Semantic.DeepEqual(relevantFields(before), relevantFields(after))
	},
}

// relevantFields returns a pod without its resource version and the operator's own annotations. The result shares the pod's lists.
func relevantFields(pod *corev1.Pod) *corev1.Pod {
	bare := *pod
	bare.ResourceVersion, bare.Generation, bare.ManagedFields, bare.Annotations = "", 0, nil, nil
	for key, value := range pod.Annotations {
		if strings.HasSuffix(key, podmark.AnnotationSuffix) {
			continue
		}
		if bare.Annotations == nil {
			bare.Annotations = map[string]string{}
		}
		bare.Annotations[key] = value
	}
	return &bare
}
