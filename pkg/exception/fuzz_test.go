package exception

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// FuzzSuppressedBy: an exception suppresses nothing but its vulnerability, in its package, in its images and its namespace. One about everything
// suppresses anything. A search within the bounds of a set finds all that the set suppresses.
func FuzzSuppressedBy(f *testing.F) {
	f.Add("CVE-2026-0001", "openssl", "3.*", "*/web:*", "cve-2026-0001", "GHSA-1", "openssl", "3.0", "registry.example.com/web", "shop")
	f.Add("GHSA-1", "", "", "", "CVE-2026-0001", "ghsa-1", "a", "1", "docker.io/library/nginx", "")
	f.Add("", "o?en*", "", "", "CVE-2026-0001", "", "openssl", "1", "x/y", "blog")
	f.Add("", "", "", "", "", "", "", "", "", "")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, id, name, version, glob, foundID, alias, pkg, installed, repository, namespace string) {
		e := Exception{UID: "1", Namespace: "shop", Packages: []Package{{Name: name, Version: version}}}
		if name+version == "" {
			e.Packages = nil
		}
		if id != "" {
			e.Vulnerabilities = []string{id}
		}
		if glob != "" {
			e.Images = []string{glob}
		}
		found := finding.Finding{ID: foundID, Aliases: []string{alias}, Package: finding.Package{Name: pkg, Version: installed}}
		img := Image{Namespace: namespace, Reference: image.Reference{Repository: repository}}
		set := NewSet([]Exception{e}, now)
		by := set.SuppressedBy(img, found)
		wanted := id+name+version != "" && (namespace == "" || namespace == "shop") &&
			(id == "" || isSameID(id, foundID) || isSameID(id, alias)) &&
			(name == "" || image.MatchText(name, pkg)) && (version == "" || image.MatchText(version, installed)) && (glob == "" || image.Match(glob, img.Reference))
		if (by != nil) != wanted {
			t.Errorf("%+v suppresses %+v in %+v: %v, want %v", e, found, img, by != nil, wanted)
		}
		if ids, packages, every := set.SearchBounds(); by != nil && !every && !slices.Contains(packages, pkg) &&
			!slices.Contains(ids, strings.ToUpper(foundID)) && !slices.Contains(ids, strings.ToUpper(alias)) {
			t.Errorf("%+v suppresses %+v, but a search for %q and %q does not find it", e, found, ids, packages)
		}
		if expired := (Exception{Vulnerabilities: e.Vulnerabilities, Packages: e.Packages, Expires: now}); NewSet([]Exception{expired}, now).SuppressedBy(img, found) != nil {
			t.Errorf("%+v suppresses %+v, but is over", expired, found)
		}
		every := NewSet([]Exception{{Packages: []Package{{Name: "*"}}, Images: []string{"*"}}}, now)
		if every.SuppressedBy(img, found) == nil || every.Key() == set.Key() {
			t.Errorf("%+v is not suppressed by what is about everything, or that has the key of %+v", found, e)
		}
	})
}

// isSameID reports whether two IDs differ at most in upper and lower case.
func isSameID(a, b string) bool {
	a, b = strings.ToUpper(a), strings.ToUpper(b)
	return a == b
}
