package command

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// pageSize is the number of findings in one response, the most that the API sends.
const pageSize = 500

// imageFinding is a finding in one image of one namespace, as all scanners together report it.
type imageFinding struct {
	Namespace string `json:"namespace"`
	Image     string `json:"image"`
	Digest    string `json:"digest"`
	Platform  string `json:"platform"`
	// Workloads are some of those that run the image.
	Workloads []string `json:"workloads"`
	// Engines found the finding. Where they differ, Finding is that of the engine that rates it worst.
	Engines []string       `json:"engines"`
	Finding restv1.Finding `json:"finding"`

	shortImage string
	// partial findings have only what an ImageScan has of them.
	partial bool
	// sortable is the finding in the form that has an order.
	sortable finding.Finding
}

// findingList is the result of "findings" for programs.
type findingList struct {
	Items []imageFinding `json:"items"`
	// Complete is true if all running images have a complete result. Otherwise NotKnown has the reasons.
	Complete bool     `json:"complete"`
	NotKnown []string `json:"notKnown"`
}

// findingFilter is what a user wants to see.
type findingFilter struct {
	severity, pkg, image, workload string
	fixable, exploited, suppressed bool
}

func (s *session) findingsCommand() *cobra.Command {
	var filter findingFilter
	c := &cobra.Command{
		Use: "findings", Short: "List the findings of the images that run, worst first", Args: cobra.NoArgs,
		Long: `List the findings of the images that run, worst first.

Findings that an exception suppresses are left out unless --suppressed is given. A finding of several engines is listed once.`,
		Example: `  # What has a fix, from severity High on
  kubectl scanner findings -n shop --severity=High --fixable

  # Fail a pipeline if anything known exploited runs
  kubectl scanner findings -A --fail-on=exploited`,
		RunE: func(c *cobra.Command, _ []string) error { return s.findings(c.Context(), filter) },
	}
	flags := c.Flags()
	flags.StringVar(&filter.severity, "severity", "", "only findings of this severity or a worse one")
	flags.BoolVar(&filter.fixable, "fixable", false, "only findings with a fixed version")
	flags.BoolVar(&filter.exploited, "exploited", false, "only findings that CISA lists as exploited")
	flags.StringVar(&filter.pkg, "package", "", "only findings in the package with exactly this name")
	flags.StringVar(&filter.image, "image", "", "only images whose reference has this text")
	flags.StringVar(&filter.workload, "workload", "", "only images of this workload, such as Deployment/web")
	flags.BoolVar(&filter.suppressed, "suppressed", false, "also findings that an exception suppresses")
	s.addAllNamespaces(c)
	s.addFormat(c)
	s.addFailOn(c)
	return s.requiresConnection(c, own("imagescans", "", "list"), own("scanners", "only with a client certificate", "list"))
}

