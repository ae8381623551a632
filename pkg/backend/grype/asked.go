package grype

import (
	"slices"
	"sync"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// asked remembers for which image Jobs were made, with its references and pull secrets, and which registries they were to
// leave alone. After a restart nothing is known of the Jobs of before.
type asked struct {
	mu   sync.Mutex
	jobs map[string]question // by namespace and name
}

type question struct {
	image  backend.Image
	spared []string
	// overBudget says that what the Job brought found no room in its namespace's budget.
	overBudget bool
}

func (a *asked) note(job store.Job, q question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.jobs == nil {
		a.jobs = map[string]question{}
	}
	a.jobs[job.Namespace+"/"+job.Name] = q
}

func (a *asked) overBudget(job store.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q, found := a.jobs[job.Namespace+"/"+job.Name]; found {
		q.overBudget = true
		a.jobs[job.Namespace+"/"+job.Name] = q
	}
}

func (a *asked) of(job store.Job) (question, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, found := a.jobs[job.Namespace+"/"+job.Name]
	return q, found
}

func (a *asked) forget(job store.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.jobs, job.Namespace+"/"+job.Name)
}

// shown is the failure that a Job's image has. A result without room in the namespace's budget is a failure of that namespace, whatever its
// worker calls it.
func (q question) shown(failure *backend.Failure) *backend.Failure {
	if !q.overBudget || failure.Reason != workerapi.ReasonUploadRefused {
		return failure
	}
	return &backend.Failure{Reason: v1alpha1.ReasonStoreBudgetExceeded, Message: failure.Message}
}

// names says that a registry is one of those that the image can be pulled from. Only such a one may ask to be left alone: a
// Job speaks for no other.
func (q question) names(registry string) bool {
	return slices.Contains(registriesOf(q.image), workerapi.CanonicalHost(registry))
}

// sparedOnly says that a Job failed because it left a registry alone: the registry itself said nothing.
func (q question) sparedOnly(failure *backend.Failure) bool {
	return failure.Reason == workerapi.ReasonRegistryThrottled && failure.RetryAfter <= 0 &&
		slices.Contains(q.spared, workerapi.CanonicalHost(failure.Registry))
}
