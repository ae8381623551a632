// Package evidence decides whether a finding is present, proven absent, or unknown.
//
// Everything that ends something asks it: messages about what is fixed, alerts, findings in other tools. It is below package store, which supplies the
// facts, and knows neither how they are stored nor what ends.
package evidence

import (
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// Facts are what is known about one vulnerability in one package of the images of one subject: a repository or a workload, as a scanner covers it.
// The zero value proves nothing.
type Facts struct {
	// Present means that the newest report of the engine or of an announced source about one of the images has the finding.
	Present bool
	// Unconfirmed means that the newest data of such a report lacks a finding that it had, and that no independent data confirms it.
	Unconfirmed bool
	// Complete means that the subject runs and each of its images has a result of the engine in use that covers packages like the finding's, so that its
	// absence is a result.
	Complete bool
	// DataTrusted means that the engine's data has no anomaly.
	DataTrusted bool
	// SameEngine means that the engine in use is the one that knew the finding last.
	SameEngine bool
	// SourcesReported means that each announced source that knew the finding has reported on each image of the subject.
	SourcesReported bool
}

// KnownBy returns the announced sources that know a finding: those that have it, and those of before that have not reported on each image of the subject
// since. All lists are sorted.
func KnownBy(before, have, silent []string) []string {
	known := slices.Clone(have)
	for _, source := range before {
		if _, isSilent := slices.BinarySearch(silent, source); isSilent {
			known = append(known, source)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(known)))
}

// ImageGaps returns those of the gaps of an image's report that the engine does not have in every image: the image contains such packages. An image
// with such gaps has no complete result. always are the gaps that the engine has in every image.
func ImageGaps(gaps, always []string) (held []string) {
	for _, gap := range gaps {
		if !slices.Contains(always, gap) {
			held = append(held, gap)
		}
	}
	return held
}

// Gap is what the results of some images leave open. A greater one leaves more open.
type Gap int

// The gaps.
const (
	NoGap Gap = iota
	// OSPackages leaves the packages of distributions open, and covers those of languages.
	OSPackages
	// AnyPackages may leave everything open.
	AnyPackages
)

// GapOf returns what some images leave open, by their ImageGaps. What it does not know may leave everything open.
func GapOf(held []string) Gap {
	gap := NoGap
	for _, one := range held {
		if !strings.HasPrefix(one, workerapi.OSPackages) && !strings.Contains(one, workerapi.NoUpdatesSince) {
			return AnyPackages
		}
		gap = OSPackages
	}
	return gap
}

// Concerns reports whether the gap leaves open a finding in packages of some types. A finding without types is of any.
func (g Gap) Concerns(types []string) bool {
	isOfDistribution := func(name string) bool { return name == "" || finding.IsOSPackage(name) }
	return g == AnyPackages || g == OSPackages && (len(types) == 0 || slices.ContainsFunc(types, isOfDistribution))
}

// Verdict is what the facts prove.
type Verdict string

// The verdicts.
const (
	// Unknown means that the absence of the finding proves nothing. Whatever depends on the finding stays as it is.
	Unknown Verdict = "Unknown"
	// Present means that the finding is present.
	Present Verdict = "Present"
	// ProvenAbsent means that the finding has ended.
	ProvenAbsent Verdict = "ProvenAbsent"
)

// Of returns what facts prove.
func Of(f Facts) Verdict {
	switch {
	case f.Present:
		return Present
	case f.Unconfirmed, !f.Complete, !f.DataTrusted, !f.SameEngine, !f.SourcesReported:
		return Unknown
	}
	return ProvenAbsent
}
