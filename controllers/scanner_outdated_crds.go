package controllers

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// SetOutdatedCRDsCondition sets a condition on all Scanners of some namespaces ("" for all): nothing is done for them, since the cluster's
// CustomResourceDefinitions are older than the operator. It must be called while no controller runs. The client must not read from a cache.
func SetOutdatedCRDsCondition(ctx context.Context, direct client.Client, namespaces []string, message string) error {
	var errs []error
	for _, namespace := range namespaces {
		var scanners v1alpha1.ScannerList
		errs = append(errs, direct.List(ctx, &scanners, client.InNamespace(namespace)))
		for i := range scanners.Items {
			scanner := &scanners.Items[i]
			before := scanner.DeepCopy()
			condition := metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: scanner.Generation,
				Reason: v1alpha1.ReasonOutdatedKinds, Message: truncate(message, v1alpha1.MaxMessageBytes),
			}
			meta.SetStatusCondition(&scanner.Status.Conditions, condition)
			setWhileTrue(&scanner.Status.Conditions, v1alpha1.ConditionReconciling, false, condition.Reason, condition.Message, scanner.Generation)
			setWhileTrue(&scanner.Status.Conditions, v1alpha1.ConditionStalled, true, condition.Reason, condition.Message, scanner.Generation)
			if equality.Semantic.DeepEqual(before.Status, scanner.Status) {
				continue
			}
			if err := direct.Status().Patch(ctx, scanner, client.MergeFrom(before)); err != nil {
				errs = append(errs, err)
				continue // without the condition, each call would create another event
			}
			if ready := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != condition.Reason {
				errs = append(errs, direct.Create(ctx, eventOf(scanner, condition.Reason, message)))
			}
		}
	}
	return errors.Join(errs...)
}

// eventOf returns a warning about a Scanner, for use while no event recorder runs.
func eventOf(scanner *v1alpha1.Scanner, reason, message string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: scanner.Namespace, GenerateName: scanner.Name + "-"},
		EventTime:  metav1.NowMicro(), Type: corev1.EventTypeWarning, Reason: reason, Action: "Scan", Note: truncate(message, maxEventNote),
		ReportingController: "scanner-operator", ReportingInstance: "scanner-operator",
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Scanner", Namespace: scanner.Namespace, Name: scanner.Name, UID: scanner.UID,
		},
	}
}
