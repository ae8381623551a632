package sarif

import (
	"cmp"
	"math"
	"strconv"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// ruleOf returns the rule for the findings with one ID. Description and address are those of the first one. Other images have the same rule, so it
// has nothing that belongs to one.
func ruleOf(findings []Finding) rule {
	worst := findings[0]
	title := "Vulnerability " + worst.ID
	severity, score := finding.Unknown, 0.0
	for _, f := range findings {
		severity, score = max(severity, f.Severity), max(score, f.CVSS)
	}
	description := cmp.Or(worst.Description, title)
	return rule{
		ID: worst.ID, ShortDescription: short(title), FullDescription: short(description),
		Help: plain(description), HelpURI: finding.WebAddress(worst.URL), DefaultConfiguration: configuration{levelOf(severity)},
		// Without the tag "security", GitHub shows no severity.
		Properties: ruleProperties{Tags: []string{"security", "vulnerability"}, Precision: "very-high", SecuritySeverity: scoreText(severity, score)},
	}
}

// short returns a message of at most maxDescription bytes.
func short(description string) message {
	return message{text.Truncate(plain(description).Text, maxDescription)}
}

// levelOf returns the level of a severity. An unknown severity does not mean harmless.
func levelOf(s finding.Severity) string {
	switch s {
	case finding.Critical, finding.High:
		return "error"
	case finding.Low, finding.Negligible:
		return "note"
	}
	return "warning"
}

// bands are the scores that GitHub shows as each severity (https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning).
// usual is used where no CVSS score is known. GitHub has no severity below low.
var bands = map[finding.Severity]struct{ lowest, usual, highest float64 }{
	finding.Critical: {9, 9.5, 10}, finding.High: {7, 8, 8.9}, finding.Medium: {4, 5.5, 6.9}, finding.Low: {0.1, 2, 3.9}, finding.Negligible: {0.1, 0.1, 3.9},
}

// scoreText returns a security-severity: the CVSS score, or the closest one in the band of the severity. GitHub ranks by it, and the severity of the
// vendor counts, as everywhere else. It is the CVSS score alone if the severity is unknown, and empty if both are.
func scoreText(severity finding.Severity, cvss float64) string {
	band, known := bands[severity]
	score := min(cvss, 10)
	if known {
		score = min(max(cmp.Or(cvss, band.usual), band.lowest), band.highest)
	}
	if score <= 0 {
		return ""
	}
	// Rounding must not lift a score of 8.95 into the next band.
	return strconv.FormatFloat(max(math.Floor(score*10+1e-9)/10, 0.1), 'f', 1, 64)
}
