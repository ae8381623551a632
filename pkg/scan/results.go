package scan

import (
	"context"
	"errors"

	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Results are what the store and the engine have for an image in its credential scope.
type Results struct {
	// Catalog is nil if the image is not cataloged, or only by an attested SBOM that is not accepted for it, or if its namespace has requested
	// that it is cataloged again. Report is the last report, nil if there is none. A report may outlast its catalog.
	Catalog *store.Catalog
	Report  *store.Summary
	// VEX is what the attached OpenVEX documents of a cataloged image amount to; nil if none are read.
	VEX *store.VEXSummary
	// Data is the vulnerability data in use; the zero value if there is none. NoData is why the Scanner cannot use data now; nil if it can.
	Data   store.DataVersion
	NoData *backend.Failure
	// MatchFailure is why the last match with this data failed; nil if it did not. It is read only if it matters.
	MatchFailure *store.MatchFailure
	// SettingsProblem is why the Scanner's settings for its engine cannot be used; nil if they can.
	SettingsProblem *backend.Failure
}

// Store is what Read needs of the store.
type Store interface {
	Catalog(ctx context.Context, engine string, key image.Key, scope store.Scope) (store.Catalog, error)
	RescanRequested(ctx context.Context, img store.ScannerImage) (bool, error)
	Summary(ctx context.Context, subject store.Subject, e store.ImageExceptions) (store.Summary, error)
	DataVersion(ctx context.Context, engine string) (store.DataVersion, error)
	MatchFailure(ctx context.Context, subject store.Subject) (store.MatchFailure, error)
	VEXSummary(ctx context.Context, subject store.Subject, policy string) (store.VEXSummary, error)
}

// Read returns what there is for an image. The report is that of its catalog or, without a catalog, that of catalogedAs, its last known
// platform digest.
func Read(ctx context.Context, s Store, engine backend.Backend, img backend.Image, catalogedAs string, e store.ImageExceptions) (r Results, err error) {
	if checker, ok := engine.(backend.SettingsChecker); ok {
		r.SettingsProblem = checker.SettingsProblem()
	}
	if r.Catalog, err = optional(s.Catalog(ctx, engine.Engine(), img.Key, img.Scope)); err != nil {
		return r, err
	}
	if r.Catalog != nil {
		requested, err := s.RescanRequested(ctx, img.OfScanner())
		if err != nil {
			return r, err
		}
		if requested || !r.Catalog.CountsWith(img.SBOMPolicy) {
			r.Catalog = nil
		}
	}
	subject := store.Subject{PlatformDigest: catalogedAs, Scope: img.Scope, Engine: engine.Engine()}
	if r.Catalog != nil {
		subject.PlatformDigest = r.Catalog.PlatformDigest
	}
	if r.Catalog != nil && img.VEXPolicy != "" {
		if r.VEX, err = readVEX(ctx, s, subject, img.VEXPolicy); err != nil {
			return r, err
		}
	}
	if r.Report, err = optional(s.Summary(ctx, subject, e)); err != nil {
		return r, err
	}
	if r.Data, err = engine.DataVersion(ctx); errors.As(err, &r.NoData) {
		r.Data, err = s.DataVersion(ctx, engine.Engine())
		if errors.Is(err, store.ErrNotFound) {
			err = nil
		}
	}
	if err == nil && r.Catalog != nil && r.NoData == nil && !r.isCurrent() {
		r.MatchFailure, err = optional(s.MatchFailure(ctx, subject))
	}
	return r, err
}

// readVEX returns what the attached OpenVEX documents amount to by a policy.
func readVEX(ctx context.Context, s Store, subject store.Subject, policy string) (*store.VEXSummary, error) {
	summary, err := optional(s.VEXSummary(ctx, subject, policy))
	if summary == nil && err == nil {
		summary = &store.VEXSummary{Problem: "no documents were read since their signers were configured. Scan the image again"}
	}
	return summary, err
}

// isCurrent reports whether the report was made with the data in use.
func (r Results) isCurrent() bool {
	return r.Report != nil && r.Data.Version != "" && r.Report.DataVersion == r.Data.Version
}

// optional returns nil for store.ErrNotFound.
func optional[T any](value T, err error) (*T, error) {
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // absence is a result
	}
	return &value, err
}
