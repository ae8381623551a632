package grype

import (
	"context"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Delays before an image that could not be matched is retried with the same data. A match that times out is the most expensive, so its
// delay is longer.
const (
	matchRetry   = 10 * time.Minute
	timeoutRetry = time.Hour
)

// SaveReport stores what a match worker found for a leased image. It returns store.ErrLeaseEnded if the worker does not hold the lease any
// more.
func (b *Backend) SaveReport(ctx context.Context, lease store.Lease, report workerapi.Report) error {
	built := report.Database.Built
	difference, err := b.Store.SaveReport(ctx, store.Report{
		Subject:     store.Subject{PlatformDigest: lease.PlatformDigest, Scope: lease.Scope, Engine: Engine},
		DataVersion: versionOf(report.Database, report.Tool).Version,
		MatchedAt:   b.Clock.Now(),
		Distro:      report.Distro,
		NotCovered:  report.NotCovered,
		// If another Grype version misses a finding with the same database build, that does not prove a fix.
		Evidence: store.Evidence{After: built, Made: built},
		Findings: Normalise(report.Findings),
	}, lease.ID)
	if err != nil {
		return err
	}
	b.Log.V(1).Info("Saved a report", "image", lease.PlatformDigest, "scope", lease.Scope,
		"new", difference.New, "still", difference.Still, "gone", difference.Gone)
	b.Wake(ctx, lease.PlatformDigest)
	return nil
}

// FailMatch records that an image could not be matched.
func (b *Backend) FailMatch(ctx context.Context, lease store.Lease, failure workerapi.Failure) error {
	now, retry := b.Clock.Now(), matchRetry
	if failure.Reason == workerapi.ReasonMatchTimedOut {
		retry = timeoutRetry
	}
	err := b.Store.FailMatch(ctx, lease.ID, lease.Holder, store.MatchFailure{
		Reason: failure.Reason, Message: failure.Message, FailedAt: now, RetryAt: now.Add(retry),
	})
	if err != nil {
		return err
	}
	b.Log.Info("An image could not be matched", "image", lease.PlatformDigest, "reason", failure.Reason, "message", failure.Message)
	b.Wake(ctx, lease.PlatformDigest)
	return nil
}

// Normalise converts Grype's matches to findings with canonical IDs. It returns one finding for each vulnerability, package and location,
// with all advisories about it.
func Normalise(matches []workerapi.Finding) []finding.Finding {
	findings := make([]finding.Finding, 0, len(matches))
	for _, m := range matches {
		findings = append(findings, normalise(m))
	}
	return finding.Merge(findings)
}

func normalise(m workerapi.Finding) finding.Finding {
	f := finding.Finding{
		ID:             finding.Canonical(m.ID, m.Aliases),
		Aliases:        append(slices.Clone(m.Aliases), m.ID),
		Severity:       finding.ParseSeverity(m.Severity),
		Package:        finding.Package{Name: m.Package.Name, Version: m.Package.Version, Type: m.Package.Type, PURL: m.Package.PURL},
		FixState:       fixState(m.FixState),
		FixVersions:    fixVersions(m),
		FixAvailable:   m.FixAvailable,
		Description:    m.Description,
		URL:            m.URL,
		EPSS:           m.EPSS,
		KnownExploited: m.KnownExploited,
		Advisories: []finding.Advisory{{
			ID: m.ID, Source: m.Namespace, Severity: m.Severity, FixState: m.FixState, FixVersions: m.FixVersions,
		}},
	}
	for _, location := range m.Locations {
		if !slices.Contains(f.Paths, location.Path) {
			f.Paths = append(f.Paths, location.Path)
		}
	}
	for _, rating := range m.CVSS {
		f.CVSS = max(f.CVSS, rating.Score)
		f.Advisories[0].Ratings = append(f.Advisories[0].Ratings, finding.Rating(rating))
	}
	return f
}

func fixState(state string) string {
	switch state {
	case finding.FixStateFixed, finding.FixStateNotFixed, finding.FixStateWontFix:
		return state
	}
	return finding.FixStateUnknown
}

// fixVersions puts the version that best fits the installed one first.
func fixVersions(m workerapi.Finding) []string {
	if m.SuggestedFix == "" {
		return m.FixVersions
	}
	rest := slices.DeleteFunc(slices.Clone(m.FixVersions), func(v string) bool { return v == m.SuggestedFix })
	return append([]string{m.SuggestedFix}, rest...)
}
