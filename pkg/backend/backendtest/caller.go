package backendtest

import (
	"context"
	"fmt"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Caller calls an engine for a running image as the ImageScan controller does: it reads what there is for the image, and has the engine carry
// out what package scan decides.
type Caller struct {
	Store scan.Store
	Now   func() time.Time
}

// Catalog has the engine catalog the image. It returns Done if the image is cataloged.
func (c Caller) Catalog(ctx context.Context, engine backend.Backend, img backend.Image) (backend.Progress, error) {
	next, results, err := c.next(ctx, engine, img)
	switch {
	case err != nil:
		return backend.Progress{}, err
	case next.Action == scan.Wait:
		return backend.Waiting(next.Reason, next.Message, next.RetryAfter), nil
	case next.Action == scan.StartCatalog:
		return engine.StartCatalog(ctx, img)
	}
	if refresher, ok := engine.(backend.CatalogRefresher); ok {
		refresher.RefreshCatalog(img, *results.Catalog)
	}
	return backend.Done, nil
}

// Match has the engine match a cataloged image. It returns Done if the image has a report made with the current data.
func (c Caller) Match(ctx context.Context, engine backend.Backend, img backend.Image) (backend.Progress, error) {
	switch next, _, err := c.next(ctx, engine, img); {
	case err != nil:
		return backend.Progress{}, err
	case next.Action == scan.Wait:
		return backend.Waiting(next.Reason, next.Message, next.RetryAfter), nil
	case next.Action == scan.Fail:
		return backend.Progress{}, &backend.Failure{Reason: next.Reason, Message: next.Message, RetryAfter: next.RetryAfter}
	case next.Action == scan.RequestMatch:
		return engine.RequestMatch(ctx, img)
	case next.Action != scan.Finish:
		return backend.Progress{}, fmt.Errorf("the image is not cataloged: next is %s", next.Action)
	}
	return backend.Done, nil
}

func (c Caller) next(ctx context.Context, engine backend.Backend, img backend.Image) (scan.Decision, scan.Results, error) {
	results, err := scan.Read(ctx, c.Store, engine, img, "", store.ImageExceptions{})
	return scan.Next(scan.Facts{Now: c.Now(), Results: results}), results, err
}