func (s *session) findings(ctx context.Context, filter findingFilter) error {
	format, err := s.checkFormat()
	if err := errors.Join(err, s.checkFailOn()); err != nil {
		return err
	}
	if filter.severity != "" {
		severity, err := parseSeverity("--severity", filter.severity)
		if err != nil {
			return err
		}
		filter.severity = string(severity)
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	scans, notKnown, err := s.filterScans(ctx, namespace, filter)
	if err != nil {
		return err
	}
	api, err := s.connect(ctx)
	var noToken *connect.NoTokenError
	if errors.As(err, &noToken) {
		return s.topFindings(ctx, format, namespace, scans, notKnown, filter, noToken)
	}
	if err != nil {
		return err
	}
	defer api.Close()
	found, err := collect(ctx, api, scans, filter.parameters(namespace))
	if err != nil {
		return err
	}
	missing, err := gaps(ctx, api, namespace)
	if err != nil {
		return err
	}
	return s.showFindings(namespace, filter, found, append(notKnown, missing...))
}

// filterScans returns the ImageScans of running images that pass the filter, and what is not known about that.
func (s *session) filterScans(ctx context.Context, namespace string, filter findingFilter) (passing []v1alpha1.ImageScan, notKnown []string, err error) {
	cluster, err := s.cluster()
	if err != nil {
		return nil, nil, err
	}
	scans, err := listScans(ctx, cluster, namespace)
	if err != nil {
		return nil, nil, err
	}
	unknown := 0
	for i := range scans {
		scan := &scans[i]
		if !runs(scan) || !slices.ContainsFunc(append(slices.Clone(scan.Spec.References), scan.Spec.Digest), func(r string) bool { return strings.Contains(r, filter.image) }) {
			continue
		}
		if filter.workload != "" {
			found, maybe := hasWorkload(scan, filter.workload)
			if maybe {
				unknown++
			}
			if !found {
				continue
			}
		}
		passing = append(passing, *scan)
	}
	if unknown > 0 {
		notKnown = append(notKnown, count(unknown, "image has", "images have")+" more workloads than are listed, and may be used by "+filter.workload)
	}
	return passing, notKnown, nil
}

// parameters returns the request that has the filter.
func (f findingFilter) parameters(namespace string) restv1.ListRunningFindingsParams {
	params := restv1.ListRunningFindingsParams{Namespace: namespaceParameter(namespace), Limit: ptr.To(pageSize), Outdated: ptr.To(true)}
	if f.severity != "" {
		params.MinSeverity = ptr.To(restv1.Severity(f.severity))
	}
	if f.fixable {
		params.Fixable = &f.fixable
	}
	if f.exploited {
		params.KnownExploited = &f.exploited
	}
	if f.pkg != "" {
		params.Package = &f.pkg
	}
	if f.image != "" {
		params.Image = &f.image
	}
	if f.workload != "" {
		params.Workload = &f.workload
	}
	if !f.suppressed {
		params.Suppressed = ptr.To(false)
	}
	return params
}

// collect returns the findings of images, merged and worst first. An image without a result has none.
func collect(ctx context.Context, api *connect.Connection, scans []v1alpha1.ImageScan, params restv1.ListRunningFindingsParams) ([]imageFinding, error) {
	known := make(map[client.ObjectKey]*v1alpha1.ImageScan, len(scans))
	for i := range scans {
		known[client.ObjectKeyFromObject(&scans[i])] = &scans[i]
	}
	merged := map[string]*imageFinding{}
	for {
		answer, err := api.ListRunningFindingsWithResponse(ctx, &params)
		if err != nil {
			return nil, err
		}
		page := answer.JSON200
		if page == nil {
			return nil, unexpected(answer.Status())
		}
		for _, item := range page.Items {
			scan := known[client.ObjectKey{Namespace: item.Namespace, Name: item.ImageScan}]
			if scan == nil {
				scan = scanOf(item)
			}
			merge(merged, scan, item.Engine, item.Finding)
		}
		if page.Continue == "" {
			break
		}
		params.Continue = ptr.To(page.Continue)
	}
	found := make([]imageFinding, 0, len(merged))
	for _, f := range merged {
		found = append(found, *f)
	}
	slices.SortFunc(found, func(a, b imageFinding) int {
		return cmp.Or(finding.Worse(a.sortable, b.sortable), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Image, b.Image), cmp.Compare(a.Digest, b.Digest),
			cmp.Compare(a.Platform, b.Platform))
	})
	return found, nil
}

// scanOf returns what a response has of an ImageScan that was created since the ImageScans were listed.
func scanOf(item restv1.RunningFinding) *v1alpha1.ImageScan {
	return &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{Namespace: item.Namespace, Name: item.ImageScan},
		Spec:       v1alpha1.ImageScanSpec{References: []string{item.Image}, Digest: item.Digest, Platform: item.Platform},
		Status:     v1alpha1.ImageScanStatus{Workloads: item.Workloads, WorkloadCount: int32(item.WorkloadCount)},
	}
}

