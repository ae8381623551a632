// Package exception decides which findings need no action, why, and until when.
//
// An exception is a decision about vulnerabilities in packages, in the terms of OpenVEX (https://github.com/openvex/spec). It suppresses
// findings and never deletes them: suppressed findings are left out of counts and messages, and shown as suppressed. The package only
// compares; it knows no Kubernetes, no store and no clock.
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
	// UID, Namespace and Name are those of the resource. Namespace is empty for a cluster-wide exception.
	UID, Namespace, Name string
	// Namespaces are those that a cluster-wide exception selects; nil for all.
	Namespaces map[string]bool
	// Status and Justification are OpenVEX terms. Justification is empty unless Status is not_affected.
	Status, Justification string
	// Reason is for people. Action is what is done about the finding, for the status affected.
	Reason, Action string
	// Vulnerabilities are IDs or aliases, in upper or lower case; empty for all.
	Vulnerabilities []string
	// Packages to which it applies; empty for all. With neither vulnerabilities nor packages it suppresses nothing.
	Packages []Package
	// Images are globs (image.Match) of repository, repository:tag or repository@digest; empty for all.
	Images []string
	// Created is when the resource was created, or the statement made. Expires is zero if the exception never expires.
	Created, Expires time.Time
	// Manifest is set for a statement of an OpenVEX document that is attached to an image, and limits it to that image: the exception is no resource,
	// Name is the document's ID, and Signer is who signed the document.
	Manifest int64
	Signer   string
}

// Kinds of exceptions.
const (
	KindNamespaced  = "VulnerabilityException"
	KindClusterWide = "ClusterVulnerabilityException"
	// KindStatement is a statement of an OpenVEX document that is attached to an image. It is no resource.
	KindStatement = "OpenVEX"
)

// Sources of exceptions.
const (
	FromResource = "Resource"
	FromImage    = "Image"
)

// IsStatement reports whether the exception is a statement of a document that is attached to an image, and no resource.
func (e Exception) IsStatement() bool { return e.Manifest != 0 }

// Kind returns the exception's kind.
func (e Exception) Kind() string {
	switch {
	case e.IsStatement():
		return KindStatement
	case e.Namespace == "":
		return KindClusterWide
	}
	return KindNamespaced
}

// Source returns where the exception comes from.
func (e Exception) Source() string {
	if e.IsStatement() {
		return FromImage
	}
	return FromResource
}

// Resource returns the kind and the name of the resource, such as "VulnerabilityException shop/accepted". For a statement it names the document
// and its signer.
func (e Exception) Resource() string {
	switch {
	case e.IsStatement():
		return fmt.Sprintf("%s %s, attached to the image and signed by %s", KindStatement, e.Name, e.Signer)
	case e.Namespace == "":
		return KindClusterWide + " " + e.Name
	}
	return KindNamespaced + " " + e.Namespace + "/" + e.Name
}

// Package selects packages. An empty field selects all.
type Package struct {
	// Name and Version are globs (image.MatchText).
	Name, Version string
	// Type is the engine's package type: deb, apk, rpm, go-module, npm, …
	Type string
}

// Image is one name under which a running container uses an image.
type Image struct {
	// Namespace of the container. Empty if all exceptions that it is compared with apply to the namespace.
	Namespace string
	// Reference is the one in the pod spec.
	Reference image.Reference
	// Digest is the one that the node reports.
	Digest string
	// Manifest identifies the platform's manifest in its credential scope, as Exception.Manifest does; 0 while it is not known.
	Manifest int64
}

// Set holds the exceptions that are in force for one or more namespaces at one time. The zero value suppresses nothing.
type Set struct {
	exceptions []prepared
	// statements are the exceptions with a manifest, by manifest. They are compared only with findings in that manifest's image.
	statements map[int64]bound
	key        string
}

// bound are the statements about one manifest.
type bound struct {
	exceptions []prepared
	key        string
}

// prepared is an exception with its vulnerabilities indexed for comparison.
type prepared struct {
	Exception
	vulnerabilities map[string]bool // in upper case
}

// NewSet returns the set of those exceptions that have not expired at now.
func NewSet(exceptions []Exception, now time.Time) Set {
	var s Set
	statements := make(map[int64][]prepared)
	for _, e := range exceptions {
		if !e.Expires.IsZero() && !now.Before(e.Expires) {
			continue
		}
		p := prepared{Exception: e, vulnerabilities: map[string]bool{}}
		for _, id := range e.Vulnerabilities {
			p.vulnerabilities[strings.ToUpper(id)] = true
		}
		if e.IsStatement() {
			statements[e.Manifest] = append(statements[e.Manifest], p)
		} else {
			s.exceptions = append(s.exceptions, p)
		}
	}
	slices.SortFunc(s.exceptions, compareExpiry)
	for manifest, about := range statements {
		slices.SortFunc(about, compareExpiry)
		if s.statements == nil {
			s.statements = make(map[int64]bound, len(statements))
		}
		s.statements[manifest] = bound{about, keyOf(about)}
	}
	s.key = s.computeKey()
	return s
}

