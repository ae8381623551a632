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

var (
	// separators matches what people type between the parts of an id, or paste from a text that has other dashes.
	separators = regexp.MustCompile(`[\s_\p{Pd}]+`)
	// colonScheme matches ids whose publishers write a colon after the year.
	colonScheme = regexp.MustCompile(`^(RH[SBE]A|[AR]LSA|(?:OPENSUSE|SUSE)-[SRF]U)-(\d{4})[:-](\d+)`)
)

// ParseID returns the id of a vulnerability that a text stands for, as its publisher writes it. The text may have any case, and other separators:
// "cve 2024 3094" is CVE-2024-3094. isID is false for a text that has the form of no known publisher's ids; ParseID returns it without spaces around it.
// A CVE of a year that has not come yet is no id. It says nothing about whether the id was ever given.
func ParseID(text string, now time.Time) (id string, isID bool) {
	text = strings.TrimSpace(text)
	upper := colonScheme.ReplaceAllString(strings.ToUpper(separators.ReplaceAllString(text, "-")), "$1-$2:$3")
	for _, id := range []string{upper, lowerSuffix(upper)} {
		if parts := idScheme.FindStringSubmatch(id); parts != nil {
			return id, parts[1] == "" || isYearOfCVE(parts[1], now)
		}
	}
	return text, false
}

// PartOfID returns a text, which may have any separators, in the form in which it would be a part of an id: "2024 3094" is a part of CVE-2024-3094.
func PartOfID(text string) string { return separators.ReplaceAllString(strings.TrimSpace(text), "-") }

func isYearOfCVE(digits string, now time.Time) bool {
	year, err := strconv.Atoi(digits)
	return err == nil && year >= firstCVE && year <= now.UTC().Year()+1 // ids are reserved in December for the next year
}

// lowerSuffix returns an id with its publisher in upper case and the rest in lower case, as GitHub writes it.
func lowerSuffix(id string) string {
	publisher, rest, _ := strings.Cut(id, "-")
	return strings.ToUpper(publisher) + "-" + strings.ToLower(rest)
}
