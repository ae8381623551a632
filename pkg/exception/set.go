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

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// Set holds the exceptions that are in force for one or more namespaces at one time, compiled. The zero value suppresses nothing. A Set does not
// change, and is safe for concurrent use.
type Set struct {
	// wide are the cluster-wide exceptions, own those of each namespace, and statements those about each manifest. An image is compared only with
	// the groups that can be about it.
	wide       *group
	own        map[string]*group
	statements map[int64]*group
	key        string
}

// group are exceptions that are compared together, indexed by what they name.
type group struct {
	exceptions []*prepared // in the order of compareExpiry
	// byID has the exceptions with vulnerabilities, by ID in upper case. byPackage has the others by the package's name, and open those of these that
	// select packages by a glob or without a name.
	byID, byPackage map[string][]*prepared
	open            []*prepared
	key             string
}

// prepared is a compiled exception.
type prepared struct {
	Exception
	packages []selector
	images   []image.Glob
}

// NewSet returns the set of those exceptions that have not expired at now. An exception with neither vulnerabilities nor packages suppresses nothing.
func NewSet(exceptions []Exception, now time.Time) Set {
	var wide []*prepared
	own, statements := make(map[string][]*prepared), make(map[int64][]*prepared)
	for _, e := range exceptions {
		if !e.Expires.IsZero() && !now.Before(e.Expires) {
			continue
		}
		p := prepare(e)
		switch {
		case e.IsStatement():
			statements[e.Manifest] = append(statements[e.Manifest], p)
		case e.Namespace != "":
			own[e.Namespace] = append(own[e.Namespace], p)
		default:
			wide = append(wide, p)
		}
	}
	s := Set{own: make(map[string]*group, len(own)), statements: make(map[int64]*group, len(statements))}
	if len(wide) > 0 {
		s.wide = newGroup(wide)
	}
	for namespace, group := range own {
		s.own[namespace] = newGroup(group)
	}
	for manifest, group := range statements {
		s.statements[manifest] = newGroup(group)
	}
	s.key = s.computeKey()
	return s
}

func prepare(e Exception) *prepared {
	p := &prepared{Exception: e}
	for _, glob := range e.Images {
		p.images = append(p.images, image.CompileGlob(glob))
	}
	for _, s := range e.Packages {
		p.packages = append(p.packages, s.compiled())
	}
	return p
}

// newGroup indexes exceptions, which it sorts.
func newGroup(exceptions []*prepared) *group {
	slices.SortFunc(exceptions, compareExpiry)
	g := &group{exceptions: exceptions, byID: make(map[string][]*prepared), byPackage: make(map[string][]*prepared)}
	sum := sha256.New()
	for _, e := range exceptions {
		fmt.Fprintf(sum, "%q %q %q %q %q %q\n", e.UID, e.Vulnerabilities, e.Packages, e.Images, e.Namespace, slices.Sorted(maps.Keys(e.Namespaces)))
		for _, id := range e.Vulnerabilities {
			id = strings.ToUpper(id)
			g.byID[id] = append(g.byID[id], e)
		}
		switch {
		case len(e.Vulnerabilities) > 0:
		case slices.ContainsFunc(e.Packages, Package.isOpen):
			g.open = append(g.open, e)
		default:
			for _, p := range e.Packages {
				g.byPackage[p.Name] = append(g.byPackage[p.Name], e)
			}
		}
	}
	g.key = hex.EncodeToString(sum.Sum(nil))
	return g
}

// isOpen reports whether the package may have any of several names. Findings spell the name of a package URL in several ways.
func (p Package) isOpen() bool {
	return p.Name == "" || image.IsGlob(p.Name) || strings.HasPrefix(p.Name, purlPrefix)
}

