package controllers

import (
	"context"
	"errors"
	"time"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// observeUse sets the facts about the use of the image, and records in the store which workloads run it. It stops at facts that let nothing
// else be done.
func (r *ImageScanReconciler) observeUse(ctx context.Context, s *imageScanScope) error {
	err := r.findUses(ctx, s)
	s.facts = scan.Facts{
		Unused: len(s.uses.Running) == 0, PlatformUnknown: !s.uses.Complete, BareImageID: s.scan.Spec.DigestType == v1alpha1.DigestImageID,
		Refused: s.refused, Suspended: isSuspended(s.scanner), Engine: s.scanner.Settings().Backend.Type, EngineDisabled: s.backend == nil,
		CatalogedAs: s.scan.Status.PlatformDigest,
	}
	if err != nil || s.uses.Unknown() {
		return err
	}
	if fault := r.Store.Health(); fault != nil {
		s.facts.StoreProblem = &backend.Failure{Reason: storeReasons[store.StorageFault(fault)], Message: fault.Error()}
		return nil
	}
	if err := r.recordUse(ctx, s); err != nil {
		return err
	}
	if !s.facts.Unused {
		s.scan.Status.UnusedSinceTime = nil
		return nil
	}
	s.setUnusedSince(r.Clock.Now())
	if s.facts.Retention = r.untilRetirement(s); s.facts.Retention > 0 {
		s.facts.StaysInUse, err = r.staysInUse(ctx, s)
	}
	return err
}

// readFacts sets the facts that actions change: what was attempted and requested, and what the store and the engine have for the image.
func (r *ImageScanReconciler) readFacts(ctx context.Context, s *imageScanScope) error {
	f, status := &s.facts, &s.scan.Status
	f.Now = r.Clock.Now()
	f.HasResult, f.Failed, f.NextAttempt = status.Findings != nil, status.Phase == v1alpha1.PhaseFailed, time.Time{}
	if next := status.NextAttemptTime; next != nil {
		f.NextAttempt = next.Time
	}
	request := digestOfRequest(rescanRequestOf(s.scanner))
	f.RescanRequested = request != "" && request != status.HandledRequest
	f.Recreated = r.deleted.has(s.scannerImage(), f.Now)
	_, requested := s.scan.Annotations[v1alpha1.AnnotationMatchRequested]
	f.MatchRequested = requested && !s.matchRequestHandled
	if s.backend == nil || f.StoreProblem != nil || f.Unused && f.PlatformUnknown {
		return nil //nolint:nilerr // the store's problem is a fact
	}
	exceptions, _, err := r.Exceptions.InForce(ctx, s.scan.Namespace)
	if err != nil {
		return err
	}
	f.Results, err = scan.Read(ctx, r.Store, s.backend, s.image, f.CatalogedAs, store.ImageExceptions{
		Exceptions: exceptions, Images: s.imageNames(),
		Announced: store.AnnouncedReports{Namespace: s.scan.Namespace, Image: s.key, Sources: s.scanner.Settings().AnnouncedSources()},
	})
	return err
}

// ignoreMissing returns nil for store.ErrNotFound, and any other error unchanged.
func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
