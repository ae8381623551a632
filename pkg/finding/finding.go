// Package finding defines a finding: one vulnerability in one package of one image, whichever engine found it. It gives findings
// their identity and order, merges what several advisories state about one finding, and counts findings.
//
// It only computes. It must not know any engine, the store or Kubernetes.
package finding

import (
	"cmp"
	"slices"
	"time"
)

// Fix states, best first.
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
	// Aliases are all other IDs, including the native ones of the advisories; sorted.
	Aliases  []string `json:"aliases,omitempty"`
	Severity Severity `json:"severity"`
	Package  Package  `json:"package"`
	// Paths are where the package was found in the image. The first one is part of the finding's identity.
	Paths []string `json:"paths,omitempty"`

	FixState    string   `json:"fixState"`
	FixVersions []string `json:"fixVersions,omitempty"`
	// FixAvailable is when the engine's data first had a fix; zero if unknown.
	FixAvailable time.Time `json:"fixAvailable,omitzero"`

	Description string `json:"description,omitempty"`
	URL         string `json:"url,omitempty"`
	// CVSS is the highest known base score, 0 to 10; 0 if none is known.
	CVSS float64 `json:"cvss,omitempty"`
	// EPSS is the probability of exploitation within 30 days, 0 to 1; 0 if unknown (https://www.first.org/epss/).
	EPSS float64 `json:"epss,omitempty"`
	// KnownExploited means that CISA lists the vulnerability as exploited
	// (https://www.cisa.gov/known-exploited-vulnerabilities-catalog).
	KnownExploited bool `json:"knownExploited,omitempty"`

	// Advisories are the engine's matches that the finding was merged from, in the engine's own terms.
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

// Advisory is what one source states about the package.
type Advisory struct {
	ID          string   `json:"id"`
	Source      string   `json:"source"`
	Severity    string   `json:"severity"`
	FixState    string   `json:"fixState"`
	FixVersions []string `json:"fixVersions,omitempty"`
	// Layer is the digest of the image layer that added the package, compressed as in the registry; empty if the engine does not
	// report it. (Grype reports the digest of the uncompressed layer, which is a different one.)
	Layer string `json:"layer,omitempty"`
	// Analysis is the decision about the vulnerability that an external report contains, in the terms of CycloneDX ("not_affected"). It
	// suppresses nothing. Empty if there is none.
	Analysis string `json:"analysis,omitempty"`
	// Ratings of the vulnerability by this source.
	Ratings []Rating `json:"ratings,omitempty"`
}

// Rating is a CVSS rating (https://www.first.org/cvss/).
type Rating struct {
	// Source of the rating, such as an address of the organization that made it; may be empty.
	Source string `json:"source,omitempty"`
	// Version of CVSS: 2.0, 3.0, 3.1 or 4.0.
	Version string `json:"version"`
	Vector  string `json:"vector"`
	// Score is the base score, 0 to 10.
	Score float64 `json:"score"`
}

// Fixable reports whether an update would remove the finding.
func (f Finding) Fixable() bool { return f.FixState == FixStateFixed && len(f.FixVersions) > 0 }

// TextBytes returns the approximate size of the finding's texts in bytes.
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

// Lower bounds of the bands of exploitation probability, in percent. The bands are coarse, since the probability changes a little every day:
// only a different order of magnitude should outweigh a severity. Most vulnerabilities are far below the lower bound.
const (
	epssLikely   = 50 // exploitation within 30 days is as likely as not
	epssPossible = 10 // at least one in ten is exploited within 30 days
)

// EPSSBand returns the lower bound of the band that the finding's exploitation probability is in, in percent: 50, 10 or, if the probability
// is below both bounds or unknown, 0.
func (f Finding) EPSSBand() int {
	switch percent := f.EPSS * 100; {
	case percent >= epssLikely:
		return epssLikely
	case percent >= epssPossible:
		return epssPossible
	}
	return 0
}

// CompareUrgency compares findings by known exploited, likelihood of exploitation, severity and fix available. It returns a negative number if a is
// more urgent than b.
func CompareUrgency(a, b Finding) int {
	return cmp.Or(
		compareBool(b.KnownExploited, a.KnownExploited),
		cmp.Compare(b.EPSSBand(), a.EPSSBand()),
		cmp.Compare(b.Severity, a.Severity),
		compareBool(b.Fixable(), a.Fixable()),
	)
}

// Worse compares findings by CompareUrgency, then the probability of exploitation itself. ID and package make the order total. It returns a negative
// number if a is worse than b.
func Worse(a, b Finding) int {
	return cmp.Or(
		CompareUrgency(a, b),
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
