package preflight

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestInstanceConflicts: only an ID that replaces ours in the API server is a sign of another operator, and only for ConflictTimeout.
func TestInstanceConflicts(t *testing.T) {
	const ours, other = "ours", "other"
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	withStore := func(id string) *v1alpha1.Scanner {
		return &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default", UID: "1"}, Status: v1alpha1.ScannerStatus{StoreID: id}}
	}
	recreated := withStore(other)
	recreated.UID = "2"
	for name, tt := range map[string]struct {
		written        string // the last status that we wrote or read; empty: none
		cached, served *v1alpha1.Scanner
		want           bool
	}{
		"a new Scanner":                    {"", withStore(""), withStore(""), false},
		"our ID":                           {ours, withStore(ours), withStore(ours), false},
		"a store that was lost":            {"", withStore(other), withStore(other), false},
		"the ID of a lost store stays":     {other, withStore(other), withStore(other), false},
		"our ID was replaced":              {ours, withStore(other), withStore(other), true},
		"the cache lags behind our write":  {ours, withStore(other), withStore(ours), false},
		"the Scanner was deleted":          {ours, withStore(other), nil, false},
		"another Scanner of the same name": {ours, withStore(other), recreated, false},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if tt.served != nil {
				builder.WithObjects(tt.served)
			}
			server := builder.Build()
			var c InstanceConflicts
			if tt.written != "" {
				c.RecordWrite(withStore(tt.written), ours)
			}
			detect := func(now time.Time, cached *v1alpha1.Scanner) bool {
				found, err := c.Detect(t.Context(), now, server, cached, ours)
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			if got := detect(now, tt.cached); got != tt.want {
				t.Errorf("another operator: %v, want %v", got, tt.want)
			}
			if got := detect(now.Add(ConflictTimeout-time.Second), withStore(ours)); got != tt.want {
				t.Errorf("another operator, just before ConflictTimeout: %v, want %v", got, tt.want)
			}
			if detect(now.Add(ConflictTimeout), withStore(ours)) {
				t.Error("another operator is reported after ConflictTimeout")
			}
		})
	}
}
