package cyclonedx

import (
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestAnalysis: the analysis of a vulnerability contains only what holds for each of its findings.
func TestAnalysis(t *testing.T) {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	not := exception.Exception{
		UID: "1", Status: "not_affected", Justification: "vulnerable_code_not_in_execute_path", Reason: "Never called.", Created: created,
	}
	taken := exception.Exception{UID: "2", Status: "affected", Reason: "Known.", Action: "Update in May.", Created: created}
	again := not
	again.UID = "3"
	says := func(state cdx.ImpactAnalysisState, justification cdx.ImpactAnalysisJustification, detail string) *cdx.VulnerabilityAnalysis {
		return &cdx.VulnerabilityAnalysis{State: state, Justification: justification, Detail: detail, FirstIssued: "2026-03-01T12:00:00Z"}
	}
	unreachable := says(cdx.IASNotAffected, cdx.IAJCodeNotReachable, "Never called.")
	for name, tt := range map[string]struct {
		first, second *exception.Exception
		want          *cdx.VulnerabilityAnalysis
	}{
		"no exception":               {nil, nil, nil},
		"one of two is covered":      {&not, nil, nil},
		"both by one exception":      {&not, &not, unreachable},
		"both by two that agree":     {&not, &again, unreachable},
		"both, and in contrary ways": {&not, &taken, nil},
		"a risk that is taken":       {&taken, &taken, says(cdx.IASExploitable, "", "Known.\nUpdate in May.")},
	} {
		t.Run(name, func(t *testing.T) {
			findings := []finding.Finding{
				{ID: "CVE-2026-0001", Package: finding.Package{Name: "openssl", Version: "1"}},
				{ID: "CVE-2026-0001", Package: finding.Package{Name: "libssl3", Version: "1"}},
			}
			r := Report{Exceptions: map[string]*exception.Exception{findings[0].Key(): tt.first, findings[1].Key(): tt.second}}
			if diff := cmp.Diff(tt.want, analysisOf(r, findings)); diff != "" {
				t.Errorf("analysis (-want +got):\n%s", diff)
			}
		})
	}
}
