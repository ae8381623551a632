package controllers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
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
	first.advanceClock(conflictTimeout)
	first.readyReason() // overwrites the second operator's last store ID
	first.advanceClock(conflictTimeout)
	if got := first.readyReason(); got != v1alpha1.ReasonNoImages {
		t.Errorf("long after the second operator has gone: %s, want NoImages", got)
	}
}

// TestLostStoreIsNoConflict: neither a lost store nor a lagging cache is taken for another operator.
func TestLostStoreIsNoConflict(t *testing.T) {
	u := newUnit(t, theScanner())
	u.setStoreID("the one that was lost")
	for range 3 {
		if got := u.readyReason(); got != v1alpha1.ReasonNoImages {
			t.Errorf("after the store was lost: %s, want NoImages", got)
		}
		u.advanceClock(conflictInterval)
	}
	old := &v1alpha1.Scanner{ObjectMeta: theScanner().ObjectMeta, Status: v1alpha1.ScannerStatus{StoreID: "what the cache still shows"}}
	if conflict, err := u.scanners.conflicts.detect(t.Context(), u.clock, u.client, old, u.store.ID()); conflict || err != nil {
		t.Errorf("a lagging cache is taken for another operator (%v)", err)
	}
}
