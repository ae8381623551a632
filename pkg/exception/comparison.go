package exception

import (
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Comparison compares the findings of one image with the exceptions that can be about it. What depends on the image's names and on packages is decided
// once, so that the cost of a finding does not grow with the number of globs. It is not safe for concurrent use.
type Comparison struct {
	groups []*group
	names  []comparedName
	// covered has the names to which an exception applies, or nil for none. packages has the exceptions that select packages by globs, by the package.
	covered  map[*prepared][]bool
	packages map[finding.Package][]*prepared
	found    []*prepared // reused
}

// comparedName is a name of the image. Its texts are what globs are compared with.
type comparedName struct {
	Image
	texts []string
}

// Compare returns a comparison of findings in one image, which is in use under some names.
func (s Set) Compare(names []Image) *Comparison {
	c := &Comparison{covered: make(map[*prepared][]bool), packages: make(map[finding.Package][]*prepared)}
	if s.wide != nil {
		c.groups = append(c.groups, s.wide)
	}
	namespaces, manifests := make(map[string]bool), make(map[int64]bool)
	for _, name := range names {
		c.names = append(c.names, comparedName{name, textsOf(name)})
		namespaces[name.Namespace], manifests[name.Manifest] = true, true
	}
	for namespace := range s.own {
		if namespaces[namespace] || namespaces[""] {
			c.groups = append(c.groups, s.own[namespace])
		}
	}
	for manifest := range manifests {
		if g := s.statements[manifest]; g != nil && manifest != 0 {
			c.groups = append(c.groups, g)
		}
	}
	return c
}

// textsOf returns the texts of a name that globs are compared with.
func textsOf(img Image) []string {
	texts := []string{img.Reference.String(), img.Reference.Repository}
	for _, digest := range []string{img.Reference.Digest, img.Digest} {
		if digest != "" {
			texts = append(texts, img.Reference.Repository+"@"+digest)
		}
	}
	return texts
}

// ByName returns, for each name of the image, the exception that suppresses a finding under that name; nil for none. If several do, it is the one that
// expires last, so that its expiry is the end of the suppression. all is true if it is suppressed under each name, and there is one. The result is
// nil if the finding is suppressed under no name.
func (c *Comparison) ByName(f finding.Finding) (by []*Exception, all bool) {
	left := len(c.names)
	for _, e := range c.matching(f) {
		covered := c.coveredBy(e)
		if covered == nil {
			continue
		}
		if by == nil {
			by = make([]*Exception, len(c.names))
		}
		for i := range by {
			if covered[i] && by[i] == nil {
				by[i] = &e.Exception
				left--
			}
		}
		if left == 0 {
			return by, true
		}
	}
	return by, false
}

// SuppressedBy returns the exception that suppresses a finding under each name of the image; nil if one name has none, or if there are no names. If
// several exceptions are involved, it is that of the first name.
func (c *Comparison) SuppressedBy(f finding.Finding) *Exception {
	if by, all := c.ByName(f); all {
		return by[0]
	}
	return nil
}

// SuppressedBy returns the exception that suppresses a finding in an image; nil if none does. If several do, it returns the one that expires
// last. Of a resource and a statement that both never expire, it returns the resource. For several findings of an image, Compare costs less.
func (s Set) SuppressedBy(img Image, f finding.Finding) *Exception {
	return s.Compare([]Image{img}).SuppressedBy(f)
}

// SuppressedUnderAllNames is SuppressedBy of a Comparison, for one finding.
func (s Set) SuppressedUnderAllNames(images []Image, f finding.Finding) *Exception {
	return s.Compare(images).SuppressedBy(f)
}

// matching returns the exceptions about the finding's vulnerability and package, in the order of compareExpiry. One may be in it twice.
func (c *Comparison) matching(f finding.Finding) []*prepared {
	c.found = c.found[:0]
	if len(c.groups) == 0 {
		return nil
	}
	for i := range 1 + len(f.Aliases) {
		id := f.ID
		if i > 0 {
			id = f.Aliases[i-1]
		}
		id = strings.ToUpper(id)
		for _, g := range c.groups {
			for _, e := range g.byID[id] {
				if len(e.packages) == 0 || e.matchesPackage(f.Package) {
					c.found = append(c.found, e)
				}
			}
		}
	}
	c.found = append(c.found, c.ofPackage(f.Package)...)
	slices.SortFunc(c.found, compareExpiry)
	return c.found
}

// ofPackage returns the exceptions without vulnerabilities that are about a package, and about a name of the image.
func (c *Comparison) ofPackage(pkg finding.Package) []*prepared {
	if found, known := c.packages[pkg]; known {
		return found
	}
	var found []*prepared
	for _, g := range c.groups {
		for _, about := range [][]*prepared{g.byPackage[pkg.Name], g.open} {
			for _, e := range about {
				if c.coveredBy(e) != nil && e.matchesPackage(pkg) {
					found = append(found, e)
				}
			}
		}
	}
	c.packages[pkg] = found
	return found
}

// coveredBy returns for each name of the image whether an exception applies to it; nil if it applies to none.
func (c *Comparison) coveredBy(e *prepared) []bool {
	covered, known := c.covered[e]
	if known {
		return covered
	}
	for i := range c.names {
		if !e.matchesName(&c.names[i]) {
			continue
		}
		if covered == nil {
			covered = make([]bool, len(c.names))
		}
		covered[i] = true
	}
	c.covered[e] = covered
	return covered
}

func (p *prepared) matchesName(name *comparedName) bool {
	if !p.appliesIn(name.Namespace) || p.Manifest != 0 && p.Manifest != name.Manifest {
		return false
	}
	if len(p.images) == 0 {
		return true
	}
	for i := range p.images {
		if slices.ContainsFunc(name.texts, p.images[i].Match) {
			return true
		}
	}
	return false
}

// appliesIn reports whether the exception applies to a namespace.
func (p *prepared) appliesIn(namespace string) bool {
	if namespace == "" || p.Namespace != "" {
		return namespace == "" || p.Namespace == namespace
	}
	return p.Namespaces == nil || p.Namespaces[namespace]
}

func (p *prepared) matchesPackage(pkg finding.Package) bool {
	return slices.ContainsFunc(p.packages, func(s selector) bool { return s.selects(pkg) })
}

// Distinct returns the exceptions of ByName, each once, in the order of names.
func Distinct(by []*Exception) (all []*Exception) {
	for _, e := range by {
		if e != nil && !slices.ContainsFunc(all, func(other *Exception) bool { return other.UID == e.UID }) {
			all = append(all, e)
		}
	}
	return all
}
