package controllers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
)

// maxActions is more than the actions of one reconciliation: a rescan request, a catalog, two requests for a match, a match, and the result.
const maxActions = 10

// advance does what is next with the image until it has to wait. It returns the requeue delay; 0 if an event triggers the next reconciliation.
func (r *ImageScanReconciler) advance(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	if err := r.observeUse(ctx, s); err != nil {
		return 0, err
	}
	for n := range maxActions {
		if err := r.readFacts(ctx, s); err != nil {
			return 0, err
		}
		if n == 0 {
			s.recount()
		}
		again, wait, err := r.perform(ctx, s, scan.Next(s.facts))
		var failure *backend.Failure
		if errors.As(err, &failure) {
			return r.recordFailure(s, failure), nil
		}
		if err != nil || !again {
			return wait, err
		}
	}
	return 0, fmt.Errorf("image %s: the engine is done, but its result is not in the store", s.key)
}

// perform carries out a decision. again is true if it changed facts, so that another decision can follow at once. An error that is a
// *backend.Failure is the image's own.
func (r *ImageScanReconciler) perform(ctx context.Context, s *imageScanScope, next scan.Decision) (again bool, wait time.Duration, err error) {
	if next.Cataloged {
		s.adoptCatalog()
	}
	switch next.Action {
	case scan.Retire:
		wait, err = r.retire(ctx, s)
	case scan.Fail:
		err = &backend.Failure{Reason: next.Reason, Message: next.Message, RetryAfter: next.RetryAfter}
	case scan.HandleRescan:
		return true, 0, r.handleRescanRequest(ctx, s)
	case scan.Rematch:
		return true, 0, r.rematch(ctx, s)
	case scan.PollData:
		return true, 0, r.handleMatchRequest(ctx, s)
	case scan.StartCatalog:
		return s.startCatalog(ctx)
	case scan.RequestMatch:
		return s.requestMatch(ctx)
	case scan.Finish:
		s.setResult()
		wait = next.RetryAfter
	default: // Wait
		if next.Reason != "" {
			s.progress = &backend.Progress{Reason: next.Reason, Message: next.Message}
		}
		wait = next.RetryAfter
	}
	return false, wait, err
}

// adoptCatalog shows the catalog that a decision is based on, and has an outdated one made again.
func (s *imageScanScope) adoptCatalog() {
	status := &s.scan.Status
	status.PlatformDigest, status.SBOM, status.VEX = s.facts.Catalog.PlatformDigest, originOf(s.facts.Catalog.Origin), vexOf(s.facts.VEX)
	if refresher, ok := s.backend.(backend.CatalogRefresher); ok {
		refresher.RefreshCatalog(s.image, *s.facts.Catalog)
	}
}

func (s *imageScanScope) startCatalog(ctx context.Context) (done bool, wait time.Duration, err error) {
	progress, err := s.backend.StartCatalog(ctx, s.image)
	if err == nil && !progress.Done {
		s.progress = &progress
	}
	return progress.Done, progress.RequeueAfter, err
}

func (s *imageScanScope) requestMatch(ctx context.Context) (done bool, wait time.Duration, err error) {
	progress, err := s.backend.RequestMatch(ctx, s.image)
	switch {
	case err != nil || progress.Done:
	case s.facts.Failed && s.facts.HasResult: // a retry does not make a failed image ready by its earlier result
	case s.facts.Report != nil:
		// The last result stays in the status until the next one is there. A new build of the data therefore causes no write to etcd by itself.
		s.setResult()
	default:
		s.progress, s.matching = &progress, true
	}
	return progress.Done, progress.RequeueAfter, err
}

// reasonPattern is the format that the API server requires of a condition's reason.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_]{0,62}[A-Za-z0-9])?$`)

// recordFailure records a failure and returns the delay until the next attempt. It replaces a reason that no condition accepts: the reason may come
// from a pod in a tenant's namespace.
func (r *ImageScanReconciler) recordFailure(s *imageScanScope, failure *backend.Failure) time.Duration {
	s.failure = failure
	if !reasonPattern.MatchString(failure.Reason) {
		s.failure = &backend.Failure{Reason: v1alpha1.ReasonBackendError, Message: failure.Message, RetryAfter: failure.RetryAfter}
	}
	status := &s.scan.Status
	if status.Attempts == 0 {
		status.FailedSinceTime = &metav1.Time{Time: r.Clock.Now()}
	}
	status.Attempts++
	wait := scan.Backoff(status.Attempts, failure.RetryAfter, r.Random)
	status.NextAttemptTime = &metav1.Time{Time: r.Clock.Now().Add(wait)}
	return wait
}
