// Package exception says which findings need no action, why, and until when.
//
// An exception is what somebody decided about vulnerabilities in packages, in the terms of OpenVEX
// (https://github.com/openvex/spec). It covers findings and never removes them: what is covered is left out of counts and
// messages and shown as excepted. The package only compares; it knows no Kubernetes, no store and no clock.
package exception

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Exception is one decision about findings.
type Exception struct {
	// UID of the resource, Namespace and Name of it. Namespace is empty for one of the whole cluster.
	UID, Namespace, Name string
	// Status and Justification are OpenVEX's words; Justification is empty unless Status is not_affected.
	Status, Justification string
	// Reason is for people; Action is what is done about it, for status affected.
	Reason, Action string
	// Vulnerabilities are ids or aliases, in any case; empty for all.
	Vulnerabilities []string
	// Packages that it is about; empty for all. With neither vulnerabilities nor packages it covers nothing.
	Packages []Package
	// Images are globs (image.Match) of repository, repository:tag or repository@digest; empty for all.
	Images []string
	// Created is when it was made. Expires is zero if it never does.
	Created, Expires time.Time
}

// Package selects packages; empty fields select all.
type Package struct {
	// Name and Version are globs (image.MatchText).
	Name, Version string
	// Type is the engine's: deb, apk, rpm, go-module, npm, …
	Type string
}

// Image is one way in which a running container names an image.
type Image struct {
	// Reference is the pod spec's.
	Reference image.Reference
	// Digest is what the node reports.
	Digest string
}

// Set holds the exceptions that are in force for one namespace at one moment. The zero value covers nothing.
type Set struct {
	exceptions []prepared
	key        string
}

// prepared is an exception in the form in which it is compared.
type prepared struct {
	Exception
	vulnerabilities map[string]bool // in upper case
}

// NewSet returns those of some exceptions that are in force at a time.
func NewSet(exceptions []Exception, now time.Time) Set {
	var s Set
	for _, e := range exceptions {
		if !e.Expires.IsZero() && !now.Before(e.Expires) {
			continue
		}
		p := prepared{Exception: e, vulnerabilities: map[string]bool{}}
		for _, id := range e.Vulnerabilities {
			p.vulnerabilities[strings.ToUpper(id)] = true
		}
		s.exceptions = append(s.exceptions, p)
	}
	slices.SortFunc(s.exceptions, laterEnd)
	s.key = keyOf(s.exceptions)
	return s
}

// laterEnd puts the exception that is in force for longer first.
func laterEnd(a, b prepared) int {
	switch {
	case a.Expires.Equal(b.Expires):
	case a.Expires.IsZero():
		return -1
	case b.Expires.IsZero():
		return 1
	default:
		return b.Expires.Compare(a.Expires)
	}
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}

// keyOf depends on all that decides what is covered.
func keyOf(exceptions []prepared) string {
	if len(exceptions) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, e := range exceptions {
		fmt.Fprintf(sum, "%q %q %q %q\n", e.UID, e.Vulnerabilities, e.Packages, e.Images)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Key names what the set covers: sets with the same key cover the same. Empty for a set that covers nothing.
func (s Set) Key() string { return s.key }

// All are the exceptions of the set, that which expires last first.
func (s Set) All() []Exception {
	all := make([]Exception, 0, len(s.exceptions))
	for _, e := range s.exceptions {
		all = append(all, e.Exception)
	}
	return all
}

// Covering returns the exception that covers a finding in an image, nil if none does: of several the one that expires last, so
// that what is said of its end is true.
func (s Set) Covering(img Image, f finding.Finding) *Exception {
	for i := range s.exceptions {
		if e := &s.exceptions[i]; e.covers(img, f) {
			return &e.Exception
		}
	}
	return nil
}

// CoveringAll returns the exception that covers a finding in an image by each of its names; nil if there is a name by which
// it is not covered, or no name at all. Of several exceptions it is the first by Covering.
func (s Set) CoveringAll(images []Image, f finding.Finding) *Exception {
	var covering *Exception
	for _, img := range images {
		e := s.Covering(img, f)
		if e == nil {
			return nil
		}
		if covering == nil {
			covering = e
		}
	}
	return covering
}

func (p *prepared) covers(img Image, f finding.Finding) bool {
	return len(p.vulnerabilities)+len(p.Packages) > 0 && p.names(f) && p.selects(f.Package) && p.isAbout(img)
}

// names says whether the exception is about the finding's vulnerability, by any of its ids.
func (p *prepared) names(f finding.Finding) bool {
	if len(p.vulnerabilities) == 0 || p.vulnerabilities[strings.ToUpper(f.ID)] {
		return true
	}
	return slices.ContainsFunc(f.Aliases, func(alias string) bool { return p.vulnerabilities[strings.ToUpper(alias)] })
}

func (p *prepared) selects(pkg finding.Package) bool {
	return len(p.Packages) == 0 || slices.ContainsFunc(p.Packages, func(s Package) bool {
		return (s.Name == "" || image.MatchText(s.Name, pkg.Name)) && (s.Version == "" || image.MatchText(s.Version, pkg.Version)) &&
			(s.Type == "" || s.Type == pkg.Type)
	})
}

func (p *prepared) isAbout(img Image) bool {
	return len(p.Images) == 0 || slices.ContainsFunc(p.Images, func(glob string) bool {
		return image.Match(glob, img.Reference) || img.Digest != "" && image.MatchText(glob, img.Reference.Repository+"@"+img.Digest)
	})
}

// Narrowing bounds which findings a set can cover, for a search: those with one of the ids (in upper case, canonical or alias),
// and those in packages with one of the names. Every is true if there is no such bound.
func (s Set) Narrowing() (ids, packages []string, every bool) {
	for _, e := range s.exceptions {
		if len(e.vulnerabilities) > 0 {
			ids = append(ids, slices.Collect(maps.Keys(e.vulnerabilities))...)
			continue
		}
		for _, pkg := range e.Packages {
			if pkg.Name == "" || strings.ContainsAny(pkg.Name, "*?") {
				return nil, nil, true
			}
			packages = append(packages, pkg.Name)
		}
	}
	slices.Sort(ids)
	slices.Sort(packages)
	return slices.Compact(ids), slices.Compact(packages), false
}
