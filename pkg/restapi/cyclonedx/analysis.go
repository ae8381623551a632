package cyclonedx

import (
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// states maps OpenVEX statuses to CycloneDX states (https://cyclonedx.org/docs/1.6/json/#vulnerabilities_items_analysis_state).
var states = map[string]cdx.ImpactAnalysisState{
	"not_affected": cdx.IASNotAffected, "affected": cdx.IASExploitable, "fixed": cdx.IASResolved, "under_investigation": cdx.IASInTriage,
}

// justifications maps OpenVEX justifications to CycloneDX ones.
var justifications = map[string]cdx.ImpactAnalysisJustification{
	"component_not_present":                             cdx.IAJCodeNotPresent,
	"vulnerable_code_not_present":                       cdx.IAJCodeNotPresent,
	"vulnerable_code_not_in_execute_path":               cdx.IAJCodeNotReachable,
	"vulnerable_code_cannot_be_controlled_by_adversary": cdx.IAJRequiresEnvironment,
	"inline_mitigations_already_exist":                  cdx.IAJProtectedByMitigatingControl,
}

// analysisOf returns the decision about a vulnerability. It returns nil unless all of its findings are suppressed with the same status and
// justification, since CycloneDX has one analysis for all packages. The text is that of the first finding's exception.
func analysisOf(r Report, findings []finding.Finding) *cdx.VulnerabilityAnalysis {
	e := r.Exceptions[findings[0].Key()]
	for _, f := range findings {
		other := r.Exceptions[f.Key()]
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
