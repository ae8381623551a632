package database

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/anchore/grype/grype/match"
)

// MatchKey is the hash of everything that decides what a matcher finds for a package in one database.
type MatchKey [sha256.Size]byte

// PackageMatches is what a matcher finds for a package, without what differs between images.
type PackageMatches struct {
	Matches []match.Match
	Ignores []match.IgnoreFilter
	// TextBytes is the size of the package's own texts. Matches and ignores keep them in memory.
	TextBytes int
}

// isClean reports whether nothing was found. Most packages are clean.
func (m PackageMatches) isClean() bool { return len(m.Matches) == 0 && len(m.Ignores) == 0 }

// bytes returns about how much memory an entry of the cache needs at most, without texts that it shares with cached queries.
func (m PackageMatches) bytes() int {
	const perPackage, perMatch, perCPE, perIgnore = 150, 2000, 400, 400
	if m.isClean() {
		return perPackage
	}
	size := perPackage + perIgnore*len(m.Ignores) + m.TextBytes*(1+len(m.Matches))
	for _, found := range m.Matches {
		size += perMatch + perCPE*len(found.Vulnerability.CPEs)
	}
	return size
}

// matchCache is what matchers found in a database. All its matches share it, so cached values never change.
type matchCache struct {
	mu sync.Mutex
	cache[MatchKey, PackageMatches]
}

// maxCachedMatchBytes is the size of a generation of matches. 16 MiB are about 110,000 packages without matches, or 6,000 matches.
const maxCachedMatchBytes = 16 << 20

func newMatchCache() *matchCache {
	return &matchCache{cache: cache[MatchKey, PackageMatches]{sizeOf: PackageMatches.bytes, limit: maxCachedMatchBytes}}
}

// CachedMatches returns what CacheMatches stored for the key. The caller may change the matches, but not the ignores.
func (db *DB) CachedMatches(key MatchKey) (found PackageMatches, known bool) {
	db.matches.mu.Lock()
	found, known = db.matches.get(key)
	db.matches.mu.Unlock()
	found.Matches = cloneMatches(found.Matches)
	return found, known
}

// IsClean reports whether the cache has an entry for the key without matches and ignores.
func (db *DB) IsClean(key MatchKey) bool {
	db.matches.mu.Lock()
	defer db.matches.mu.Unlock()
	found, known := db.matches.get(key)
	return known && found.isClean()
}

// CacheMatches stores what a matcher found. The caller may change the matches afterwards.
func (db *DB) CacheMatches(key MatchKey, found PackageMatches) {
	found.Matches = cloneMatches(found.Matches)
	db.matches.mu.Lock()
	defer db.matches.mu.Unlock()
	// A concurrent match may have stored the same.
	if _, known := db.matches.get(key); !known {
		db.matches.add(key, found)
	}
}

// cloneMatches returns a copy, since Grype sorts and merges matches in place.
func cloneMatches(matches []match.Match) []match.Match {
	all := slices.Clone(matches)
	for i := range all {
		all[i].Vulnerability, all[i].Details = clone(all[i].Vulnerability), slices.Clone(all[i].Details)
	}
	return all
}
