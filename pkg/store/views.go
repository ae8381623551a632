package store

import (
	"context"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Views answer what people ask, in pages.
type Views interface {
	// Locate says where the results are of an image that a Scanner of a namespace has: in the scope and by the engine
	// that it has them with now. ErrNotFound if it does not have the image.
	Locate(ctx context.Context, scanner, namespace string, key image.Key) (Location, error)
	// FindingsPage returns findings of a subject from a mark on, worst first (finding.Worse); ErrNotFound if there is no
	// report. It may return fewer than limit when they are large. ErrChanged if what was before the mark is not the same
	// any more, so that something would be missed or come twice, or if other exceptions are in force than then.
	FindingsPage(ctx context.Context, s Subject, f FindingFilter, from FindingMark, limit int) (FindingPage, error)
	// RunsPage answers "who runs an image with this vulnerability?", in the order of Running, from after a mark on.
	RunsPage(ctx context.Context, q RunsQuery, after RunMark, limit int) (RunsPage, error)
}

// Location is where results of an image are.
type Location struct {
	// Subject's platform digest is empty as long as the image is not catalogued.
	Subject
	// Report is nil as long as there is none.
	Report *ReportState
	// SBOM identifies what OpenArtifact has for this subject now, for ever; 0 for nothing.
	SBOM int64
	// Names are those by which workloads run the image now, each once; none if no workload does.
	Names []exception.Image
}

// ReportState is a report without its subject and its findings.
type ReportState struct {
	// ID and Revision together name one state of the report's findings, for ever.
	ID, Revision int64
	DataVersion  string
	MatchedAt    time.Time
	Distro       string
	// Current says that no other data is known to the engine. Then Tool names the engine and its version, if it is known.
	Current bool
	Tool    string
}

// FindingFilter narrows findings down. The zero value lets all pass.
type FindingFilter struct {
	// Severities that pass; nil for all.
	Severities []finding.Severity
	// Fixable and KnownExploited pass what equals them; nil for both.
	Fixable, KnownExploited *bool
	// Package is a whole name.
	Package string
	// ID is an id or an alias, in any case.
	ID string
	// Gone lists, instead of those that are present, findings that have gone and are still remembered.
	Gone bool
	// Excepted passes findings that an exception covers, or (false) those that none does; nil for both. It needs Excepting.
	Excepted  *bool
	Excepting Excepting
	// Text is part of an id, an alias, a package's name or a description; letters of ASCII in any case.
	Text string
}

// FindingMark is a place in a list of findings. The zero value is its beginning.
type FindingMark struct {
	Report, Revision int64
	// Count and Sum say which findings were before it.
	Count int
	Sum   uint64
	// Excepting says what was covered by exceptions.
	Excepting uint64
}

// FindingPage is a part of a report.
type FindingPage struct {
	Report   ReportState
	Findings []SeenFinding
	// Total is the number of all findings that pass the filter.
	Total int
	// Next is where the next page begins; nil if this is the last one.
	Next *FindingMark
}

// SeenFinding is a finding and its life in the store. Times are zero where there is none.
type SeenFinding struct {
	finding.Finding
	// FirstSeen and LastSeen are when the store first knew it, and when a report last had it: the report's time while it is present.
	FirstSeen, LastSeen time.Time
	// FixedAt is when a second, independent version of the data was without it (see Evidence). FixSince and ExploitedSince are as in News.
	FixedAt, FixSince, ExploitedSince time.Time
	// Severities that it had before, oldest first, at most ten.
	Severities []SeverityBefore
	// Exception that covers it; nil if none does.
	Exception *exception.Exception
}

// RunsQuery asks who runs an image with a vulnerability.
type RunsQuery struct {
	// ID of the vulnerability, canonical or an alias, in any case.
	ID string
	// Namespaces to look in, unless All is true.
	Namespaces []string
	All        bool
	// Exceptions gives those that are in force in a namespace; nil for none.
	Exceptions func(namespace string) exception.Set
}

// RunMark is a place in the order of runs: the last one before it.
type RunMark struct {
	Namespace, Kind, Name, Container, Reference, Digest, Platform string
	// Key is the finding's (finding.Key, in upper case), the same for all engines; empty for the beginning of all.
	Key string
}

// Run is a container that runs an image with a vulnerability in one of its packages. Texts that come from pods and
// images are cut off at maxRunText characters.
type Run struct {
	Namespace, Kind, Name, Container, Reference string
	Key                                         image.Key
	// Engines that found it, sorted.
	Engines []string
	// Finding has no aliases, paths, description or advisories. Where engines differ it is the worst that one of them says.
	Finding finding.Finding
	// Exception that covers it; nil if none does.
	Exception *exception.Exception
}

// RunsPage is a part of an answer.
type RunsPage struct {
	Runs []Run
	// Total is the number of all.
	Total int
	// Next is where the next page begins; nil if this is the last one.
	Next *RunMark
}
