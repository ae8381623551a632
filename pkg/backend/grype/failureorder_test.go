package grype

import (
	"slices"
	"testing"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// TestFailuresAreSharedInAnyOrder: the same references in another order give the remembered failure, without another Job.
func TestFailuresAreSharedInAnyOrder(t *testing.T) {
	e := newEngine(t)
	one := public("web")
	one.PullReferences = append(one.PullReferences, "mirror.example.com/web@"+one.Key.Digest)
	other := one
	other.PullReferences = slices.Clone(one.PullReferences)
	slices.Reverse(other.PullReferences)
	e.setUsed(one)
	e.index(one)
	job := e.job("catalog")
	e.pod(job, terminated(1, "Error", `{"reason":"ImageNotFound","message":"it is not there"}`))
	e.setEndCondition(job, "Failed", "BackoffLimitExceeded", "")
	e.runJobsOnce()
	if got := e.index(one); got != "failure ImageNotFound" {
		t.Fatalf("index says %q, want the failure", got)
	}
	if got := e.index(other); got != "failure ImageNotFound" {
		t.Errorf("with the same references in another order index says %q and there are %d Jobs, want the failure and no other Job (%q)",
			got, len(e.jobs("catalog")), v1alpha1.ReasonCataloging)
	}
}