// merge adds a finding to those of the other engines.
func merge(merged map[string]*imageFinding, scan *v1alpha1.ImageScan, engine string, f restv1.Finding) {
	added := newImageFinding(scan, f)
	added.Engines = []string{engine}
	key := strings.Join([]string{scan.Namespace, scan.Spec.Digest, scan.Spec.Platform, added.sortable.Key()}, "\x00")
	known := merged[key]
	if known == nil {
		merged[key] = &added
		return
	}
	known.Engines = appendNew(known.Engines, engine)
	slices.Sort(known.Engines)
	if finding.Worse(added.sortable, known.sortable) < 0 {
		known.Finding, known.sortable = added.Finding, added.sortable
	}
}

func newImageFinding(scan *v1alpha1.ImageScan, f restv1.Finding) imageFinding {
	return imageFinding{
		Namespace: scan.Namespace, Image: imageOf(scan), Digest: scan.Spec.Digest, Platform: scan.Spec.Platform,
		Workloads: append([]string{}, scan.Status.Workloads...), Finding: f, shortImage: shortImageOf(scan), sortable: sortable(f),
	}
}

// sortable returns the parts of a finding that identify and order it.
func sortable(f restv1.Finding) finding.Finding {
	return finding.Finding{
		ID: f.ID, Aliases: f.Aliases, Severity: finding.ParseSeverity(string(f.Severity)), Paths: f.Paths, FixState: f.FixState, FixVersions: f.FixVersions,
		EPSS: f.EPSS, KnownExploited: f.KnownExploited,
		Package: finding.Package{Name: f.Package.Name, Version: f.Package.Version, Type: f.Package.Type, PURL: f.Package.PURL},
	}
}

func (s *session) showFindings(namespace string, filter findingFilter, found []imageFinding, notKnown []string) error {
	table := findingTable(found, namespace == "")
	list := findingList{Items: found, Complete: len(notKnown) == 0, NotKnown: append([]string{}, notKnown...)}
	if err := s.write(table, list); err != nil {
		return err
	}
	filters := ""
	if filter.suppressed = false; filter != (findingFilter{}) {
		filters = " that pass the filters"
	}
	if len(found) == 0 && len(notKnown) == 0 {
		s.remark("No findings%s %s. "+allComplete, filters, where(namespace))
	} else if len(found) == 0 {
		s.remark("No findings%s are known %s.", filters, where(namespace))
	}
	s.remarkGaps(notKnown)
	return s.verdict(found, notKnown)
}

// allComplete is the reason for which no finding means that there is none.
const allComplete = "All images that run and are not excluded have a complete result."

// findingTable returns the table of findings. The namespace is in it if there may be several.
func findingTable(found []imageFinding, namespaces bool) output.Table {
	table := output.Table{Columns: []output.Column{
		{Name: "NAMESPACE", Wide: !namespaces}, {Name: "IMAGE"}, {Name: "VULNERABILITY"}, {Name: "SEVERITY"}, {Name: "PACKAGE"}, {Name: "INSTALLED"}, {Name: "FIXED IN"},
		{Name: "EXPLOITED"}, {Name: "EPSS", Wide: true, Measured: true}, {Name: "FIRST SEEN", Wide: true, Measured: true}, {Name: "EXCEPTION", Wide: true}, {Name: "WORKLOADS", Wide: true},
		{Name: "ENGINES", Wide: true}, {Name: "DIGEST", Wide: true},
	}}
	for _, f := range found {
		table.Rows = append(table.Rows, append([]string{f.Namespace, f.shortImage}, append(findingCells(f.Finding, f.partial),
			strings.Join(f.Workloads, ", "), strings.Join(f.Engines, ", "), f.Digest)...))
	}
	return table
}

// findingCells are the cells from VULNERABILITY to EXCEPTION.
// Of a partial finding, it is not known whether it is exploited.
func findingCells(f restv1.Finding, partial bool) []string {
	exploited := yes(f.KnownExploited)
	if partial {
		exploited = "?"
	}
	return []string{
		f.ID, string(f.Severity), f.Package.Name, f.Package.Version, strings.Join(f.FixVersions, ", "), exploited, percent(f.EPSS), day(f.FirstSeenTime),
		exceptionCell(f.Exception),
	}
}
