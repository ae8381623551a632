package sarif

import (
	"cmp"
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

// scores are used where no CVSS score is known. GitHub's bounds are 9.0, 7.0, 4.0 and 0.1.
var scores = map[finding.Severity]float64{finding.Critical: 9.5, finding.High: 8, finding.Medium: 5.5, finding.Low: 2, finding.Negligible: 0.1}

// scoreText returns a security-severity: the CVSS score, or one that the severity has. It is empty if both are unknown.
func scoreText(severity finding.Severity, cvss float64) string {
	score := cmp.Or(cvss, scores[severity])
	if score == 0 {
		return ""
	}
	return strconv.FormatFloat(min(max(score, 0.1), 10), 'f', 1, 64)
}
