// Package finding says what a finding is: one vulnerability in one package of one image, whichever engine
// found it. It gives findings their identity, merges what several advisories say about the same thing, and
// computes differences.
//
// It only computes. It knows no engine, no store and no Kubernetes.
package finding

import (
	"cmp"
	"slices"
	"time"
)

// Fix states, from best to worst news.
const (
	FixStateFixed    = "fixed"     // a fixed version is known
	FixStateNotFixed = "not-fixed" // no fix yet
	FixStateWontFix  = "wont-fix"  // the distribution will not fix it
	FixStateUnknown  = "unknown"
)

// Finding is one vulnerability in one package.
type Finding struct {
	// ID is the canonical vulnerability id, see Canonical.
	ID string `json:"id"`
	// Aliases are all other ids, the native ones of the advisories among them; sorted.
	Aliases  []string `json:"aliases,omitempty"`
	Severity Severity `json:"severity"`
	Package  Package  `json:"package"`
	// Paths are where the package was found in the image; the first counts for identity.
	Paths []string `json:"paths,omitempty"`

	FixState    string   `json:"fixState"`
	FixVersions []string `json:"fixVersions,omitempty"`
	// FixAvailable is when a fix was first known to the engine's data; zero if unknown.
	FixAvailable time.Time `json:"fixAvailable,omitzero"`

	Description string `json:"description,omitempty"`
	URL         string `json:"url,omitempty"`
	// CVSS is the highest base score known, 0 to 10; 0 if none.
	CVSS float64 `json:"cvss,omitempty"`
	// EPSS is the probability of exploitation within 30 days, 0 to 1; 0 if unknown (https://www.first.org/epss/).
	EPSS float64 `json:"epss,omitempty"`
	// KnownExploited says that CISA lists it as exploited (https://www.cisa.gov/known-exploited-vulnerabilities-catalog).
	KnownExploited bool `json:"knownExploited,omitempty"`

	// Advisories are the engine's own matches behind this finding, in the engine's words.
	Advisories []Advisory `json:"advisories,omitempty"`
}

// Package is the affected package as installed.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Type is the engine's package type: deb, apk, rpm, go-module, npm, …
	Type string `json:"type"`
	// PURL is the package URL with its qualifiers; empty if the engine gives none.
	PURL string `json:"purl,omitempty"`
}

// Advisory is one statement of one source about the package.
type Advisory struct {
	ID          string   `json:"id"`
	Source      string   `json:"source"`
	Severity    string   `json:"severity"`
	FixState    string   `json:"fixState"`
	FixVersions []string `json:"fixVersions,omitempty"`
	// Layer is the digest of the layer that brought the package, compressed as the registry has it; empty if the engine
	// does not say. (Grype says the digest of the uncompressed layer, which is another.)
	Layer string `json:"layer,omitempty"`
	// Ratings of the vulnerability that the source gives.
	Ratings []Rating `json:"ratings,omitempty"`
}

// Rating is a CVSS rating (https://www.first.org/cvss/).
type Rating struct {
	// Source of the rating, such as an address of the organisation that made it; may be empty.
	Source string `json:"source,omitempty"`
	// Version of CVSS: 2.0, 3.0, 3.1 or 4.0.
	Version string `json:"version"`
	Vector  string `json:"vector"`
	// Score is the base score, 0 to 10.
	Score float64 `json:"score"`
}

// Fixable says whether an update would remove the finding.
func (f Finding) Fixable() bool { return f.FixState == FixStateFixed && len(f.FixVersions) > 0 }

// TextBytes is about how much the finding's texts take.
func (f Finding) TextBytes() int {
	n := len(f.ID) + len(f.Description) + len(f.URL) + len(f.Package.Name) + len(f.Package.Version) + len(f.Package.PURL)
	for _, list := range [][]string{f.Aliases, f.Paths, f.FixVersions} {
		n += listBytes(list)
	}
	for _, a := range f.Advisories {
		n += len(a.ID) + len(a.Source) + len(a.Layer) + listBytes(a.FixVersions)
		for _, r := range a.Ratings {
			n += len(r.Source) + len(r.Vector)
		}
	}
	return n
}

func listBytes(list []string) (n int) {
	for _, text := range list {
		n += len(text)
	}
	return n
}

// The bands of the probability of exploitation. They are coarse, since the figure moves a little every day: only where it is of
// another order it outweighs a severity. Most vulnerabilities are far below the lower bound.
const (
	epssLikely   = 0.5 // exploited within 30 days as likely as not
	epssPossible = 0.1 // at least one of ten is
)

// likelihood is the band that a finding's probability of exploitation is in: 2, 1 or, below both bounds or unknown, 0.
func (f Finding) likelihood() int {
	switch {
	case f.EPSS >= epssLikely:
		return 2
	case f.EPSS >= epssPossible:
		return 1
	}
	return 0
}

// Worse orders findings by what to look at first: known exploited, likelihood of exploitation, severity, fix available, the
// probability itself, then id and package so that the order is total. Negative when a is worse than b.
func Worse(a, b Finding) int {
	return cmp.Or(
		compareBool(b.KnownExploited, a.KnownExploited),
		cmp.Compare(b.likelihood(), a.likelihood()),
		cmp.Compare(b.Severity, a.Severity),
		compareBool(b.Fixable(), a.Fixable()),
		cmp.Compare(b.EPSS, a.EPSS),
		cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Package.Name, b.Package.Name),
		cmp.Compare(a.Package.Version, b.Package.Version),
		slices.Compare(a.Paths, b.Paths),
		cmp.Compare(a.Package.Type, b.Package.Type),
		cmp.Compare(a.Package.PURL, b.Package.PURL),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
