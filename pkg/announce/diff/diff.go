package diff

import (
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Present is what is present of one vulnerability in one package of a repository: the facts of the worst finding that passes the receiver's
// filter and that no exception suppresses. If the filter or exceptions leave out all findings of a vulnerability, it is not compared: it is
// neither a change nor fixed.
type Present struct {
	Severity finding.Severity
	// SeverityBefore is the severity before it last changed; Severity if it never did.
	SeverityBefore          finding.Severity
	Fixable, KnownExploited bool
}

// Announced is the record of what was announced to a receiver of one vulnerability in one package of a repository.
type Announced struct {
	Severity                finding.Severity
	Fixable, KnownExploited bool
	// WithoutFacts means that an older version of the store recorded no severity, fix or exploitation. Then these never differ.
	WithoutFacts bool
	// Fixed means that the vulnerability was recorded as fixed. Suppressed means that exceptions have suppressed it since.
	Fixed, Suppressed bool
}

// Policy is what a receiver is notified of, and what can be concluded about its findings now.
type Policy struct {
	// Changes are those that the receiver is notified of; nil for DefaultChanges.
	Changes []Change
	// Threshold is the lowest severity that passes the receiver's filter by itself.
	Threshold finding.Severity
	// AbsentIsFixed means that a vulnerability that no image of the repository has is fixed. Otherwise its absence proves nothing: results
	// are missing, the data has an anomaly, the records are of another engine, or a summary is still to be sent.
	AbsentIsFixed bool
	// NoRoom means that the budget for records is used up. Nothing is added then. What is fixed is recorded without a message, since its
	// record can be deleted earlier.
	NoRoom bool
}

// DefaultChanges are the changes that a receiver is notified of unless it names others.
var DefaultChanges = []Change{ChangeNew, ChangeFixAvailable, ChangeEscalated, ChangeRegressed}

// Wants reports whether the receiver is notified of a change.
func (p Policy) Wants(change Change) bool {
	if p.Changes == nil {
		return slices.Contains(DefaultChanges, change)
	}
	return slices.Contains(p.Changes, change)
}

// Decision is the result of a comparison. The zero value is no change.
type Decision struct {
	// Announce is the change that a message announces; empty for none.
	Announce Change
	// Record are the changes that are recorded as announced without a message.
	Record []Change
	// SeverityBefore is the severity that the receiver knows. If it knows none, it is the severity before the last change.
	SeverityBefore finding.Severity
	// ExceptionEnded means that an exception suppressed the finding and has ended.
	ExceptionEnded bool
}

// Finding decides which change one vulnerability in one package of a repository is. present is nil if no image of the repository has it.
// announced is nil if it was never announced. At most one of them is nil.
//
// A receiver of ChangeNew is notified of everything that has no record.
func Finding(present *Present, announced *Announced, p Policy) Decision {
	if present == nil {
		return absent(announced, p)
	}
	d := Decision{SeverityBefore: present.SeverityBefore}
	if announced != nil {
		d.ExceptionEnded, d.SeverityBefore = announced.Suppressed, announced.Severity
		if announced.WithoutFacts {
			d.SeverityBefore = present.Severity
		}
	}
	for _, change := range changesOf(present, announced, p.Threshold) {
		switch {
		case !p.Wants(change) && (announced != nil || !p.Wants(ChangeNew)):
			if announced != nil || !p.NoRoom {
				d.Record = append(d.Record, change)
			}
		case d.Announce == "":
			d.Announce = change
		}
	}
	return d
}

// changesOf returns the changes of a present vulnerability since its announcement, the most important first.
func changesOf(present *Present, announced *Announced, threshold finding.Severity) (changes []Change) {
	switch {
	case announced == nil && present.SeverityBefore < present.Severity:
		return []Change{ChangeEscalated}
	case announced == nil || announced.Suppressed:
		return []Change{ChangeNew}
	case announced.Fixed:
		return []Change{ChangeRegressed}
	case announced.WithoutFacts:
		return nil
	}
	if present.KnownExploited && !announced.KnownExploited || announced.Severity < threshold && present.Severity >= threshold {
		changes = append(changes, ChangeEscalated)
	}
	if present.Fixable && !announced.Fixable {
		changes = append(changes, ChangeFixAvailable)
	}
	return changes
}

// absent decides about a vulnerability that was announced and that no image of the repository has. If an exception suppressed it, the receiver
// does not wait for its fix.
func absent(announced *Announced, p Policy) Decision {
	switch {
	case announced.Fixed || !p.AbsentIsFixed:
		return Decision{}
	case announced.Suppressed || p.NoRoom || !p.Wants(ChangeFixed):
		return Decision{Record: []Change{ChangeFixed}}
	}
	return Decision{Announce: ChangeFixed, SeverityBefore: announced.Severity}
}

// RepositoryState is the state of an image repository in which every image in use has a complete result.
type RepositoryState struct {
	// Known means that the repository was announced to the receiver, or recorded as known.
	Known bool
	// HasChanges means that a finding in it is to be announced. That makes it known.
	HasChanges bool
	// IsRouted means that at least one of its workloads concerns the receiver.
	IsRouted bool
}

// Repository decides whether an image repository is announced as new. A later finding in a known repository is a change, and not part of its
// first scan.
func Repository(r RepositoryState, p Policy) Decision {
	switch {
	case r.Known || r.HasChanges:
		return Decision{}
	case r.IsRouted && p.Wants(ChangeNewImage):
		return Decision{Announce: ChangeNewImage}
	}
	return Decision{Record: []Change{ChangeNewImage}}
}
