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

// Canonical returns the id by which a vulnerability is known across sources: the id itself if it is a CVE,
// else its CVE alias when there is exactly one, else a GHSA id when there is exactly one, else the native id. An
// advisory that covers several keeps its own id, since no one of them would be right. The order of aliases does
// not matter.
func Canonical(id string, aliases []string) string {
	id = strings.TrimSpace(id)
	if cvePattern.MatchString(strings.ToUpper(id)) {
		return strings.ToUpper(id)
	}
	var cves, ghsas []string
	for _, alias := range aliases {
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

// osPackageTypes are installed once per image, whatever files they own, so their path is no part of their identity.
var osPackageTypes = []string{"deb", "rpm", "apk", "alpm", "portage", "linux-kernel"}

// Key identifies a finding within an image: canonical id, package URL without qualifiers, version and, for
// language packages, of which an image may hold several copies, the path. It is 64 hexadecimal digits.
func (f Finding) Key() string {
	// Length-free joining is safe: none of the parts holds a NUL.
	sum := sha256.Sum256([]byte(strings.Join([]string{f.ID, f.Package.identity(), f.Package.Version, f.place()}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// place is the path as far as it identifies a copy of the package. Of an installed Python package, one engine names the
// metadata file (site-packages/x.dist-info/METADATA, x.egg-info/PKG-INFO or x.egg-info) and another the directory that it
// was installed in: the directory counts.
func (f Finding) place() string {
	if slices.Contains(osPackageTypes, f.Package.Type) || len(f.Paths) == 0 {
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

// identity is the package URL without version, qualifiers and subpath, or type and name where there is none.
// It is lower case: the purl specification wants that for most types, and engines differ.
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

// PackageKey identifies the package within an image as Key does: the same for all findings in it. It is 64
// hexadecimal digits.
func (f Finding) PackageKey() string {
	f.ID = ""
	return f.Key()
}
