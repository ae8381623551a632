package match

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/anchore/grype/grype"
	grypematch "github.com/anchore/grype/grype/match"
	"github.com/anchore/grype/grype/pkg"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/database"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/version"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// SBOM matches one SBOM. The database must stay open until SBOM returns. A panic becomes an error. Errors are *failure.Error.
func SBOM(ctx context.Context, db *database.DB, in *input.File) (report *workerapi.Report, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("matching panicked: %v at %s", cause, debug.Stack())
		}
		var known *failure.Error
		if err != nil && !errors.As(err, &known) {
			err = failure.New(workerapi.ReasonMatchFailed, err)
		}
	}()
	// Grype drops errors of the database, so its result is meaningless after a failed query. A failed query of
	// a concurrent match counts here, too, which is on the safe side.
	failures := db.Failures()
	report, err = match(ctx, db, in)
	if db.Failures() != failures {
		return nil, failure.New(workerapi.ReasonDatabaseUnreadable,
			fmt.Errorf("the vulnerability database failed during matching: %w", db.LastFailure()))
	}
	return report, err
}

// match is SBOM without the handling of panics and failed queries. It follows the steps of Grype's command line.
func match(ctx context.Context, db *database.DB, in *input.File) (*workerapi.Report, error) {
	packages, about, err := in.Packages(providerConfig())
	if err != nil {
		return nil, fmt.Errorf("reading the SBOM: %w", err)
	}
	return matchPackages(ctx, db, packages, about)
}

// matchPackages matches packages and builds the report.
func matchPackages(ctx context.Context, db *database.DB, packages []pkg.Package, about pkg.Context) (*workerapi.Report, error) {
	lookups, done := db.BorrowLookups()
	defer done()
	cache := newImageCache(db, packages)
	return matchWith(ctx, run{db, lookups, cache.wrap(matchers()), cache.withoutClean(packages), clock.System{}.Now()}, packages, about)
}

// run is what Grype runs on for one image.
type run struct {
	db       *database.DB
	lookups  *database.Lookups
	matchers []grypematch.Matcher
	// packages are those that can have matches or ignore rules.
	packages []pkg.Package
	// now decides which distributions have ended.
	now time.Time
}

// matchWith runs Grype and builds the report. packages are all packages of the image.
func matchWith(ctx context.Context, r run, packages []pkg.Package, about pkg.Context) (*workerapi.Report, error) {
	// A matcher keeps state of its run, so each SBOM gets a new one.
	matcher := grype.VulnerabilityMatcher{
		VulnerabilityProvider: r.lookups,
		Matchers:              r.matchers,
		IgnoreRules:           ignoreRules(),
	}
	remaining, ignored, err := matcher.FindMatchesContext(ctx, r.packages, about)
	if err != nil {
		return nil, err
	}
	// Grype only logs the end of the context, and returns the matches that it has found so far.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	matches, err := presentMatches(packages, about, remaining.Sorted(), r.lookups)
	if err != nil {
		return nil, err
	}
	gaps, err := notCovered(packages, r.lookups, r.now)
	if err != nil {
		return nil, err
	}
	report := &workerapi.Report{
		Database: r.db.Database,
		Tool:     version.Grype(),
		Findings: findings(matches),
		Ignored:  len(ignored), NotCovered: gaps,
	}
	if about.Distro != nil {
		report.Distro = strings.TrimSpace(about.Distro.String()) // Debian testing has no version
	}
	return report, nil
}
