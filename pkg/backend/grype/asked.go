package grype

import (
	"slices"
	"sync"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// asked remembers the request behind each catalog Job: the image with its references and pull secrets, and the registries that the Job
// must not use. It is empty after a restart.
type asked struct {
	mu   sync.Mutex
	jobs map[string]question // by namespace/name
}

type question struct {
	image  backend.Image
	spared []string
	// overBudget means that the Job's result did not fit into the storage budget of its namespace.
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

// shown returns the failure to show for the Job's image. If the result exceeded the storage budget, that is the failure, however the
// worker reports the refused upload.
func (q question) shown(failure *backend.Failure) *backend.Failure {
	if !q.overBudget || failure.Reason != workerapi.ReasonUploadRefused {
		return failure
	}
	return &backend.Failure{Reason: v1alpha1.ReasonStoreBudgetExceeded, Message: failure.Message}
}

// names reports whether the image can be pulled from the registry. Only such a registry may be recorded as throttled: a Job is not trusted
// about any other.
func (q question) names(registry string) bool {
	return slices.Contains(registriesOf(q.image), workerapi.CanonicalHost(registry))
}

// sparedOnly reports whether a Job failed only because it did not use a throttled registry. Then the registry itself did not throttle the
// Job.
func (q question) sparedOnly(failure *backend.Failure) bool {
	return failure.Reason == workerapi.ReasonRegistryThrottled && failure.RetryAfter <= 0 &&
		slices.Contains(q.spared, workerapi.CanonicalHost(failure.Registry))
}
