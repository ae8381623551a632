package command

import (
	"context"
	"strings"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// topFindings shows the worst findings of each image, which its ImageScan has, to a caller that the REST API does not know. The result says how
// many findings are missing. Programs get no such result: they would take it for all findings.
func (s *session) topFindings(
	ctx context.Context, format output.Format, namespace string, scans []v1alpha1.ImageScan, notKnown []string, filter findingFilter,
	noToken *connect.NoTokenError,
) error {
	if !format.IsForPeople() || s.failOn == failOnExploited || filter.exploited || filter.pkg != "" || filter.suppressed {
		return noToken
	}
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	missingScans, err := gapsOfResources(ctx, cluster, namespace, scans)
	if err != nil {
		return err
	}
	notKnown = append(notKnown, missingScans...)
	var found []imageFinding
	missing := 0
	for i := range scans {
		shown := topFindingsOf(&scans[i])
		if hasResult(&scans[i]) {
			missing += total(scans[i].Status.Findings) - len(shown)
		}
		for _, f := range shown {
			if filter.passes(f.sortable) {
				found = append(found, f)
			}
		}
	}
	if missing > 0 {
		notKnown = append(notKnown, count(missing, "finding is", "findings are")+" not in the ImageScans, which have at most five of each image")
	}
	s.remark("Only the worst findings of each image are shown: %v.", noToken)
	return s.showFindings(namespace, filter, found, notKnown)
}

// passes applies those parts of the filter that an ImageScan has the data for.
func (f findingFilter) passes(one finding.Finding) bool {
	return (f.severity == "" || one.Severity >= finding.ParseSeverity(f.severity)) && (!f.fixable || one.Fixable())
}

// topFindingsOf returns the findings that an ImageScan has.
func topFindingsOf(scan *v1alpha1.ImageScan) (found []imageFinding) {
	for _, top := range scan.Status.TopFindings {
		name, version, _ := strings.Cut(top.Package, " ")
		f := restv1.Finding{ID: top.ID, Severity: restv1.Severity(top.Severity), Package: restv1.Package{Name: name, Version: version}}
		if top.FixedIn != "" {
			f.FixState, f.FixVersions, f.Fixable = finding.FixStateFixed, []string{top.FixedIn}, true
		}
		added := newImageFinding(scan, f)
		added.partial = true
		found = append(found, added)
	}
	return found
}

func total(c *v1alpha1.FindingCounts) int {
	return int(c.Critical + c.High + c.Medium + c.Low + c.Negligible + c.Unknown)
}
