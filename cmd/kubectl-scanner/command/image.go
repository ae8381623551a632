package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
)

// imageResult is what "image" writes for programs, for each ImageScan.
type imageResult struct {
	ImageScan restv1.ImageScan `json:"imageScan"`
	// Report is missing if there is no result.
	Report   *restv1.Report   `json:"report,omitempty"`
	Findings []restv1.Finding `json:"findings"`

	scan     v1alpha1.ImageScan
	notKnown string
	// partial means that the findings have only what the ImageScan has of them.
	partial bool
}

// imageList is the result of "image" for programs.
type imageList struct {
	Items []imageResult `json:"items"`
	// Complete is true if each of the images has a complete result. Otherwise NotKnown has the reasons.
	Complete bool     `json:"complete"`
	NotKnown []string `json:"notKnown"`
}

func (s *session) imageCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "image NAME", Short: "Show an image and all its findings", Args: cobra.ExactArgs(1),
		Long: `Show an image and all its findings, with those that exceptions suppress.

NAME is that of the ImageScan, the image's reference or a part of it, its digest, or a workload such as Deployment/web. An image that several
Scanners scan is shown once for each.`,
		Example: `  kubectl scanner image shop/web:1.4 -n shop
  kubectl scanner image Deployment/web -n shop -o json`,
		ValidArgsFunction: s.completeImages,
		RunE:              func(c *cobra.Command, args []string) error { return s.image(c.Context(), args[0]) },
	}
	s.addAllNamespaces(c)
	s.addFormat(c)
	s.addFailOn(c)
	return s.requiresConnection(c, own("imagescans", "", "get", "list"))
}

