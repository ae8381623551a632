package match

import (
	"slices"

	grypematch "github.com/anchore/grype/grype/match"
	"github.com/anchore/grype/grype/pkg"
	"github.com/anchore/grype/grype/vulnerability"

	"github.com/scanner-operator/scanner-operator/worker/database"
)

// imageCache finds matches for the packages of one image in the cache of the database, and adds new ones. In a later image, an equal package
// has the same matches. Grype's rules about several packages of an image (ownership of files, ignore rules) are not part of a matcher and
// apply to each image again.
type imageCache struct {
	db   *database.DB
	keys keyWriter
	// owners are the packages that own files of others. Their ignore rules name them by their IDs, so they are not cached.
	owners map[pkg.ID]bool
}

func newImageCache(db *database.DB, packages []pkg.Package) *imageCache {
	owners := map[pkg.ID]bool{}
	for _, p := range packages {
		for _, related := range p.RelatedPackages {
			for _, owner := range related {
				owners[owner.ID] = true
			}
		}
	}
	return &imageCache{db: db, owners: owners}
}

// keyOf returns the key of a package's matches. Without one, nothing is cached.
func (c *imageCache) keyOf(p pkg.Package) (key database.MatchKey, hasKey bool) {
	if c.owners[p.ID] {
		return key, false
	}
	return c.keys.keyOf(p)
}

// withoutClean returns the packages without those that are known to have no matches and no ignore rules. Without matches, Grype still
// compiles its built-in ignore rules for each package, which takes longer than everything else that is left to do for it.
func (c *imageCache) withoutClean(packages []pkg.Package) []pkg.Package {
	return slices.DeleteFunc(slices.Clone(packages), func(p pkg.Package) bool {
		key, hasKey := c.keyOf(p)
		return hasKey && c.db.IsClean(key)
	})
}

// wrap returns the matchers with the cache.
func (c *imageCache) wrap(matchers []grypematch.Matcher) []grypematch.Matcher {
	cached := make([]grypematch.Matcher, len(matchers))
	for i, m := range matchers {
		cached[i] = cachedMatcher{m, c}
	}
	return cached
}

// cachedMatcher is a matcher that runs only for packages whose matches are not in the cache.
type cachedMatcher struct {
	grypematch.Matcher
	cache *imageCache
}

// Match implements Grype's interface.
func (m cachedMatcher) Match(provider vulnerability.Provider, p pkg.Package) ([]grypematch.Match, []grypematch.IgnoreFilter, error) {
	key, hasKey := m.cache.keyOf(p)
	if !hasKey {
		return m.Matcher.Match(provider, p)
	}
	if found, known := m.cache.db.CachedMatches(key); known {
		for i := range found.Matches {
			found.Matches[i].Package = inImage(found.Matches[i].Package, p)
			found.Matches[i].Vulnerability.Metadata = ownMetadata(found.Matches[i])
		}
		return found.Matches, found.Ignores, nil
	}
	failures, textBytes := m.cache.db.Failures(), len(m.cache.keys.buffer)
	matches, ignores, err := m.Matcher.Match(provider, p)
	// The cache must not keep the result of a failed query, even if Grype does not report the failure.
	if err == nil && m.cache.db.Failures() == failures {
		if found, cacheable := withoutImage(matches, ignores, p); cacheable {
			found.TextBytes = textBytes
			m.cache.db.CacheMatches(key, found)
		}
	}
	return matches, ignores, err
}

// withoutImage returns what a matcher found for p, without the parts that differ between images. It is not cacheable if it refers to
// another package or to a file.
func withoutImage(matches []grypematch.Match, ignores []grypematch.IgnoreFilter, p pkg.Package) (found database.PackageMatches, cacheable bool) {
	for _, m := range matches {
		if m.Package.ID != p.ID {
			return found, false
		}
		m.Package, m.Vulnerability.Metadata = inImage(m.Package, pkg.Package{}), ownMetadata(m)
		found.Matches = append(found.Matches, m)
	}
	for _, ignore := range ignores {
		switch ignore := ignore.(type) {
		case grypematch.IgnoreRelatedPackage:
			if ignore.RelatedPackageID != p.ID {
				return found, false
			}
			// It has an effect only if p is an owner, and then p is not cached.
		case grypematch.IgnoreRule:
			if ignore.Package.Location != "" {
				return found, false
			}
			found.Ignores = append(found.Ignores, ignore)
		default:
			return found, false
		}
	}
	return found, true
}

// ownMetadata returns a copy of a vulnerability's metadata, nil if there is none. Grype computes a part of it when it is read, so the images of
// several goroutines must not share it.
func ownMetadata(m grypematch.Match) *vulnerability.Metadata {
	if m.Vulnerability.Metadata == nil {
		return nil
	}
	own := *m.Vulnerability.Metadata
	return &own
}

// inImage returns the package of a match with those fields of p that are not part of a key. The other fields can differ from p: if an
// Alpine package is its own source package, Grype may put the version and the CPEs of the source package into the match.
func inImage(matched, p pkg.Package) pkg.Package {
	matched.ID, matched.Locations, matched.Licenses = p.ID, p.Locations, p.Licenses
	matched.Annotations, matched.RelatedPackages = p.Annotations, p.RelatedPackages
	matched.Distro, matched.Metadata = p.Distro, p.Metadata
	return matched
}
