package finding

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"strings"
)

var cvePattern = regexp.MustCompile(`^CVE-[0-9]{4}-[0-9]{4,}$`)

// Canonical returns the ID that is the same for a vulnerability in all sources: the ID itself if it is a CVE, else its CVE alias
// if there is exactly one. Without a CVE alias it is a GHSA ID if there is exactly one. In all other cases it is the native ID:
// an advisory that covers several vulnerabilities keeps its own ID, since none of theirs would be correct. The order of aliases
// does not matter.
func Canonical(id string, aliases []string) string {
	id = strings.TrimSpace(id)
	if cvePattern.MatchString(strings.ToUpper(id)) {
		return strings.ToUpper(id)
	}
	var cves, ghsas []string
	for _, alias := range aliases {
		alias = strings.TrimSpace(alias)
		upper := strings.ToUpper(alias)
		switch {
		case cvePattern.MatchString(upper) && !slices.Contains(cves, upper):
			cves = append(cves, upper)
		case strings.HasPrefix(upper, "GHSA-") && !slices.Contains(ghsas, alias):
			ghsas = append(ghsas, alias)
		}
	}
	switch {
	case len(cves) == 1:
		return cves[0]
	case strings.HasPrefix(strings.ToUpper(id), "GHSA-") || len(ghsas) != 1:
		return id
	}
	return ghsas[0]
}

// osPackageTypes are the types of packages that are installed once per image, so their paths are not part of their identity.
var osPackageTypes = []string{"deb", "rpm", "apk", "alpm", "portage", "linux-kernel"}

// IsOSPackage reports whether packages of a type belong to a distribution.
func IsOSPackage(kind string) bool { return slices.Contains(osPackageTypes, kind) }

// Key identifies a finding within an image, as 64 hexadecimal digits. It depends on the canonical ID, the package URL without
// qualifiers, and the version. Language packages can occur several times in an image, so their key also depends on the path.
func (f Finding) Key() string {
	sum := f.KeySum()
	return hex.EncodeToString(sum[:])
}

// KeySum is the Key in binary.
func (f Finding) KeySum() [sha256.Size]byte {
	// Joining without lengths is unambiguous, since none of the parts contains a NUL.
	return sha256.Sum256([]byte(strings.Join([]string{f.ID, f.Package.identity(), f.Package.Version, f.identityPath()}, "\x00")))
}

// identityPath returns the path that identifies this copy of the package, "" for packages of the operating system. For an installed
// Python package, one engine reports the metadata file (site-packages/x.dist-info/METADATA, x.egg-info/PKG-INFO or x.egg-info)
// and another one the directory that the package is installed in. place returns that directory in all these cases.
func (f Finding) identityPath() string {
	if IsOSPackage(f.Package.Type) || len(f.Paths) == 0 {
		return ""
	}
	place := f.Paths[0]
	if f.Package.Type != "python" {
		return place
	}
	switch base := path.Base(place); {
	case base == "METADATA", base == "PKG-INFO":
		return path.Dir(path.Dir(place))
	case strings.HasSuffix(base, ".egg-info"):
		return path.Dir(place)
	}
	return place
}

// identity returns the package URL without version, qualifiers and subpath, or type and name if there is no package URL. It is in
// lower case: the purl specification requires that for most types, and engines differ.
func (p Package) identity() string {
	purl, _, _ := strings.Cut(p.PURL, "?")
	purl, _, _ = strings.Cut(purl, "#")
	if at := strings.LastIndex(purl, "@"); at > strings.LastIndex(purl, "/") {
		purl = purl[:at]
	}
	if purl == "" {
		purl = p.Type + "/" + p.Name
	}
	return strings.ToLower(purl)
}

// PackageKey identifies the package within an image: it is equal for all findings in the package. Like Key, it is 64 hexadecimal
// digits.
func (f Finding) PackageKey() string {
	f.ID = ""
	return f.Key()
}
