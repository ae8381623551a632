package controllers

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// uncontactedEngine is an engine that nothing has contacted until its data version is read. Meanwhile a request ends.
type uncontactedEngine struct {
	*scriptedEngine
	contacted bool
}

func (e *uncontactedEngine) AvailabilityKnown() bool { return e.contacted }

func (e *uncontactedEngine) DataVersion(ctx context.Context) (store.DataVersion, error) {
	e.contacted = true
	return e.scriptedEngine.DataVersion(ctx)
}

// TestConditionOfUncontactedEngine: a condition that was False is kept while the availability of the engine is unknown, unless it is about
// another engine.
func TestConditionOfUncontactedEngine(t *testing.T) {
	down := metav1.Condition{
		Type: v1alpha1.ConditionBackendAvailable, Status: metav1.ConditionFalse, Reason: backend.ReasonClairUnavailable, Message: "no answer",
		ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
	}
	up, disabled, another := down, down, down
	up.Status, up.Reason = metav1.ConditionTrue, v1alpha1.ReasonAvailable
	disabled.Reason = v1alpha1.ReasonBackendDisabled
	another.ObservedGeneration = 0
	for name, tt := range map[string]struct {
		before    []metav1.Condition
		contacted bool
		kept      bool
	}{
		"a request fails during the read": {before: []metav1.Condition{down}, kept: true},
		"contacted before the read":       {before: []metav1.Condition{down}, contacted: true},
		"no condition yet":                {},
		"available before":                {before: []metav1.Condition{up}},
		"disabled before":                 {before: []metav1.Condition{disabled}},
		"another generation":              {before: []metav1.Condition{another}},
	} {
		t.Run(name, func(t *testing.T) {
			engine := &uncontactedEngine{&scriptedEngine{}, tt.contacted}
			got, data, err := engineCondition(t.Context(), theScanner(func(s *v1alpha1.Scanner) { s.Status.Conditions = tt.before }), engine)
			if err != nil {
				t.Fatal(err)
			}
			if kept := got == down; kept != tt.kept || (data == nil) != tt.kept || !kept && got.Reason != v1alpha1.ReasonAvailable {
				t.Errorf("the condition is %+v with data %v; want it kept: %v", got, data, tt.kept)
			}
		})
	}
}