// computeKey returns the key of the set.
func (s Set) computeKey() string {
	key := keyOf(s.exceptions)
	if len(s.statements) == 0 {
		return key
	}
	sum := sha256.New()
	fmt.Fprintln(sum, key)
	for _, manifest := range slices.Sorted(maps.Keys(s.statements)) {
		fmt.Fprintln(sum, manifest, s.statements[manifest].key)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// about returns the resources of the set, followed by the statements about one image.
func (s Set) about(img Image) [2][]prepared {
	if img.Manifest == 0 {
		return [2][]prepared{s.exceptions}
	}
	return [2][]prepared{s.exceptions, s.statements[img.Manifest].exceptions}
}

// compareExpiry orders exceptions by expiry, the latest first.
func compareExpiry(a, b prepared) int {
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

// keyOf hashes everything that decides what the exceptions suppress.
func keyOf(exceptions []prepared) string {
	if len(exceptions) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, e := range exceptions {
		fmt.Fprintf(sum, "%q %q %q %q %q %q\n", e.UID, e.Vulnerabilities, e.Packages, e.Images, e.Namespace, slices.Sorted(maps.Keys(e.Namespaces)))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Key identifies what the set suppresses: sets with the same key suppress the same findings. It is empty for the empty set.
func (s Set) Key() string { return s.key }

// In returns the exceptions of the set that apply to some of the given namespaces. A set of one namespace's exceptions stays as it is.
func (s Set) In(namespaces map[string]bool) Set {
	applies := func(p prepared) bool { return p.Namespace == "" || namespaces[p.Namespace] }
	if !slices.ContainsFunc(s.exceptions, func(p prepared) bool { return !applies(p) }) {
		return s
	}
	part := Set{statements: s.statements}
	for _, p := range s.exceptions {
		if applies(p) {
			part.exceptions = append(part.exceptions, p)
		}
	}
	part.key = part.computeKey()
	return part
}

// About returns the set without the statements about other images than the given ones.
func (s Set) About(images map[int64]bool) Set {
	if len(s.statements) == 0 {
		return s
	}
	part := Set{exceptions: s.exceptions}
	for manifest := range images {
		if about, found := s.statements[manifest]; found {
			if part.statements == nil {
				part.statements = make(map[int64]bound)
			}
			part.statements[manifest] = about
		}
	}
	part.key = part.computeKey()
	return part
}

// All returns the exceptions of the set: resources, the one that expires last first, and then statements.
func (s Set) All() []Exception {
	all := make([]Exception, 0, len(s.exceptions))
	for _, e := range s.exceptions {
		all = append(all, e.Exception)
	}
	for _, manifest := range slices.Sorted(maps.Keys(s.statements)) {
		for _, e := range s.statements[manifest].exceptions {
			all = append(all, e.Exception)
		}
	}
	return all
}

// SuppressedBy returns the exception that suppresses a finding in an image; nil if none does. If several do, it returns the one that expires
// last, so that its expiry is the end of the suppression. Of a resource and a statement that both never expire, it returns the resource.
func (s Set) SuppressedBy(img Image, f finding.Finding) (by *Exception) {
	for _, exceptions := range s.about(img) {
		for i := range exceptions {
			e := &exceptions[i]
			if by != nil && by.Expires.IsZero() {
				return by
			}
			if e.suppresses(img, f) {
				by = &e.Exception
				break
			}
		}
	}
	return by
}

// SuppressedUnderAllNames returns the exception that suppresses a finding in an image under each of its names; nil if the finding is not suppressed
// under one of them, or if there are no names. If several exceptions are involved, it returns that of the first name.
func (s Set) SuppressedUnderAllNames(images []Image, f finding.Finding) *Exception {
	var covering *Exception
	for _, img := range images {
		e := s.SuppressedBy(img, f)
		if e == nil {
			return nil
		}
		if covering == nil {
			covering = e
		}
	}
	return covering
}

func (p *prepared) suppresses(img Image, f finding.Finding) bool {
	return len(p.vulnerabilities)+len(p.Packages) > 0 && p.appliesIn(img.Namespace) && p.matchesVulnerability(f) && p.matchesPackage(f.Package) && p.matchesImage(img)
}

// appliesIn reports whether the exception applies to a namespace.
func (p *prepared) appliesIn(namespace string) bool {
	switch {
	case namespace == "":
		return true
	case p.Namespace != "":
		return p.Namespace == namespace
	}
	return p.Namespaces == nil || p.Namespaces[namespace]
}

// matchesVulnerability reports whether the exception applies to the finding's vulnerability, by its ID or any alias.
func (p *prepared) matchesVulnerability(f finding.Finding) bool {
	if len(p.vulnerabilities) == 0 || p.vulnerabilities[strings.ToUpper(f.ID)] {
		return true
	}
	return slices.ContainsFunc(f.Aliases, func(alias string) bool { return p.vulnerabilities[strings.ToUpper(alias)] })
}

func (p *prepared) matchesPackage(pkg finding.Package) bool {
	return len(p.Packages) == 0 || slices.ContainsFunc(p.Packages, func(s Package) bool {
		return (s.Name == "" || image.MatchText(s.Name, pkg.Name)) && (s.Version == "" || image.MatchText(s.Version, pkg.Version)) &&
			(s.Type == "" || s.Type == pkg.Type)
	})
}

func (p *prepared) matchesImage(img Image) bool {
	return len(p.Images) == 0 || slices.ContainsFunc(p.Images, func(glob string) bool {
		return image.Match(glob, img.Reference) || img.Digest != "" && image.MatchText(glob, img.Reference.Repository+"@"+img.Digest)
	})
}

// SearchBounds returns bounds for a search of suppressed findings. The set suppresses only findings with one of the IDs (in upper case,
// canonical or alias) or in a package with one of the names. With every, there is no such bound.
func (s Set) SearchBounds() (ids, packages []string, every bool) {
	for _, about := range s.statements {
		for _, e := range about.exceptions {
			ids = slices.AppendSeq(ids, maps.Keys(e.vulnerabilities))
		}
	}
	for _, e := range s.exceptions {
		if len(e.vulnerabilities) > 0 {
			ids = slices.AppendSeq(ids, maps.Keys(e.vulnerabilities))
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
