package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestOutdatedCRDsOfScanners: Scanners and ClusterScanners report outdated CustomResourceDefinitions in a condition and, once, in an event.
func TestOutdatedCRDsOfScanners(t *testing.T) {
	clusterWide := &v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "platform"}}
	c := fakeclient.NewClientBuilder().WithScheme(newTestScheme()).WithObjects(theScanner(), clusterWide).
		WithStatusSubresource(&v1alpha1.Scanner{}, &v1alpha1.ClusterScanner{}).Build()
	for range 2 {
		if err := SetOutdatedCRDsCondition(t.Context(), c, []string{""}, "apply them"); err != nil {
			t.Fatal(err)
		}
	}
	for _, scanner := range []v1alpha1.GenericScanner{theScanner(), clusterWide} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner); err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[string]metav1.ConditionStatus{v1alpha1.ConditionReady: metav1.ConditionFalse, v1alpha1.ConditionStalled: metav1.ConditionTrue} {
			got := meta.FindStatusCondition(scanner.ScannerStatus().Conditions, kind)
			if got == nil || got.Status != want || got.Reason != v1alpha1.ReasonOutdatedKinds || got.Message != "apply them" {
				t.Errorf("%s: the condition %s is %+v, want %s with the reason", scanner.ScannerKind(), kind, got, want)
			}
		}
	}
	var events eventsv1.EventList
	if err := c.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events.Items {
		got = append(got, e.Namespace+": "+e.Regarding.Kind+" "+e.Regarding.Namespace+"/"+e.Regarding.Name+" "+e.Reason)
	}
	want := []string{"default: ClusterScanner /platform OutdatedKinds", fixtureNamespace + ": Scanner " + fixtureNamespace + "/" + theScanner().Name + " OutdatedKinds"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
