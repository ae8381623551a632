package exception

import (
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Fit finds the exceptions that select by package URLs and select none of an image's packages. Its cost grows with the number of selectors and packages, and
// not with their product, unless they are variants of the same package and version. It is not safe for concurrent use.
type Fit struct {
	// open has the selectors without a package so far, by the identity that they name without its variant.
	open map[identity][]openSelector
	fits []bool
}

// openSelector is a selector of an exception.
type openSelector struct {
	variant
	exception int
}

// anyDistribution stands for the distribution of a selector that is compared with a package without one.
const anyDistribution = "*"

// NewFit returns a Fit of exceptions. One without packages, or with a selector that is no package URL, counts as one that fits.
func NewFit(exceptions []Exception) *Fit {
	f := &Fit{open: make(map[identity][]openSelector), fits: make([]bool, len(exceptions))}
	for i, e := range exceptions {
		f.fits[i] = len(e.Packages) == 0
		for _, p := range e.Packages {
			named := p.compiled().named
			if named == nil {
				f.fits[i] = true
				continue
			}
			id, open := *named, openSelector{named.variant, i}
			id.variant = variant{}
			f.open[id] = append(f.open[id], open)
			id.distribution = anyDistribution
			f.open[id] = append(f.open[id], open)
		}
	}
	return f
}

// Add compares a package of the image with the exceptions, by the rules of names.
func (f *Fit) Add(pkg finding.Package) {
	id, known := identityOfFinding(pkg)
	if !known {
		return
	}
	distributions := []string{id.distribution, ""}
	if id.distribution == "" {
		distributions = []string{anyDistribution}
	}
	for _, id.distribution = range distributions {
		for _, version := range []string{id.version, ""} {
			key := id
			key.version, key.variant = version, variant{}
			f.open[key] = slices.DeleteFunc(f.open[key], func(s openSelector) bool {
				fits := s.overlaps(id.variant)
				f.fits[s.exception] = f.fits[s.exception] || fits
				return fits
			})
			if len(f.open[key]) == 0 {
				delete(f.open, key)
			}
		}
	}
}

// Unfitting returns the indexes of the exceptions that select none of the packages.
func (f *Fit) Unfitting() (unfitting []int) {
	for i, fits := range f.fits {
		if !fits {
			unfitting = append(unfitting, i)
		}
	}
	return unfitting
}
