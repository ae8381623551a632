package grype

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// failureTTL is how long a failure is returned for all Scanners that request the same image. It is shorter than the first retry of an
// ImageScan, so that it never suppresses a retry.
const failureTTL = 50 * time.Second

// refusal is why an image gets no catalog Job now.
type refusal struct {
	// err is the *backend.Failure of the image. Otherwise progress says what the image waits for.
	err      error
	progress backend.Progress
	// newJobsOnly means that the image may still use a Job that runs for it, or a catalog that exists.
	newJobsOnly bool
}

// refusalOf returns why an image gets no catalog Job now; nil if it may have one.
func (b *Backend) refusalOf(ctx context.Context, request catalogRequest) (*refusal, error) {
	img := request.image
	if failure := cmp.Or(b.failures.Get(failureKey(img)), b.failures.Get(namespaceFailureKey(img))); failure != nil {
		return &refusal{err: failure}, nil //nolint:nilerr // a failure of the image is the answer, not an error
	}
	if progress, throttled := b.throttledProgress(request); throttled {
		return &refusal{progress: progress}, nil
	}
	// A catalog of another namespace can be reused, but not created: no Job runs on behalf of another namespace.
	if img.Scope != store.Cluster && string(img.Scope) != img.Namespace {
		return &refusal{progress: backend.Waiting(v1alpha1.ReasonPending, "what another namespace knew of the image is gone", time.Second)}, nil
	}
	full, err := b.budget.Exceeded(ctx, img.Namespace)
	if err != nil || full == nil {
		return nil, err
	}
	return &refusal{err: full, newJobsOnly: true}, nil
}

// throttledProgress reports whether an image has to wait because all of its registries are throttled and none of them has a mirror.
func (b *Backend) throttledProgress(request catalogRequest) (backend.Progress, bool) {
	var first time.Time
	for _, host := range request.registries {
		until, throttled := request.throttled[host]
		if !throttled || b.hasMirrors(host) {
			return backend.Progress{}, false
		}
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	if len(request.registries) == 0 {
		return backend.Progress{}, false
	}
	verb := "asks"
	if len(request.registries) > 1 {
		verb = "ask"
	}
	message := fmt.Sprintf("%s %s to wait until %s", strings.Join(request.registries, " and "), verb, first.UTC().Format(time.RFC3339))
	return backend.Waiting(workerapi.ReasonRegistryThrottled, message, max(first.Sub(b.Clock.Now()), time.Second)), true
}

// hasMirrors reports whether the configuration has mirrors for a registry.
func (b *Backend) hasMirrors(host string) bool {
	return slices.ContainsFunc(b.Config.Registries, func(registry config.Registry) bool {
		return workerapi.CanonicalHost(registry.Host) == host && len(registry.Mirrors) > 0
	})
}

// rememberFailure remembers a failure for failureTTL. It is shared by requests with the same image, credential scope, references, pull secrets,
// identity and policy for SBOMs. A Scanner that names a digest at another host therefore fails for nobody else. A failure of a namespace's own storage budget is
// shared only within that namespace.
func (b *Backend) rememberFailure(img backend.Image, failure *backend.Failure) {
	key := failureKey(img)
	if failure.Reason == v1alpha1.ReasonStoreBudgetExceeded {
		key = namespaceFailureKey(img)
	}
	b.failures.Set(key, failure, failureTTL)
}

// failureKey ignores the order of the image's references and pull secrets.
func failureKey(img backend.Image) string {
	return fmt.Sprintf("%s@%s %q %q %q %s", img.Key, img.Scope, sortedNames(img.PullReferences), sortedNames(img.PullSecrets), jobSettings(img).Identity,
		img.SBOMPolicy)
}

// namespaceFailureKey is the key of failures that concern only the image's namespace.
func namespaceFailureKey(img backend.Image) string {
	return fmt.Sprintf("%q %s", img.Namespace, failureKey(img))
}

func sortedNames(names []string) []string { return slices.Sorted(slices.Values(names)) }
