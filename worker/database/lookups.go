package database

import (
	"fmt"
	"slices"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/search"
	"github.com/anchore/grype/grype/vulnerability"
)

// Bounds of what one Lookups remembers, in look-ups and in vulnerabilities that they found. A vulnerability takes about
// 2 KB, most of them shared descriptions; there are at most two generations and one Lookups for each parallel match.
const (
	maxRemembered = 40_000
	maxFound      = 10_000
)

// Lookups is a view of the database for one match at a time, which remembers what earlier matches looked up: images
// have most of their packages in common. What is remembered is what the database says about a package name, a
// distribution, a version, a CPE or an id, and nothing else of an image: Grype's other rules run for each image anew.
//
// Grype sorts and completes in place what it is given, so nothing here may be used by two matches at the same time.
type Lookups struct {
	vulnerability.Provider
	db *DB
	// The older generation is forgotten when the recent one is full; what is used moves into the recent one.
	recent, older generation
	metadata      map[metadataKey]*vulnerability.Metadata
	// most look-ups of a generation.
	most int
}

// generation is a part of what is remembered.
type generation struct {
	found map[string][]vulnerability.Vulnerability
	// size is the number of vulnerabilities in it.
	size int
}

// metadataKey is what the text, scores and probabilities of a vulnerability belong to: a row, or a name.
type metadataKey struct {
	row           v6.ID
	id, namespace string
}

func newLookups(db *DB, provider vulnerability.Provider) *Lookups {
	return &Lookups{
		Provider: provider, db: db, most: maxRemembered, metadata: map[metadataKey]*vulnerability.Metadata{},
		recent: generation{found: map[string][]vulnerability.Vulnerability{}},
	}
}

// FindVulnerabilities implements vulnerability.Provider. As in Grype's own (grype v0.121, grype/db/v6), conditions that
// are no part of the query filter its result.
func (l *Lookups) FindVulnerabilities(criteria ...vulnerability.Criteria) ([]vulnerability.Vulnerability, error) {
	if err := search.ValidateCriteria(criteria); err != nil {
		return nil, err
	}
	var all []vulnerability.Vulnerability
	for _, set := range search.CriteriaIterator(criteria) {
		query, filters, key := split(set)
		found, err := l.find(query, key)
		if err == nil {
			found, err = matching(found, filters)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// find looks a query up, or remembers its result.
func (l *Lookups) find(query []vulnerability.Criteria, key string) ([]vulnerability.Vulnerability, error) {
	if found, known := l.recall(key); known {
		return found, nil
	}
	failures := l.db.Failures()
	found, err := l.Provider.FindVulnerabilities(query...)
	// A failure that Grype itself does not mention may have left something out.
	if err == nil && key != "" && l.db.Failures() == failures {
		l.remember(key, found)
		found = copied(found)
	}
	return found, err
}

func (l *Lookups) recall(key string) (found []vulnerability.Vulnerability, known bool) {
	if found, known = l.recent.found[key]; known {
		return copied(found), true
	}
	if found, known = l.older.found[key]; known {
		l.remember(key, found)
		return copied(found), true
	}
	return nil, false
}

func (l *Lookups) remember(key string, found []vulnerability.Vulnerability) {
	if len(l.recent.found) >= l.most || l.recent.size+len(found) > maxFound {
		l.older, l.recent = l.recent, generation{found: map[string][]vulnerability.Vulnerability{}}
	}
	l.recent.found[key] = found
	l.recent.size += len(found)
}

// VulnerabilityMetadata implements vulnerability.MetadataProvider.
func (l *Lookups) VulnerabilityMetadata(ref vulnerability.Reference) (*vulnerability.Metadata, error) {
	key := metadataKey{id: ref.ID, namespace: ref.Namespace}
	if handle, ok := ref.Internal.(*v6.VulnerabilityHandle); ok && handle != nil {
		key.row = handle.ID
	}
	if known, ok := l.metadata[key]; ok {
		return known, nil
	}
	failures := l.db.Failures()
	found, err := l.Provider.VulnerabilityMetadata(ref) //nolint:staticcheck // Grype still uses it
	if err == nil && l.db.Failures() == failures {
		if len(l.metadata) >= maxFound {
			clear(l.metadata)
		}
		l.metadata[key] = found
	}
	return found, err
}

// split tells the conditions that the database is asked by from those that filter what it answers, and names the
// question. The name is empty when a condition has none.
func split(set []vulnerability.Criteria) (query, filters []vulnerability.Criteria, key string) {
	named := true
	for _, criterion := range set {
		name, asked := nameOf(criterion)
		if !asked {
			filters = append(filters, criterion)
			continue
		}
		named = named && name != ""
		query = append(query, criterion)
		key += name + "\n"
	}
	if !named {
		key = ""
	}
	return query, filters, key
}

// nameOf names a condition that the database is asked by: equal names are equal conditions. It is empty for a function
// over versions, which can be anything. All others, which Grype knows as functions over vulnerabilities, filter.
func nameOf(criterion vulnerability.Criteria) (name string, asked bool) {
	switch c := criterion.(type) {
	case *search.PackageNameCriteria:
		return fmt.Sprintf("package %q", c.PackageName), true
	case *search.EcosystemCriteria:
		return fmt.Sprintf("ecosystem %q %q", c.Language, c.PackageType), true
	case *search.IDCriteria:
		return fmt.Sprintf("id %q", c.ID), true
	case *search.CPECriteria:
		return fmt.Sprintf("cpe %q", c.CPE.Attributes), true
	case *search.UnaffectedCriteria:
		return "unaffected", true
	case *search.VersionCriteria:
		return fmt.Sprintf("version %q %d %q", c.Version.Raw, c.Version.Format, c.Version.Config), true
	case *search.DistroCriteria:
		name = fmt.Sprintf("distribution %t", c.Exact)
		for _, d := range c.Distros {
			// Major, minor and remaining version are parts of the version, except where it is odd.
			name += fmt.Sprintf(" %q %q %q %q %q %q %q %q", d.Type, d.Version, d.Codename, d.Channels, d.IDLike,
				d.MajorVersion(), d.MinorVersion(), d.RemainingVersion())
		}
		return name, true
	case search.VersionConstraintMatcher:
		return "", true
	}
	return "", false
}

// matching keeps what all filters let pass.
func matching(found []vulnerability.Vulnerability, filters []vulnerability.Criteria) ([]vulnerability.Vulnerability, error) {
	var kept []vulnerability.Vulnerability
	for _, v := range found {
		passes := true
		for _, filter := range filters {
			var err error
			if passes, _, err = filter.MatchesVulnerability(v); err != nil {
				return nil, err
			}
			if !passes {
				break
			}
		}
		if passes {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

// copied protects what is remembered from being changed in place.
func copied(found []vulnerability.Vulnerability) []vulnerability.Vulnerability {
	all := slices.Clone(found)
	for i := range all {
		v := &all[i]
		v.PackageQualifiers, v.CPEs, v.Advisories = slices.Clone(v.PackageQualifiers), slices.Clone(v.CPEs), slices.Clone(v.Advisories)
		v.RelatedVulnerabilities = slices.Clone(v.RelatedVulnerabilities)
		v.Fix.Versions, v.Fix.Available = slices.Clone(v.Fix.Versions), slices.Clone(v.Fix.Available)
	}
	return all
}
