package inventory

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	. "github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
)

// TestSelects: which pods a Scanner is responsible for.
func TestSelects(t *testing.T) {
	now := metav1.NewTime(Noon)
	ofWorker := slices.Clip([]func(*corev1.Pod){
		Labelled("app.kubernetes.io/name", "scanner-operator"), Labelled("app.kubernetes.io/managed-by", "scanner-operator"),
		Labelled("app.kubernetes.io/component", "catalog"),
	})
	for name, tt := range map[string]struct {
		scanner *v1alpha1.Scanner
		pod     *corev1.Pod
		want    bool
	}{
		"no selector":         {TheScanner(), Pod(Namespace, "a"), true},
		"an empty selector":   {TheScanner(func(s *v1alpha1.Scanner) { s.Spec.PodSelector = &metav1.LabelSelector{} }), Pod(Namespace, "a"), true},
		"the label":           {TheScanner(Selecting("a", "b")), Pod(Namespace, "a", Labelled("a", "b")), true},
		"another value":       {TheScanner(Selecting("a", "b")), Pod(Namespace, "a", Labelled("a", "c")), false},
		"no label":            {TheScanner(Selecting("a", "b")), Pod(Namespace, "a"), false},
		"ignored":             {TheScanner(), Pod(Namespace, "a", Labelled("scanner-operator.io/ignore", "true")), false},
		"ignored, not quite":  {TheScanner(), Pod(Namespace, "a", Labelled("scanner-operator.io/ignore", "yes")), true},
		"selected, ignored":   {TheScanner(Selecting("a", "b")), Pod(Namespace, "a", Labelled("a", "b"), Labelled("scanner-operator.io/ignore", "true")), false},
		"pending":             {TheScanner(), Pod(Namespace, "a", InPhase(corev1.PodPending)), true},
		"succeeded":           {TheScanner(), Pod(Namespace, "a", InPhase(corev1.PodSucceeded)), false},
		"failed":              {TheScanner(), Pod(Namespace, "a", InPhase(corev1.PodFailed)), false},
		"a worker":            {TheScanner(), Pod(Namespace, "a", append(ofWorker, OwnedBy("batch/v1", "Job", "scan-catalog-x1", "u"))...), false},
		"only like a worker":  {TheScanner(), Pod(Namespace, "a", ofWorker...), true},
		"another Job's":       {TheScanner(), Pod(Namespace, "a", append(ofWorker, OwnedBy("batch/v1", "Job", "backup-x1", "u"))...), true},
		"a Scanner that goes": {TheScanner(func(s *v1alpha1.Scanner) { s.DeletionTimestamp = &now }), Pod(Namespace, "a"), false},
		"a selector that the API server could not check": {TheScanner(func(s *v1alpha1.Scanner) {
			s.Spec.PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}), Pod(Namespace, "a"), false},
	} {
		if got := IsActive(tt.pod) && coversPod(tt.scanner, tt.pod); got != tt.want {
			t.Errorf("%s: selected is %v, want %v", name, got, tt.want)
		}
	}
}
