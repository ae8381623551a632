package grype

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// catalogRequests remembers the request behind each catalog Job: the image with its references and pull secrets, and the registries that the Job
// must not use. It is empty after a restart.
type catalogRequests struct {
	mu   sync.Mutex
	jobs map[string]catalogRequest // by namespace/name
}

type catalogRequest struct {
	image backend.Image
	// registries are the hosts that the image can be pulled from, without duplicates. throttled has until when registries of the credential
	// scope are throttled: a Job uses only the mirrors of these.
	registries []string
	throttled  map[string]time.Time
	// overBudget means that the Job's result did not fit into the storage budget of its namespace.
	overBudget bool
	// sbomPolicy is the policy by which the Job may use an attested or uploaded SBOM; empty if it has to catalog the image.
	sbomPolicy string
}

// newCatalogRequest returns the request for an image, with the registries as they are now.
func (b *Backend) newCatalogRequest(img backend.Image) catalogRequest {
	request := catalogRequest{image: img, throttled: b.throttles.Throttled(b.Clock.Now(), img.Scope)}
	for _, text := range img.PullReferences {
		ref, err := image.ParseReference(text)
		if err != nil {
			continue // the image's Job reports what is wrong
		}
		host, _, _ := strings.Cut(ref.Repository, "/")
		if host = workerapi.CanonicalHost(host); !slices.Contains(request.registries, host) {
			request.registries = append(request.registries, host)
		}
	}
	return request
}

// isAvoided reports whether the image can be pulled from the registry, but the Job must not use it.
func (q catalogRequest) isAvoided(registry string) bool {
	_, throttled := q.throttled[registry]
	return throttled && slices.Contains(q.registries, registry)
}

func (a *catalogRequests) record(job store.Job, q catalogRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.jobs == nil {
		a.jobs = map[string]catalogRequest{}
	}
	a.jobs[job.Namespace+"/"+job.Name] = q
}

// recordOverBudget records it for the Job with this namespace/name.
func (a *catalogRequests) recordOverBudget(job string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q, found := a.jobs[job]; found {
		q.overBudget = true
		a.jobs[job] = q
	}
}

func (a *catalogRequests) get(job store.Job) (catalogRequest, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, found := a.jobs[job.Namespace+"/"+job.Name]
	return q, found
}

func (a *catalogRequests) remove(job store.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.jobs, job.Namespace+"/"+job.Name)
}

// userFailure returns the failure to show for the Job's image. If the result exceeded the storage budget, that is the failure, however the
// worker reports the refused upload.
func (q catalogRequest) userFailure(failure *backend.Failure) *backend.Failure {
	if !q.overBudget || failure.Reason != workerapi.ReasonUploadRefused {
		return failure
	}
	return &backend.Failure{Reason: v1alpha1.ReasonStoreBudgetExceeded, Message: failure.Message}
}

// hasRegistry reports whether the image can be pulled from the registry. Only such a registry may be recorded as throttled: a Job is not trusted
// about any other.
func (q catalogRequest) hasRegistry(registry string) bool {
	return slices.Contains(q.registries, workerapi.CanonicalHost(registry))
}

// failedByAvoiding reports whether a Job failed only because it did not use a throttled registry. Then the registry itself did not throttle the
// Job.
func (q catalogRequest) failedByAvoiding(failure *backend.Failure) bool {
	return failure.Reason == workerapi.ReasonRegistryThrottled && failure.RetryAfter <= 0 && q.isAvoided(workerapi.CanonicalHost(failure.Registry))
}
