package database_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/search"
	"github.com/anchore/grype/grype/version"
	"github.com/anchore/grype/grype/vulnerability"
)

// ids returns the IDs that are found for a version of a package of Debian 12 and pass a filter.
func ids(t *testing.T, provider vulnerability.Provider, source, installed string, passes func(id string) bool) []string {
	t.Helper()
	found, err := provider.FindVulnerabilities(
		search.ByPackageName(source), search.ByDistro(*distro.New(distro.Debian, "12", "bookworm")),
		search.ByVersion(*version.New(installed, version.DebFormat)),
		search.ByFunc(func(v vulnerability.Vulnerability) (bool, string, error) { return passes(v.ID), "", nil }))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, v := range found {
		all = append(all, v.ID)
		// Grype changes its results in place. Such a change must not reach the cache.
		v.Fix.Versions = append(v.Fix.Versions[:0], "changed")
	}
	return all
}

// TestLookupsEqualDatabase checks that each query has its own result, cached or not, and that filters are not cached.
func TestLookupsEqualDatabase(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	u.Refresh(t.Context())
	lookups, done := u.DB().BorrowLookups()
	defer done()
	all := func(string) bool { return true }
	for range 2 {
		for _, q := range []struct {
			source, version string
			passes          func(string) bool
		}{
			{"glibc", "2.36-9", all}, {"glibc", "2.36-9+deb12u5", all}, {"openssl", "3.0.9-1", all}, {"nothing", "1", all},
			{"glibc", "2.36-9", func(id string) bool { return id == "CVE-2023-4911" }},
			{"glibc", "2.36-9", func(string) bool { return false }},
		} {
			want := ids(t, u.DB().Provider(), q.source, q.version, q.passes)
			if got := ids(t, lookups, q.source, q.version, q.passes); !slices.Equal(got, want) {
				t.Errorf("%s %s: got %q, want %q", q.source, q.version, got, want)
			}
		}
	}
	if n := len(ids(t, lookups, "glibc", "2.36-9", all)); n < 5 {
		t.Errorf("%d vulnerabilities in glibc, want at least 5: the test shows nothing", n)
	}
}

// TestLookupsAreBorrowed checks that a view belongs to one borrower at a time, and that a returned view is borrowed again.
func TestLookupsAreBorrowed(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	u.Refresh(t.Context())
	first, done := u.DB().BorrowLookups()
	second, _ := u.DB().BorrowLookups()
	if first == second {
		t.Error("two borrowers have the same view")
	}
	done()
	if again, _ := u.DB().BorrowLookups(); again != first {
		t.Error("a view that was given back is not lent again: what it remembers is lost")
	}
}

// TestLookupCacheIsBounded checks that the cache is bounded, however many packages are looked up.
func TestLookupCacheIsBounded(t *testing.T) {
	b := newBench(t)
	u := b.updater(t)
	u.Refresh(t.Context())
	lookups, done := u.DB().BorrowLookups()
	defer done()
	lookups.Limit(10)
	for i := range 100 {
		ids(t, lookups, fmt.Sprintf("unknown-%d", i), "1", func(string) bool { return true })
		if i%3 == 0 {
			ids(t, lookups, "glibc", "2.36-9", func(string) bool { return true })
		}
	}
	if n := lookups.CachedLookups(); n > 2*10 {
		t.Errorf("%d look-ups are remembered, want at most two generations of 10", n)
	}
}
