package scan

import (
	"context"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// statements is a store with what the documents about an image amount to by policy.
type statements struct {
	Store
	by map[string]store.VEXSummary
}

func (s statements) VEXSummary(_ context.Context, _ store.Subject, policy string) (store.VEXSummary, error) {
	if summary, found := s.by[policy]; found {
		return summary, nil
	}
	return store.VEXSummary{}, store.ErrNotFound
}

// TestReadVEX: an image whose documents were never read by a policy is not one without documents.
func TestReadVEX(t *testing.T) {
	s := statements{by: map[string]store.VEXSummary{"read": {}}}
	for policy, want := range map[string]string{"read": "", "later": "Scan the image again"} {
		got, err := readVEX(t.Context(), s, store.Subject{}, policy)
		if err != nil || got == nil || got.Statements != 0 || (got.Problem == "") != (want == "") || !strings.Contains(got.Problem, want) {
			t.Errorf("policy %s: %+v, %v, want a problem with %q", policy, got, err, want)
		}
	}
}
