package controllers

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// SetOutdatedCRDsCondition sets a condition on all Scanners of some namespaces ("" for all) and on all ClusterScanners: nothing is done for
// them, since the cluster's CustomResourceDefinitions are older than the operator. It must be called while no controller runs. The client must
// not read from a cache.
func SetOutdatedCRDsCondition(ctx context.Context, direct client.Client, namespaces []string, message string) error {
	var errs []error
	for _, namespace := range namespaces {
		var scanners v1alpha1.ScannerList
		errs = append(errs, direct.List(ctx, &scanners, client.InNamespace(namespace)))
		for i := range scanners.Items {
			errs = append(errs, setOutdatedCRDs(ctx, direct, &scanners.Items[i], message))
		}
	}
	clusterWide, err := inventory.ListClusterScanners(ctx, direct)
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) { // the missing kind may be what is outdated
		errs = append(errs, err)
	}
	for _, scanner := range clusterWide {
		errs = append(errs, setOutdatedCRDs(ctx, direct, scanner, message))
	}
	return errors.Join(errs...)
}

func setOutdatedCRDs(ctx context.Context, direct client.Client, scanner v1alpha1.GenericScanner, message string) error {
	before := copyOf(scanner)
	conditions := &scanner.ScannerStatus().Conditions
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: scanner.GetGeneration(),
		Reason: v1alpha1.ReasonOutdatedKinds, Message: truncate(message, v1alpha1.MaxMessageBytes),
	}
	meta.SetStatusCondition(conditions, condition)
	setWhileTrue(conditions, v1alpha1.ConditionReconciling, false, condition.Reason, condition.Message, scanner.GetGeneration())
	setWhileTrue(conditions, v1alpha1.ConditionStalled, true, condition.Reason, condition.Message, scanner.GetGeneration())
	if equality.Semantic.DeepEqual(before.ScannerStatus(), scanner.ScannerStatus()) {
		return nil
	}
	if err := direct.Status().Patch(ctx, scanner, client.MergeFrom(before)); err != nil {
		return err // without the condition, each call would create another event
	}
	if ready := meta.FindStatusCondition(before.ScannerStatus().Conditions, v1alpha1.ConditionReady); ready != nil && ready.Reason == condition.Reason {
		return nil
	}
	return direct.Create(ctx, eventOf(scanner, condition.Reason, message))
}

// eventOf returns a warning about a scanner, for use while no event recorder runs. Like the recorder's, an event about a ClusterScanner is in the
// namespace default.
func eventOf(scanner v1alpha1.GenericScanner, reason, message string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(scanner.GetNamespace(), metav1.NamespaceDefault), GenerateName: scanner.GetName() + "-"},
		EventTime:  metav1.NowMicro(), Type: corev1.EventTypeWarning, Reason: reason, Action: "Scan", Note: truncate(message, maxEventNote),
		ReportingController: "scanner-operator", ReportingInstance: "scanner-operator",
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: string(scanner.ScannerKind()), Namespace: scanner.GetNamespace(), Name: scanner.GetName(),
			UID: scanner.GetUID(),
		},
	}
}
