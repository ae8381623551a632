package database

import (
	"testing"

	"github.com/anchore/grype/grype/match"
)

// TestMatchCacheIsBounded checks that cached matches are bounded, however many packages are matched, and that a package of every image
// stays cached.
func TestMatchCacheIsBounded(t *testing.T) {
	db := &DB{matches: newMatchCache()}
	for i := range 200 {
		if _, known := db.CachedMatches(MatchKey{}); i > 0 && !known {
			t.Fatalf("the package of every image is not cached any more at image %d", i)
		} else if i == 0 {
			db.CacheMatches(MatchKey{}, PackageMatches{})
		}
		db.CacheMatches(MatchKey{byte(i), 1}, PackageMatches{Matches: make([]match.Match, 1000)})
	}
	size := 0
	for _, generation := range []map[MatchKey]PackageMatches{db.matches.recent, db.matches.older} {
		for _, m := range generation {
			size += m.bytes()
		}
	}
	if size == 0 || size > 2*maxCachedMatchBytes {
		t.Errorf("%d bytes are cached, want at most two generations of %d", size, maxCachedMatchBytes)
	}
}
