package store

import (
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Location is where the results of an image are.
type Location struct {
	// Subject's platform digest is empty until the image is cataloged.
	Subject
	// Report is nil if there is none.
	Report *ReportState
	// SBOM permanently identifies the SBOM that OpenArtifact returns for this subject now; 0 if there is none.
	SBOM int64
	// Names are the image's names in the workloads that run it now, each once; empty if no workload does.
	Names []exception.Image
}

// ReportState is a report without its subject and its findings.
type ReportState struct {
	// ID and Revision together permanently identify one state of the report's findings.
	ID, Revision int64
	DataVersion  string
	MatchedAt    time.Time
	Distro       string
	// Current means that the engine has no other data version. Then Tool is the engine and its version, if known.
	Current bool
	Tool    string
}

// FindingFilter selects findings. The zero value selects all.
type FindingFilter struct {
	// Severities to include; nil for all.
	Severities []finding.Severity
	// Fixable and KnownExploited include only findings with this value; nil for both values.
	Fixable, KnownExploited *bool
	// Package is a complete package name.
	Package string
	// ID is an ID or an alias, in any case.
	ID string
	// Gone selects findings that are gone and still stored, instead of the present ones.
	Gone bool
	// Suppressed selects suppressed findings (true) or all others (false); nil for both. It needs Excepting.
	Suppressed *bool
	Exceptions ImageExceptions
	// Text is part of an ID, an alias, a package name or a description. ASCII letters match in any case.
	Text string
}

// FindingCursor is a position in a list of findings. The zero value is the beginning.
type FindingCursor struct {
	Report, Revision int64
	// Count is how many findings come before the position, and Sum is a checksum of them.
	Count int
	Sum   uint64
	// ExceptionsSum is a checksum of what the exceptions suppressed.
	ExceptionsSum uint64
}

// FindingPage is one page of a report's findings.
type FindingPage struct {
	Report   ReportState
	Findings []TrackedFinding
	// Total is the number of all findings that pass the filter.
	Total int
	// Next is the beginning of the next page; nil if this is the last one.
	Next *FindingCursor
}

// TrackedFinding is a finding and its lifetime in the store. Times that do not apply are zero.
type TrackedFinding struct {
	finding.Finding
	// FirstSeen is when the store first recorded the finding. LastSeen is when a report last had it: the current report's time while
	// it is present.
	FirstSeen, LastSeen time.Time
	// FixedAt is when a second, independent version of the data lacked the finding (see Evidence). FixSince and ExploitedSince are as
	// in FindingChange.
	FixedAt, FixSince, ExploitedSince time.Time
	// Severities that the finding had before, oldest first, at most ten.
	Severities []SeverityBefore
	// Exception that suppresses the finding; nil if none does.
	Exception *exception.Exception
}

// RunsQuery selects the containers that run an image with a vulnerability.
type RunsQuery struct {
	// ID of the vulnerability, canonical or an alias, in any case.
	ID string
	// Namespaces to search, unless All is true.
	Namespaces []string
	All        bool
	// Exceptions returns the exceptions that are in force in a namespace; nil for none.
	Exceptions func(namespace string) exception.Set
}

// RunCursor is a position in the order of runs: the last run before it.
type RunCursor struct {
	Namespace, Kind, Name, Container, Reference, Digest, Platform string
	// Key is the finding's key (finding.Key, in upper case), the same for all engines. It is empty at the beginning of the list.
	Key string
}

// Run is a container that runs an image with a vulnerability in one of its packages. Texts that come from pods and images are
// truncated to maxRunText characters.
type Run struct {
	Namespace, Kind, Name, Container, Reference string
	Key                                         image.Key
	// Engines that found it, sorted.
	Engines []string
	// Finding has no aliases, paths, description or advisories. If engines differ, it is the worst of their findings.
	Finding finding.Finding
	// Exception that suppresses the finding; nil if none does.
	Exception *exception.Exception
}

// RunsPage is one page of runs.
type RunsPage struct {
	Runs []Run
	// Total is the number of all runs.
	Total int
	// Next is the beginning of the next page; nil if this is the last one.
	Next *RunCursor
}
