package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestColumnsOfScanner: kubectl get prints no 0 for what no result says, and says with -o wide why a scanner that is ready may lack findings.
func TestColumnsOfScanner(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Message: "all images are scanned"}
	outdated := metav1.Condition{Type: v1alpha1.ConditionBackendAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDataOutdated, Message: "the database is 200 hours old"}
	anomaly := metav1.Condition{Type: v1alpha1.ConditionBackendAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDataAnomaly, Message: "too many findings are gone"}
	available := metav1.Condition{Type: v1alpha1.ConditionBackendAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable}
	for name, tt := range map[string]struct {
		images     v1alpha1.ImageCounts
		findings   v1alpha1.FindingCounts
		conditions []metav1.Condition
		critical   string
		message    string
	}{
		"no image":               {v1alpha1.ImageCounts{}, v1alpha1.FindingCounts{}, []metav1.Condition{ready, available}, "0", "all images are scanned"},
		"clean":                  {v1alpha1.ImageCounts{Total: 1, Scanned: 1}, v1alpha1.FindingCounts{}, []metav1.Condition{ready, available}, "0", "all images are scanned"},
		"all pending":            {v1alpha1.ImageCounts{Total: 2, Pending: 2}, v1alpha1.FindingCounts{}, nil, "-", ""},
		"all failed":             {v1alpha1.ImageCounts{Total: 2, Failed: 2}, v1alpha1.FindingCounts{}, []metav1.Condition{ready}, "-", "all images are scanned"},
		"all excluded":           {v1alpha1.ImageCounts{Total: 2, Excluded: 2}, v1alpha1.FindingCounts{}, []metav1.Condition{ready}, "-", "all images are scanned"},
		"failed, earlier result": {v1alpha1.ImageCounts{Total: 1, Failed: 1}, v1alpha1.FindingCounts{Critical: 3}, []metav1.Condition{ready}, "3", "all images are scanned"},
		"outdated":               {v1alpha1.ImageCounts{Total: 1, Scanned: 1}, v1alpha1.FindingCounts{}, []metav1.Condition{ready, outdated}, "0", "the database is 200 hours old"},
		"an anomaly":             {v1alpha1.ImageCounts{Total: 1, Scanned: 1}, v1alpha1.FindingCounts{}, []metav1.Condition{ready, anomaly}, "0", "too many findings are gone"},
	} {
		scanner := &v1alpha1.Scanner{Status: v1alpha1.ScannerStatus{Images: tt.images, Findings: tt.findings, Conditions: tt.conditions}}
		scope := &scannerScope{scanner: scanner, scannerFacts: scannerFacts{covered: true, totals: &store.Totals{}}}
		scope.setColumns(now)
		got := scanner.Status.Columns
		if diff := cmp.Diff([]string{tt.critical, tt.message}, []string{got.Critical, got.Message}); diff != "" {
			t.Errorf("%s: critical and message (-want +got):\n%s", name, diff)
		}
	}
}

// TestDataAgeColumn: data of an unknown age is not 0 hours old.
func TestDataAgeColumn(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, age := range map[string]time.Duration{"0h": -time.Hour, "47h": 47 * time.Hour, "2d": 48 * time.Hour, "-": -25 * time.Hour} {
		if got := dataAge(&v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(now.Add(-age))}, now); got != want {
			t.Errorf("data that was built %s ago: %q, want %q", age, got, want)
		}
	}
}
