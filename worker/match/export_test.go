package match

import (
	"context"
	"time"

	grypematch "github.com/anchore/grype/grype/match"
	"github.com/anchore/grype/grype/pkg"

	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// SBOMWithGrypeReader matches an SBOM after reading it with Grype's own reader, without cached matches.
func SBOMWithGrypeReader(ctx context.Context, db *database.DB, path string) (*workerapi.Report, error) {
	packages, about, _, err := pkg.Provide("sbom:"+path, providerConfig())
	if err != nil {
		return nil, err
	}
	return PackagesWithoutCache(ctx, db, packages, about)
}

// SBOMWithoutCache matches an SBOM without cached matches.
func SBOMWithoutCache(ctx context.Context, db *database.DB, in *input.File) (*workerapi.Report, error) {
	packages, about, err := in.Packages(providerConfig())
	if err != nil {
		return nil, err
	}
	return PackagesWithoutCache(ctx, db, packages, about)
}

// Packages matches packages as SBOM does.
func Packages(ctx context.Context, db *database.DB, packages []pkg.Package, about pkg.Context) (*workerapi.Report, error) {
	return matchPackages(ctx, db, packages, about)
}

// PackagesWithoutCache matches packages without cached matches.
func PackagesWithoutCache(ctx context.Context, db *database.DB, packages []pkg.Package, about pkg.Context) (*workerapi.Report, error) {
	lookups, done := db.BorrowLookups()
	defer done()
	return matchWith(ctx, run{db, lookups, matchers(), packages, time.Now()}, packages, about)
}

// KeyOf returns the key of a package, as text; empty if it has none.
func KeyOf(p pkg.Package) string {
	key, hasKey := (&keyWriter{}).keyOf(p)
	if !hasKey {
		return ""
	}
	return string(key[:])
}

// Matchers returns Grype's matchers.
func Matchers() []grypematch.Matcher { return matchers() }

// WithCache returns a matcher with the cache of a database, for an image with these packages.
func WithCache(m grypematch.Matcher, db *database.DB, packages ...pkg.Package) grypematch.Matcher {
	return newImageCache(db, packages).wrap([]grypematch.Matcher{m})[0]
}
