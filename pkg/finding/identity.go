package finding

import (
	"crypto/sha256"
	"encoding/hex"
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
	path := ""
	if !slices.Contains(osPackageTypes, f.Package.Type) && len(f.Paths) > 0 {
		path = f.Paths[0]
	}
	// Length-free joining is safe: none of the parts holds a NUL.
	sum := sha256.Sum256([]byte(strings.Join([]string{f.ID, f.Package.identity(), f.Package.Version, path}, "\x00")))
	return hex.EncodeToString(sum[:])
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
