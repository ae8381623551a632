package finding

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// TestCanonical checks which ID becomes the canonical one.
func TestCanonical(t *testing.T) {
	for name, tt := range map[string]struct {
		id      string
		aliases []string
		want    string
	}{
		"a CVE":                              {"CVE-2024-3094", []string{"GHSA-rxwq-x6h5-x525"}, "CVE-2024-3094"},
		"a CVE in lower case":                {"cve-2024-3094", nil, "CVE-2024-3094"},
		"a CVE with blanks around":           {" CVE-2024-3094\n", nil, "CVE-2024-3094"},
		"a CVE with more than four digits":   {"CVE-2021-1234567", nil, "CVE-2021-1234567"},
		"a CVE that names another as alias":  {"CVE-2024-1111", []string{"CVE-2024-2222"}, "CVE-2024-1111"},
		"GHSA with one CVE":                  {"GHSA-aaaa-bbbb-cccc", []string{"CVE-2024-3094"}, "CVE-2024-3094"},
		"GHSA with the same CVE twice":       {"GHSA-aaaa-bbbb-cccc", []string{"CVE-2024-3094", "cve-2024-3094"}, "CVE-2024-3094"},
		"GHSA with a CVE with blanks around": {"GHSA-aaaa-bbbb-cccc", []string{" CVE-2024-3094\n"}, "CVE-2024-3094"},
		"GHSA without a CVE":                 {"GHSA-aaaa-bbbb-cccc", nil, "GHSA-aaaa-bbbb-cccc"},
		"GHSA that covers several CVEs":      {"GHSA-aaaa-bbbb-cccc", []string{"CVE-2024-1111", "CVE-2024-2222"}, "GHSA-aaaa-bbbb-cccc"},
		"Go, with CVE and GHSA":              {"GO-2024-2687", []string{"GHSA-4v7x-pqxf-cx7m", "CVE-2023-45288"}, "CVE-2023-45288"},
		"Go, with GHSA only":                 {"GO-2024-2687", []string{"GHSA-4v7x-pqxf-cx7m"}, "GHSA-4v7x-pqxf-cx7m"},
		"Go, alone":                          {"GO-2024-2687", nil, "GO-2024-2687"},
		"Amazon, several CVEs":               {"ALAS-2024-500", []string{"CVE-2024-1111", "CVE-2024-2222"}, "ALAS-2024-500"},
		"Amazon, one CVE":                    {"ALAS-2024-500", []string{"CVE-2024-1111"}, "CVE-2024-1111"},
		"Red Hat, several CVEs":              {"RHSA-2024:1234", []string{"CVE-2024-1111", "CVE-2024-2222"}, "RHSA-2024:1234"},
		"several GHSAs: none would be right": {"GO-2024-2687", []string{"GHSA-aaaa-bbbb-cccc", "GHSA-dddd-eeee-ffff"}, "GO-2024-2687"},
		"something that only looks like CVE": {"CVE-24-1", []string{"CVE-2024-1"}, "CVE-24-1"},
		"TEMP ids of Debian":                 {"TEMP-0841856-B18BAF", nil, "TEMP-0841856-B18BAF"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Canonical(tt.id, tt.aliases); got != tt.want {
				t.Errorf("Canonical(%q, %q) = %q, want %q", tt.id, tt.aliases, got, tt.want)
			}
		})
	}
}

// TestCanonicalIgnoresOrder checks that the order of a source's aliases does not change a vulnerability's identity.
func TestCanonicalIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SampledFrom([]string{"CVE-2024-0001", "CVE-2024-0002", "GHSA-aaaa-bbbb-cccc", "GHSA-dddd-eeee-ffff", "GO-2024-1", "ALAS-1"})
		id := ids.Draw(t, "id")
		aliases := rapid.SliceOfN(ids, 0, 5).Draw(t, "aliases")
		shuffled := rapid.Permutation(aliases).Draw(t, "the same in another order")
		if a, b := Canonical(id, aliases), Canonical(id, shuffled); a != b {
			t.Errorf("%s with the aliases %q is %s, with %q it is %s", id, aliases, a, shuffled, b)
		}
	})
}

// TestKeySame checks what may differ in one finding without changing its key.
func TestKeySame(t *testing.T) {
	base := deb("CVE-2024-0001", "openssl", "3.0.1")
	for name, change := range map[string]func(*Finding){
		"other qualifiers":           func(f *Finding) { f.Package.PURL = "pkg:deb/debian/openssl@3.0.1?arch=arm64&distro=debian-12" },
		"no qualifiers":              func(f *Finding) { f.Package.PURL = "pkg:deb/debian/openssl@3.0.1" },
		"a subpath":                  func(f *Finding) { f.Package.PURL = "pkg:deb/debian/openssl@3.0.1?arch=amd64#usr/lib" },
		"capitals":                   func(f *Finding) { f.Package.PURL = "pkg:deb/debian/OpenSSL@3.0.1" },
		"another severity":           func(f *Finding) { f.Severity = Critical },
		"a fix":                      func(f *Finding) { f.FixState, f.FixVersions = FixStateFixed, []string{"3.0.2"} },
		"a package of the OS, moved": func(f *Finding) { f.Paths = []string{"/var/lib/dpkg/status.d/openssl"} },
		"other aliases":              func(f *Finding) { f.Aliases = []string{"DSA-1"} },
	} {
		t.Run(name, func(t *testing.T) {
			other := base
			change(&other)
			if other.Key() != base.Key() {
				t.Errorf("the key changes, so that a finding would be announced again: %+v", other)
			}
		})
	}
}