func (s *session) image(ctx context.Context, word string) error {
	format, err := s.checkFormat()
	if err := errors.Join(err, s.checkFailOn()); err != nil {
		return err
	}
	scans, err := s.selectImages(ctx, word)
	if err != nil {
		return err
	}
	api, err := s.connect(ctx)
	var noToken *connect.NoTokenError
	if errors.As(err, &noToken) && format.IsForPeople() && s.failOn != failOnExploited {
		s.remark("Only the worst findings of each image are shown: %v.", noToken)
		return s.showImages(format, topResults(scans))
	}
	if err != nil {
		return err
	}
	defer api.Close()
	results := make([]imageResult, 0, len(scans))
	for i := range scans {
		result, err := readImage(ctx, api, scans[i])
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	return s.showImages(format, results)
}

// selectImages returns the ImageScans of the namespace that a word means.
func (s *session) selectImages(ctx context.Context, word string) ([]v1alpha1.ImageScan, error) {
	namespace, err := s.namespace()
	if err != nil {
		return nil, err
	}
	cluster, err := s.cluster()
	if err != nil {
		return nil, err
	}
	scans, err := listScans(ctx, cluster, namespace)
	if err != nil {
		return nil, err
	}
	selected, err := selectScans(scans, word)
	if err != nil {
		return nil, fmt.Errorf("%w %s", err, where(namespace))
	}
	return selected, nil
}

func readImage(ctx context.Context, api *connect.Connection, scan v1alpha1.ImageScan) (imageResult, error) {
	answer, err := api.GetImageScanWithResponse(ctx, scan.Namespace, scan.Name)
	if err != nil {
		return imageResult{}, err
	}
	if answer.JSON200 == nil {
		return imageResult{}, unexpected(answer.Status())
	}
	result := imageResult{ImageScan: *answer.JSON200, Findings: []restv1.Finding{}, scan: scan}
	list, err := readFindings(ctx, api, scan.Namespace, scan.Name)
	if connect.IsReason(err, restv1.ReasonNotScanned) {
		result.notKnown = noResult(&scan)
		return result, nil
	}
	if err != nil {
		return imageResult{}, err
	}
	result.Report, result.Findings = &list.Report, list.Items
	result.notKnown = incomplete(&scan, list.Report.Phase == restv1.PhaseFailed, list.Report.NotCovered)
	return result, nil
}

// maxRestarts bounds how often a list is read again because its report was replaced in the meantime.
const maxRestarts = 3

// readFindings reads all pages of an image's findings. If the report is replaced meanwhile, it begins again.
func readFindings(ctx context.Context, api *connect.Connection, namespace, name string) (*restv1.FindingList, error) {
	for restart := 0; ; restart++ {
		list, err := readPages(ctx, api, namespace, name)
		if restart == maxRestarts || !connect.IsReason(err, restv1.ReasonExpired) {
			return list, err
		}
	}
}

func readPages(ctx context.Context, api *connect.Connection, namespace, name string) (*restv1.FindingList, error) {
	params := restv1.ListFindingsParams{Limit: ptr.To(pageSize), Outdated: ptr.To(true)}
	var all *restv1.FindingList
	for {
		answer, err := api.ListFindingsWithResponse(ctx, namespace, name, &params)
		if err != nil {
			return nil, err
		}
		page := answer.JSON200
		if page == nil {
			return nil, unexpected(answer.Status())
		}
		if all == nil {
			all = page
		} else {
			all.Items = append(all.Items, page.Items...)
		}
		if page.Continue == "" {
			all.Continue = ""
			return all, nil
		}
		params.Continue = ptr.To(page.Continue)
	}
}

// noResult says that an image has no result, and the reason in one word.
func noResult(scan *v1alpha1.ImageScan) string {
	return "there is no result of " + shortImageOf(scan) + " (" + cmp.Or(why(scan).Reason, string(phaseOf(scan))) + ")"
}

// incomplete says what is not known although an image has a result; nothing if it is complete.
func incomplete(scan *v1alpha1.ImageScan, failed bool, notCovered []string) string {
	switch {
	case failed:
		return "the last attempt to scan " + shortImageOf(scan) + " failed, and the findings are those of an earlier one"
	case len(notCovered) > 0:
		return "the result of " + shortImageOf(scan) + " does not cover " + strings.Join(notCovered, ", ")
	}
	return ""
}

// topResults returns what the ImageScans themselves have.
func topResults(scans []v1alpha1.ImageScan) (results []imageResult) {
	for _, scan := range scans {
		result := imageResult{scan: scan, partial: true}
		for _, f := range topFindingsOf(&scan) {
			result.Findings = append(result.Findings, f.Finding)
		}
		if !hasResult(&scan) {
			result.notKnown = noResult(&scan)
		} else if missing := total(scan.Status.Findings) - len(result.Findings); missing > 0 {
			result.notKnown = count(missing, "finding is", "findings are") + " not in the ImageScan"
		} else {
			result.notKnown = incomplete(&scan, phaseOf(&scan) == v1alpha1.PhaseFailed, scan.Status.NotCovered)
		}
		results = append(results, result)
	}
	return results
}

func (s *session) showImages(format output.Format, results []imageResult) error {
	var found []imageFinding
	var notKnown []string
	table := output.Table{Columns: []output.Column{
		{Name: "VULNERABILITY"}, {Name: "SEVERITY"}, {Name: "PACKAGE"}, {Name: "INSTALLED"}, {Name: "FIXED IN"}, {Name: "EXPLOITED"},
		{Name: "EPSS", Wide: true, Measured: true}, {Name: "FIRST SEEN", Wide: true, Measured: true}, {Name: "EXCEPTION"},
		{Name: "IMAGESCAN", Wide: true},
	}}
	out := s.results()
	for i, result := range results {
		if result.notKnown != "" {
			notKnown = appendNew(notKnown, result.notKnown)
		}
		rows := output.Table{Columns: table.Columns}
		for _, f := range result.Findings {
			found = append(found, newImageFinding(&result.scan, f))
			rows.Rows = append(rows.Rows, append(findingCells(f, result.partial), result.scan.Namespace+"/"+result.scan.Name))
		}
		table.Rows = append(table.Rows, rows.Rows...)
		if !format.IsForPeople() {
			continue
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		result.writeHeader(out)
		if err := s.write(rows, nil); err != nil {
			return err
		}
	}
	if !format.IsForPeople() {
		list := imageList{Items: results, Complete: len(notKnown) == 0, NotKnown: append([]string{}, notKnown...)}
		if err := s.write(table, list); err != nil {
			return err
		}
		s.remarkGaps(notKnown)
	}
	return s.verdict(found, notKnown)
}

// writeHeader writes what the image is, and how much is known about it.
func (r imageResult) writeHeader(out io.Writer) {
	scan := &r.scan
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(out, "%-13s%s\n", name+":", text)
		}
	}
	line("Image", strings.Join(slices.Concat(scan.Spec.References, []string{scan.Spec.Digest})[:max(1, len(scan.Spec.References))], ", "))
	line("Digest", scan.Spec.Digest)
	line("Platform", scan.Spec.Platform)
	line("ImageScan", scan.Namespace+"/"+scan.Name+", of "+string(scan.Spec.ScannerRef.Kind)+" "+scan.Spec.ScannerRef.Name)
	workloads := strings.Join(scan.Status.Workloads, ", ")
	if more := int(scan.Status.WorkloadCount) - len(scan.Status.Workloads); more > 0 {
		workloads += fmt.Sprintf(" and %d more", more)
	}
	if !runs(scan) {
		workloads = "none since " + minute(scan.Status.UnusedSinceTime.Time)
	}
	line("Workloads", workloads)
	phase := string(phaseOf(scan))
	if r.Report != nil {
		phase += ", matched " + minute(r.Report.MatchTime) + " by " + r.Report.Engine
		if !r.Report.Current {
			phase += "; newer data waits"
		}
	}
	line("Phase", phase)
	if condition := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); condition != nil && condition.Reason != v1alpha1.ReasonScanned {
		line("Reason", condition.Reason+": "+condition.Message)
	}
	if scan.Status.Findings != nil {
		line("Findings", countsText(*scan.Status.Findings))
	}
	line("Packages", listOrigin(scan.Status.SBOM))
	if r.notKnown != "" {
		line("Not known", r.notKnown)
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(out)
	}
}

// listOrigin says where the list of packages comes from; nothing if the ImageScan does not.
func listOrigin(origin *v1alpha1.SBOMOrigin) string {
	switch {
	case origin == nil:
		return ""
	case origin.Source == v1alpha1.SBOMFromAttestation:
		return "the publisher's claim, signed by " + origin.Signer
	case origin.Source == v1alpha1.SBOMFromUpload:
		return "the claim of " + origin.Uploader + ", who uploaded it " + minute(origin.UploadTime.Time)
	}
	return "cataloged, since no attested SBOM is accepted: " + origin.Message
}
