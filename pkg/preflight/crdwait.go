package preflight

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/openapi"

	"github.com/scanner-operator/scanner-operator/pkg/metrics"
)

const (
	// outdatedCRDInterval is how often outdated CRDs are checked again.
	outdatedCRDInterval = 5 * time.Second
	// crdCheckInterval is how often CRDs that are up to date are checked again.
	crdCheckInterval = time.Hour
)

// CRDWatcher compares the CRDs of a cluster with those that this version needs, at the start and from then on. Without their fields, the API
// server would drop what the manager writes.
type CRDWatcher struct {
	Served openapi.Client
	Log    logr.Logger
	// Loops counts the checks of Run.
	Loops *metrics.Loops
}

// Wait waits until the CRDs are up to date. It calls report at once, and then at each check, while they are outdated. An error of report
// ends the wait, as does one of the first check.
func (w CRDWatcher) Wait(ctx context.Context, report func(*OutdatedCRDsError) error) error {
	outdated, err := splitOutdated(w.check())
	for outdated != nil {
		if err := report(outdated); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outdatedCRDInterval):
		}
		now, err := splitOutdated(w.check())
		if err != nil {
			w.Log.Error(err, "Checking for newer CustomResourceDefinitions failed")
			continue
		}
		outdated = now
	}
	return err
}

// Run checks the CRDs periodically until the context ends. It returns an error if older ones have replaced those that this version needs:
// the process then has to restart and wait. Only a second check in a row counts, since an API server that has just started serves its
// documents a moment later.
func (w CRDWatcher) Run(ctx context.Context) error {
	var before *OutdatedCRDsError
	for {
		wait := crdCheckInterval
		if before != nil {
			wait = outdatedCRDInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		outdated, err := splitOutdated(w.Loops.Run("kinds", w.check))
		if err != nil {
			w.Log.Error(err, "Checking the CustomResourceDefinitions failed")
		}
		if outdated != nil && before != nil {
			return outdated
		}
		before = outdated
	}
}

// check calls checkCRDs. A request that is forbidden is only logged: it is usually allowed, and the manager can work without the check.
func (w CRDWatcher) check() error {
	err := checkCRDs(w.Served)
	if apierrors.IsForbidden(err) {
		w.Log.Info("The CustomResourceDefinitions are not checked: the manager may not read them", "reason", err.Error())
		return nil
	}
	return err
}

// splitOutdated returns the error about outdated CRDs, or another one.
func splitOutdated(err error) (outdated *OutdatedCRDsError, other error) {
	if errors.As(err, &outdated) {
		return outdated, nil
	}
	return nil, err
}
