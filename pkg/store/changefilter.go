package store

import (
	"database/sql"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// ChangeFilter selects what a receiver is notified of. A known exploited vulnerability always passes.
type ChangeFilter struct {
	// MinSeverity is the lowest severity that passes. It does not apply to Unknown.
	MinSeverity finding.Severity
	// Unknown decides when findings of unknown severity pass: never, when fixable, or always.
	Unknown UnknownPolicy
	// OnlyFixable excludes findings without a fix.
	OnlyFixable bool
	// OnlyKnownExploited excludes all other findings, whatever their severity.
	OnlyKnownExploited bool
	// Changes that are announced; nil for the default. UpdateAnnouncements records all other changes as if they had been announced.
	Changes []diff.Change
	// Engine selects the images that the Scanner has with this engine; empty for any. It also applies to known exploited
	// vulnerabilities, and to everything that Present returns.
	Engine string
	// Route selects the workloads that concern the receiver; nil for all.
	Route *Route
	// Exceptions that are in force in the Scanner's namespace.
	Exceptions exception.Set
	// AbsentIsFixedIn are the repositories in which an announced finding that no image has counts as fixed, unless the data has an anomaly.
	AbsentIsFixedIn []string
	// OSPackagesUnknownIn are those of them in which the absence of findings in packages of a distribution proves nothing.
	OSPackagesUnknownIn []string
	// IncludeIdle makes PendingChanges treat images as in use that nothing runs now and that the Scanner still has, unless a rollout has replaced
	// them.
	IncludeIdle bool
	// WholeRepositories makes PendingChanges list all changes of each repository that it lists, except of one that alone exceeds the limit.
	WholeRepositories bool
}

// Route selects the workloads that concern a receiver. A workload that names only receivers that the Scanner does not have is
// treated as one that names none, so that its findings are announced.
type Route struct {
	Receiver string
	// Known are the names of the Scanner's receivers.
	Known []string
	// All selects all workloads, whatever they name. Unassigned selects those that name no receiver.
	All, Unassigned bool
	// Namespaces limits the selected workloads to these namespaces; nil for all.
	Namespaces map[string]bool
}

// UnknownPolicy is when findings of unknown severity pass a filter.
type UnknownPolicy string

// The policies for findings of unknown severity.
const (
	UnknownNever     UnknownPolicy = "Never"
	UnknownIfFixable UnknownPolicy = "IfFixable"
	UnknownAlways    UnknownPolicy = "Always"
)

// args returns the parameters of the wanted statement.
func (f ChangeFilter) args() []any {
	const all, ifFixable, none = 0, 1, 2
	fixable := all
	if f.OnlyFixable {
		fixable = ifFixable
	}
	unknown := ifFixable
	switch {
	case f.OnlyKnownExploited || f.Unknown == UnknownNever:
		unknown = none
	case f.Unknown == UnknownAlways:
		unknown = fixable
	}
	return []any{sql.Named("severity", int64(f.threshold())), sql.Named("fixable", fixable), sql.Named("unknown", unknown)}
}

// threshold returns the lowest severity that passes by itself. It is never Unknown, which has its own policy. With OnlyKnownExploited none does.
func (f ChangeFilter) threshold() finding.Severity {
	if f.OnlyKnownExploited {
		return finding.Critical + 1
	}
	return max(f.MinSeverity, finding.Negligible)
}

// Passes reports whether the receiver's severity, fix and exploitation settings let a finding pass, as passesFilter does.
func (f ChangeFilter) Passes(one finding.Finding) bool {
	switch {
	case one.KnownExploited:
		return true
	case one.Severity == finding.Unknown:
		return !f.OnlyKnownExploited && f.Unknown != UnknownNever && (one.Fixable() || f.Unknown == UnknownAlways && !f.OnlyFixable)
	}
	return one.Severity >= f.threshold() && (one.Fixable() || !f.OnlyFixable)
}

// passingFindings selects each present finding of some reports once that passes a filter and is not suppressed, as three ranges of one
// index. @severity is at least 1. @fixable and @unknown are 0 for all findings, 1 for fixable ones, 2 for none.
const (
	passingColumns = `
		SELECT f.id, f.vulnerability_id, f.package, f.report_id, f.known_exploited, f.severity, f.fixable FROM ids(@reports) j
		NESTED JOIN findings f INDEXED BY findings_present ON f.report_id = j.value AND f.gone_at IS NULL AND `

	butSuppressed = `
		WHERE f.id NOT IN (SELECT value FROM ids(@suppressed) i)`

	passingFindings = ` wanted AS (` +
		passingColumns + `f.known_exploited = 1` + butSuppressed + ` UNION ALL` +
		passingColumns + `f.known_exploited = 0 AND f.severity >= @severity AND f.fixable >= @fixable` + butSuppressed + ` UNION ALL` +
		passingColumns + `f.known_exploited = 0 AND f.severity = 0 AND f.fixable >= @unknown` + butSuppressed + `)`

	// passesFilter is the same condition for findings that are selected by vulnerability and package.
	passesFilter = `(f.known_exploited = 1 OR f.severity >= @severity AND f.fixable >= @fixable OR f.severity = 0 AND f.fixable >= @unknown)
		AND f.id NOT IN (SELECT value FROM ids(@suppressed) i)`
)

// passes reports whether a workload concerns the receiver. Without a route, all do.
func (r *Route) passes(w Workload) bool {
	switch {
	case r == nil:
		return true
	case r.Namespaces != nil && !r.Namespaces[w.Namespace]:
		return false
	case r.All:
		return true
	}
	named := slices.DeleteFunc(strings.Split(w.Receivers, ","), func(name string) bool { return !slices.Contains(r.Known, name) })
	if len(named) == 0 {
		return r.Unassigned
	}
	return slices.Contains(named, r.Receiver)
}