// compareExpiry orders exceptions by expiry, the latest first. Of a resource and a statement that expire at the same time, the resource comes first.
func compareExpiry(a, b *prepared) int {
	switch {
	case a.Expires.Equal(b.Expires):
	case a.Expires.IsZero():
		return -1
	case b.Expires.IsZero():
		return 1
	default:
		return b.Expires.Compare(a.Expires)
	}
	if a.IsStatement() != b.IsStatement() {
		if b.IsStatement() {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
}

// groups calls each for the groups of the set, in an order that depends only on their names.
func (s Set) groups(each func(name string, g *group)) {
	if s.wide != nil {
		each("", s.wide)
	}
	for _, namespace := range slices.Sorted(maps.Keys(s.own)) {
		each("in "+namespace, s.own[namespace])
	}
	for _, manifest := range slices.Sorted(maps.Keys(s.statements)) {
		each(fmt.Sprintf("about %d", manifest), s.statements[manifest])
	}
}

// computeKey returns the key of the set.
func (s Set) computeKey() string {
	if s.wide == nil && len(s.own)+len(s.statements) == 0 {
		return ""
	}
	sum := sha256.New()
	s.groups(func(name string, g *group) { fmt.Fprintln(sum, name, g.key) })
	return hex.EncodeToString(sum.Sum(nil))
}

// Key identifies what the set suppresses: sets with the same key suppress the same findings. It is empty for the empty set.
func (s Set) Key() string { return s.key }

// In returns the exceptions of the set that apply to some of the given namespaces. A set of one namespace's exceptions stays as it is.
func (s Set) In(namespaces map[string]bool) Set {
	part := s
	part.own = chosen(s.own, namespaces)
	if len(part.own) == len(s.own) {
		return s
	}
	part.key = part.computeKey()
	return part
}

// About returns the set without the statements about other images than the given ones.
func (s Set) About(images map[int64]bool) Set {
	part := s
	part.statements = chosen(s.statements, images)
	if len(part.statements) == len(s.statements) {
		return s
	}
	part.key = part.computeKey()
	return part
}

// chosen returns the groups with some of the keys.
func chosen[K comparable](groups map[K]*group, keys map[K]bool) map[K]*group {
	part := make(map[K]*group)
	for key := range groups {
		if keys[key] {
			part[key] = groups[key]
		}
	}
	return part
}

// joined returns the exceptions of two groups as one; nil stands for none.
func joined(a, b *group) *group {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return newGroup(slices.Concat(a.exceptions, b.exceptions))
}

// With returns the exceptions of both sets.
func (s Set) With(other Set) Set {
	if other.key == "" {
		return s
	}
	both := Set{wide: joined(s.wide, other.wide), own: make(map[string]*group), statements: make(map[int64]*group)}
	for _, part := range []Set{s, other} {
		for namespace := range part.own {
			both.own[namespace] = joined(s.own[namespace], other.own[namespace])
		}
		for manifest := range part.statements {
			both.statements[manifest] = joined(s.statements[manifest], other.statements[manifest])
		}
	}
	both.key = both.computeKey()
	return both
}

// All returns the exceptions of the set: resources, the one that expires last first, and then statements.
func (s Set) All() []Exception {
	var resources, statements []*prepared
	s.groups(func(_ string, g *group) {
		if g.exceptions[0].IsStatement() {
			statements = append(statements, g.exceptions...)
		} else {
			resources = append(resources, g.exceptions...)
		}
	})
	slices.SortFunc(resources, compareExpiry)
	all := make([]Exception, 0, len(resources)+len(statements))
	for _, e := range slices.Concat(resources, statements) {
		all = append(all, e.Exception)
	}
	return all
}

// SearchBounds returns bounds for a search of suppressed findings. The set suppresses only findings with one of the IDs (in upper case,
// canonical or alias) or in a package with one of the names. With every, there is no such bound.
func (s Set) SearchBounds() (ids, packages []string, every bool) {
	s.groups(func(_ string, g *group) {
		ids, packages = slices.AppendSeq(ids, maps.Keys(g.byID)), slices.AppendSeq(packages, maps.Keys(g.byPackage))
		every = every || len(g.open) > 0
	})
	if every {
		return nil, nil, true
	}
	slices.Sort(ids)
	slices.Sort(packages)
	return slices.Compact(ids), slices.Compact(packages), false
}
