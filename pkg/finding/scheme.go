package finding

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// idScheme matches the ids of the publishers whose advisories engines report: CVE, GitHub, Go, the distributions, and ecosystems of OSV
// (https://ossf.github.io/osv-schema/#id-modifiable-fields).
var idScheme = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`(?:(?:UBUNTU|DEBIAN)-)?CVE-(\d{4})-\d{4,}`, `(?:GHSA|CGA|MINI)(?:-[0-9a-z]{4}){3}`, `(?:GO|PYSEC|RUSTSEC|MAL|HSEC|PSF|JLSEC|GMS|EUVD|OSV|SNYK)-\d{4}-\d+`,
	`RH[SBE]A-\d{4}:\d+`, `[AR]LSA-\d{4}:\d+`, `ELSA-\d{4}-\d+(?:-\d+)?`, `ALAS\w*(?:[-.]\w+)*-\d{4}-\d+`, `(?:DSA|DLA|USN|LSN)-\d+(?:-\d+)?`,
	`(?:OPENSUSE-|SUSE-)[SRF]U-\d{4}:\d+(?:-\d+)?`, `(?:AZL|BIT|ECHO|ROOT)-[\w-]*\d[\w-]*`, `GLSA-\d{6}-\d+`, `MGASA-\d{4}-\d+`, `TEMP-\d+-[0-9A-F]+`,
}, "|") + `)$`)

// firstCVE is the year of the first ids of CVE.
const firstCVE = 1999

// IsID reports whether a text, in any case, has the form of a vulnerability's id of a known publisher. A CVE of a year that has not come yet is
// no id. It says nothing about whether the id was ever given.
func IsID(text string, now time.Time) bool {
	parts := idScheme.FindStringSubmatch(strings.ToUpper(text))
	if parts == nil {
		parts = idScheme.FindStringSubmatch(lowerSuffix(text))
	}
	if parts == nil || parts[1] == "" {
		return parts != nil
	}
	year, _ := strconv.Atoi(parts[1])
	return year >= firstCVE && year <= now.UTC().Year()+1 // ids are reserved in December for the next year
}

// lowerSuffix returns an id with its publisher in upper case and the rest in lower case, as GitHub writes it.
func lowerSuffix(id string) string {
	publisher, rest, _ := strings.Cut(id, "-")
	return strings.ToUpper(publisher) + "-" + strings.ToLower(rest)
}
