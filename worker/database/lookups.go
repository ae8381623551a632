package database

import (
	"fmt"
	"slices"

	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/search"
	"github.com/anchore/grype/grype/vulnerability"
)

// Bounds of one Lookups. There is one Lookups for each parallel match, and its cache has at most two generations.
const (
	// maxCachedLookups is the size of a generation of queries, which count as one and as lookupsPerFound for each vulnerability found.
	// A vulnerability takes about 2 KB, most of it shared descriptions.
	maxCachedLookups = 40_000
	lookupsPerFound  = 4
	// maxMetadata is the maximum number of vulnerabilities whose metadata is cached.
	maxMetadata = 10_000
)

// Lookups is a view of the database for one match at a time. It caches lookups for later matches, since images
// have most of their packages in common. The cache holds only what the database returns for a package name, a
// distribution, a version, a CPE or an ID, and nothing else of an image: Grype's other rules run for each image again.
//
// Grype sorts and completes results in place, so two matches must not use a Lookups at the same time.
type Lookups struct {
	vulnerability.Provider
	db       *DB
	found    cache[string, []vulnerability.Vulnerability]
	metadata map[metadataKey]*vulnerability.Metadata
}

// metadataKey identifies the text, scores and probabilities of a vulnerability: by its row, or by its ID and namespace.
type metadataKey struct {
	row           v6.ID
	id, namespace string
}

func newLookups(db *DB, provider vulnerability.Provider) *Lookups {
	sizeOf := func(found []vulnerability.Vulnerability) int { return 1 + lookupsPerFound*len(found) }
	return &Lookups{
		Provider: provider, db: db, metadata: map[metadataKey]*vulnerability.Metadata{},
		found: cache[string, []vulnerability.Vulnerability]{sizeOf: sizeOf, limit: maxCachedLookups},
	}
}

// FindVulnerabilities implements vulnerability.Provider. As in Grype's own provider (grype v0.121, grype/db/v6), conditions
// that are not part of the query filter its result.
func (l *Lookups) FindVulnerabilities(criteria ...vulnerability.Criteria) ([]vulnerability.Vulnerability, error) {
	if err := search.ValidateCriteria(criteria); err != nil {
		return nil, err
	}
	var all []vulnerability.Vulnerability
	for _, set := range search.CriteriaIterator(criteria) {
		query, filters, key := split(set)
		found, err := l.find(query, key)
		if err == nil {
			found, err = applyFilters(found, filters)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// find returns the result of a query, from the cache if possible. An empty key is never cached.
func (l *Lookups) find(query []vulnerability.Criteria, key string) ([]vulnerability.Vulnerability, error) {
	if found, known := l.found.get(key); known {
		return cloneResult(found), nil
	}
	failures := l.db.Failures()
	found, err := l.Provider.FindVulnerabilities(query...)
	// A failed query that Grype does not report may have made the result incomplete.
	if err == nil && key != "" && l.db.Failures() == failures {
		l.found.add(key, found)
		found = cloneResult(found)
	}
	return found, err
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
		if len(l.metadata) >= maxMetadata {
			clear(l.metadata)
		}
		l.metadata[key] = found
	}
	return found, err
}

// split separates the conditions of the database query from those that filter its result. It also returns the key of
// the query, which is empty if a condition of the query has no name.
func split(set []vulnerability.Criteria) (query, filters []vulnerability.Criteria, key string) {
	named := true
	for _, criterion := range set {
		name, asked := conditionName(criterion)
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

// conditionName returns the name of a condition, and whether the condition is part of the database query. Conditions with equal names are
// equal. The name is empty for a function over versions, since two functions cannot be compared. All other conditions, which are
// functions over vulnerabilities in Grype, filter the result.
func conditionName(criterion vulnerability.Criteria) (name string, asked bool) {
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
			// Major, minor and remaining version are parts of the version, unless the version is irregular.
			name += fmt.Sprintf(" %q %q %q %q %q %q %q %q", d.Type, d.Version, d.Codename, d.Channels, d.IDLike,
				d.MajorVersion(), d.MinorVersion(), d.RemainingVersion())
		}
		return name, true
	case search.VersionConstraintMatcher:
		return "", true
	}
	return "", false
}

// applyFilters returns the vulnerabilities that pass all filters.
func applyFilters(found []vulnerability.Vulnerability, filters []vulnerability.Criteria) ([]vulnerability.Vulnerability, error) {
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

// cloneResult returns a copy of a cached result, which a match may change in place.
func cloneResult(found []vulnerability.Vulnerability) []vulnerability.Vulnerability {
	all := slices.Clone(found)
	for i := range all {
		all[i] = clone(all[i])
	}
	return all
}

// clone returns a copy of a vulnerability that shares only what Grype never changes.
func clone(v vulnerability.Vulnerability) vulnerability.Vulnerability {
	v.PackageQualifiers, v.CPEs, v.Advisories = slices.Clone(v.PackageQualifiers), slices.Clone(v.CPEs), slices.Clone(v.Advisories)
	v.RelatedVulnerabilities = slices.Clone(v.RelatedVulnerabilities)
	v.Fix.Versions, v.Fix.Available = slices.Clone(v.Fix.Versions), slices.Clone(v.Fix.Available)
	return v
}
