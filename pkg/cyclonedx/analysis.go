package cyclonedx

import (
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// states are OpenVEX's statuses in CycloneDX's words (https://cyclonedx.org/docs/1.6/json/#vulnerabilities_items_analysis_state).
var states = map[string]cdx.ImpactAnalysisState{
	"not_affected": cdx.IASNotAffected, "affected": cdx.IASExploitable, "fixed": cdx.IASResolved, "under_investigation": cdx.IASInTriage,
}

// justifications are those of OpenVEX in CycloneDX's words, as far as it has some.
var justifications = map[string]cdx.ImpactAnalysisJustification{
	"component_not_present":                             cdx.IAJCodeNotPresent,
	"vulnerable_code_not_present":                       cdx.IAJCodeNotPresent,
	"vulnerable_code_not_in_execute_path":               cdx.IAJCodeNotReachable,
	"vulnerable_code_cannot_be_controlled_by_adversary": cdx.IAJRequiresEnvironment,
	"inline_mitigations_already_exist":                  cdx.IAJProtectedByMitigatingControl,
}

// analysisOf is what was decided about a vulnerability; nil unless exceptions that agree cover all of its findings: CycloneDX has one
// analysis for all packages. Of exceptions with the same status and justification the first one speaks for all.
func analysisOf(r Report, findings []finding.Finding) *cdx.VulnerabilityAnalysis {
	e := r.Excepted[findings[0].Key()]
	for _, f := range findings {
		other := r.Excepted[f.Key()]
		if e == nil || other == nil || other.Status != e.Status || other.Justification != e.Justification {
			return nil
		}
	}
	detail := e.Reason
	if e.Action != "" {
		detail += "\n" + e.Action
	}
	return &cdx.VulnerabilityAnalysis{
		State: states[e.Status], Justification: justifications[e.Justification], Detail: detail,
		FirstIssued: e.Created.UTC().Format(time.RFC3339),
	}
}