// TestKeyOfPython checks that a Python package has the same key whether an engine reports its metadata file or its directory.
func TestKeyOfPython(t *testing.T) {
	python := func(path string) string {
		return Finding{ID: "CVE-2024-0001", Package: Package{Name: "x", Version: "1", Type: "python", PURL: "pkg:pypi/x@1"}, Paths: []string{path}}.Key()
	}
	const dir = "/usr/lib/python3/dist-packages"
	for _, path := range []string{"/x-1.dist-info/METADATA", "/x-1.egg-info/PKG-INFO", "/x-1.egg-info"} {
		if python(dir+path) != python(dir) {
			t.Errorf("%s%s and %s have different keys", dir, path, dir)
		}
	}
	if python(dir) == python("/opt/venv/lib/python3/site-packages") {
		t.Error("two copies in different directories have one key")
	}
	if python(dir+"/requirements.txt") == python(dir) {
		t.Error("a file that is no metadata has the key of its directory")
	}
}

// TestKeyDiffers checks what makes two findings different.
func TestKeyDiffers(t *testing.T) {
	for name, tt := range map[string]struct {
		of     Finding
		change func(*Finding)
	}{
		"another vulnerability": {deb("CVE-2024-0001", "openssl", "3.0.1"), func(f *Finding) { f.ID = "CVE-2024-0002" }},
		"another version":       {deb("CVE-2024-0001", "openssl", "3.0.1"), func(f *Finding) { f.Package.Version = "3.0.2" }},
		"another package":       {deb("CVE-2024-0001", "openssl", "3.0.1"), func(f *Finding) { f.Package.PURL = "pkg:deb/debian/libssl@3.0.1" }},
		"another namespace":     {deb("CVE-2024-0001", "openssl", "3.0.1"), func(f *Finding) { f.Package.PURL = "pkg:deb/ubuntu/openssl@3.0.1" }},
		"another copy of a module": {
			npm("CVE-2024-0001", "lodash", "4.0.0", "/app/a/node_modules/lodash/package.json"),
			func(f *Finding) { f.Paths = []string{"/app/b/node_modules/lodash/package.json"} },
		},
		"another scope of a module": {
			npm("CVE-2024-0001", "core", "4.0.0", "/app/core"),
			func(f *Finding) { f.Package.PURL = "pkg:npm/%40angular/core@4.0.0" },
		},
		"no purl, another type": {
			Finding{ID: "CVE-2024-0001", Package: Package{Name: "curl", Version: "8", Type: "binary"}},
			func(f *Finding) { f.Package.Type = "deb" },
		},
		"parts that run together": {
			Finding{ID: "A", Package: Package{Name: "b", Version: "c", Type: "deb"}},
			func(f *Finding) { f.ID, f.Package.Name = "Adeb/", "b" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := tt.of
			tt.change(&other)
			if other.Key() == tt.of.Key() {
				t.Errorf("these have the same key:\n%+v\n%+v", tt.of, other)
			}
		})
	}
}

// TestKeyNeverChanges checks that keys stay the same: they are in databases that outlive a version of the operator.
func TestKeyNeverChanges(t *testing.T) {
	for want, f := range map[string]Finding{
		"b32002559a27f7d54898a3e252d3c81f9775c0ad": deb("CVE-2024-0001", "openssl", "3.0.1"),
		"55a5f907107181533fa8186c3c249ff936e8e7f8": npm("CVE-2024-0001", "lodash", "4.0.0", "/app/package.json"),
	} {
		if got := f.Key()[:40]; got != want {
			t.Errorf("the key of %s begins with %s, want %s: stores would take every finding for a new one", f.Package.Name, got, want)
		}
	}
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(Finding{}.Key()) {
		t.Errorf("the key %q is not 64 hexadecimal digits", Finding{}.Key())
	}
}

// TestPackageIdentity checks that the identity lacks what differs between builds of the same package.
func TestPackageIdentity(t *testing.T) {
	for purl, want := range map[string]string{
		"pkg:deb/debian/openssl@3.0.1?arch=amd64":      "pkg:deb/debian/openssl",
		"pkg:npm/%40angular/core@1.0.0":                "pkg:npm/%40angular/core",
		"pkg:npm/@angular/core":                        "pkg:npm/@angular/core", // an "@" before a "/" starts no version
		"pkg:golang/github.com/a/b/v2@v2.1.0#cmd/tool": "pkg:golang/github.com/a/b/v2",
		"pkg:pypi/Django":                              "pkg:pypi/django",
		"":                                             "deb/openssl",
	} {
		if got := (Package{Name: "OpenSSL", Type: "deb", PURL: purl}).identity(); got != want {
			t.Errorf("the identity of %q is %q, want %q", purl, got, want)
		}
	}
}
