package controllers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
)

// setStoreID changes the store ID in the Scanner's status, as another operator or a lost store does.
func (u *unit) setStoreID(id string) {
	u.t.Helper()
	var scanner v1alpha1.Scanner
	u.must(u.client.Get(u.t.Context(), client.ObjectKeyFromObject(theScanner()), &scanner))
	scanner.Status.StoreID = id
	u.must(u.client.Status().Update(u.t.Context(), &scanner))
}

func (u *unit) readyReason() string {
	u.t.Helper()
	return meta.FindStatusCondition(u.reconcileScanner().Status.Conditions, v1alpha1.ConditionReady).Reason
}

// TestOperatorConflict: both of two operators in the cluster report the other one, and stop when it is gone.
func TestOperatorConflict(t *testing.T) {
	first, second := newUnit(t, theScanner()), newUnit(t)
	second.client, second.clock = first.client, first.clock
	second.scanners.Client, second.scanners.Reader, second.scanners.Clock = first.client, first.client, first.clock
	second.inventory.Client = first.client
	for range 2 {
		first.readyReason()
		first.advanceClock(20 * time.Second)
		second.readyReason()
		first.advanceClock(40 * time.Second)
	}
	for name, u := range map[string]*unit{"first": first, "second": second} {
		if got := u.readyReason(); got != v1alpha1.ReasonAnotherOperator {
			t.Errorf("the %s operator says %s two minutes after the second one came, want AnotherOperator", name, got)
		}
	}
	first.advanceClock(preflight.ConflictTimeout)
	first.readyReason() // overwrites the second operator's last store ID
	first.advanceClock(preflight.ConflictTimeout)
	if got := first.readyReason(); got != v1alpha1.ReasonNoImages {
		t.Errorf("long after the second operator has gone: %s, want NoImages", got)
	}
}

// TestLostStoreIsNoConflict: a lost store is not taken for another operator.
func TestLostStoreIsNoConflict(t *testing.T) {
	u := newUnit(t, theScanner())
	u.setStoreID("the one that was lost")
	for range 3 {
		if got := u.readyReason(); got != v1alpha1.ReasonNoImages {
			t.Errorf("after the store was lost: %s, want NoImages", got)
		}
		u.advanceClock(preflight.ConflictInterval)
	}
}
