package export

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/text"
)

// Lengths of DefectDojo's columns (https://github.com/DefectDojo/django-DefectDojo/blob/master/dojo/finding/models.py and dojo/test/models.py).
const (
	maxNameBytes      = 255
	maxTitleBytes     = 511
	maxComponentBytes = 500
	maxVersionBytes   = 100
	maxIDBytes        = 50
)

// genericFindings is a report in the format "Generic Findings Import"
// (https://docs.defectdojo.com/supported_tools/parsers/generic_findings_import). DefectDojo refuses a report with a field that it does not know.
type genericFindings struct {
	Name     string           `json:"name"`
	Findings []genericFinding `json:"findings"`
}

type genericFinding struct {
	Title            string   `json:"title"`
	Description      string   `json:"description"`
	Severity         string   `json:"severity"`
	VulnerabilityIDs []string `json:"vulnerability_ids,omitempty"`
	ComponentName    string   `json:"component_name"`
	ComponentVersion string   `json:"component_version"`
	KnownExploited   bool     `json:"known_exploited"`
	FixAvailable     bool     `json:"fix_available"`
	FixVersion       string   `json:"fix_version,omitempty"`
	StaticFinding    bool     `json:"static_finding"`
	UniqueID         string   `json:"unique_id_from_tool"`
}

// defectDojoSeverities are DefectDojo's names. A severity that is not known does not mean harmless.
var defectDojoSeverities = map[finding.Severity]string{
	finding.Critical: "Critical", finding.High: "High", finding.Medium: "Medium", finding.Low: "Low", finding.Negligible: "Info", finding.Unknown: "Medium",
}

// defectDojo sends the findings of each workload to a test of its own.
type defectDojo struct{}

// projectOf returns where the findings of a workload are.
func (defectDojo) projectOf(s Settings, w store.WorkloadVersion) Project {
	return Project{DefectDojo: DefectDojoTest{
		ProductType: s.ProductType, Product: w.Namespace, Engagement: s.Cluster,
		Test: shorten(fmt.Sprintf("%s/%s (%s)", w.Kind, w.Name, s.Engine), maxNameBytes),
	}}
}

// needsAllResults is true: a reimport closes the findings that a report lacks.
func (defectDojo) needsAllResults() bool { return true }

func (defectDojo) timeout() time.Duration { return DefectDojoTimeout }

func (defectDojo) lacksDocument(store.WorkloadVersion) bool { return false }

func (d defectDojo) versionOf(s Settings, w store.WorkloadVersion) string {
	return sumOf(w.Version, s.exceptionsIn(w.Namespace).Key(), fmt.Sprint(d.projectOf(s, w)), fmt.Sprint(s.hasAnomaly))
}

func (d defectDojo) documents(ctx context.Context, s Settings, from Store, w store.WorkloadVersion) (map[string]document, error) {
	details, err := from.Workload(ctx, store.WorkloadQuery{
		Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Scanner: s.UID, Exceptions: s.exceptionsIn(w.Namespace),
	}, maxFindings)
	if err != nil {
		return nil, err
	}
	p := d.projectOf(s, w)
	report, isCut, err := encodeDefectDojo(p.DefectDojo, details.Findings)
	made := documentOf(p, report)
	made.isCut = isCut || details.Counts.Total()+details.Suppressed > len(details.Findings)
	return map[string]document{"": made}, err
}

func (defectDojo) closing(p Project) (document, error) {
	report, _, err := encodeDefectDojo(p.DefectDojo, nil)
	return documentOf(p, report), err
}

// encodeDefectDojo returns the report for the findings of a workload that no exception suppresses, worst first. Beyond MaxDocumentBytes, it leaves
// out the least urgent ones, and isCut is true. The same findings give the same report, in whatever order they are.
//
// By default, DefectDojo identifies a finding of such a report by its title and its description. So these have the workload, which keeps equal
// findings of two workloads apart, and what announcements call escalated: DefectDojo does not update the severity of a finding that it knows. They
// have no versions and no advisory, which change while the finding stays the same. The probability of exploitation (EPSS) changes each day and is left
// out.
func encodeDefectDojo(p DefectDojoTest, findings []store.WorkloadFinding) (encoded []byte, isCut bool, err error) {
	report := genericFindings{Name: "Scanner Operator", Findings: []genericFinding{}}
	size := 1 << 10
	for _, f := range findings {
		if f.Exception != nil {
			continue
		}
		made := genericFindingOf(p, f.Finding)
		one, err := json.Marshal(made)
		if err != nil {
			return nil, false, err
		}
		if size += len(one) + 1; size > MaxDocumentBytes {
			isCut = true
			break
		}
		report.Findings = append(report.Findings, made)
	}
	slices.SortFunc(report.Findings, func(a, b genericFinding) int {
		return cmp.Or(cmp.Compare(a.Title, b.Title), cmp.Compare(a.UniqueID, b.UniqueID))
	})
	encoded, err = json.Marshal(report)
	return encoded, isCut, err
}

func genericFindingOf(p DefectDojoTest, f finding.Finding) genericFinding {
	severity := f.Severity.String()
	if f.KnownExploited {
		severity += ", known exploited"
	}
	pkg := f.Package.Name
	if f.Package.Type != "" {
		pkg += " (" + f.Package.Type + ")"
	}
	made := genericFinding{
		Title: shorten(fmt.Sprintf("%s in %s", f.ID, pkg), maxTitleBytes), Severity: defectDojoSeverities[f.Severity],
		Description:   fmt.Sprintf("%s has %s (%s).\n\nWorkload: %s in the namespace %s, cluster %s.", pkg, f.ID, severity, p.Test, p.Product, p.Engagement),
		ComponentName: text.Truncate(f.Package.Name, maxComponentBytes), ComponentVersion: text.Truncate(f.Package.Version, maxVersionBytes),
		KnownExploited: f.KnownExploited, FixAvailable: f.Fixable(), StaticFinding: true,
		UniqueID: sumOf(p.Product, p.Engagement, p.Test, f.ID, f.Package.Type, f.Package.Name),
	}
	if f.Fixable() {
		made.FixVersion = text.Truncate(strings.Join(f.FixVersions, ", "), maxVersionBytes)
	}
	if len(f.ID) <= maxIDBytes {
		made.VulnerabilityIDs = []string{f.ID}
	}
	return made
}

// shorten returns a text of at most limit bytes. Different texts stay different.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return text.Truncate(s, limit-13) + "-" + sumOf(s)[:12]
}

// sumOf returns the SHA-256 of some texts in hexadecimal digits.
func sumOf(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:])
}
