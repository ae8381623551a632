package command

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
)

// vulnerabilityAnswer is the result of "cve" for programs.
type vulnerabilityAnswer struct {
	Items []restv1.Workload `json:"items"`
	// Scanned is the number of images with a result, which were asked.
	Scanned int `json:"scanned"`
	// Excluded is the number of running images that scanners exclude by their settings. They were not asked.
	Excluded int `json:"excluded"`
	// Complete is true if all other running images have a complete result of the newest vulnerability data, which have the id. Otherwise NotKnown has the
	// reasons.
	Complete bool `json:"complete"`
	// Known says whether the vulnerability data have the id. NotKnown means that nothing is known about who runs it.
	Known    restv1.VulnerabilityKnown `json:"known"`
	NotKnown []string                  `json:"notKnown"`
}

// numbers matches a CVE without its first letters, which are the name of the command.
var numbers = regexp.MustCompile(`^\s*\d{4}[\s_-]+\d{4,}\s*$`)

func (s *session) cveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "cve ID", Aliases: []string{"vulnerability"}, Short: "Show who runs a vulnerability, or that nobody does", Args: cobra.MinimumNArgs(1),
		Long: `Show which workloads run an image with a vulnerability, in all namespaces that you may see or in the one of -n.

The ID may be an alias, such as GHSA-…, in any case and also with spaces ("kubectl scanner cve 2024 3094"). "Nobody runs it" is said only if that is known:
all images that run have a complete result of the newest vulnerability data, which have the ID. Otherwise the answer says what is missing, with the
number of images that scanners exclude. Those alone do not change the exit status of --fail-on.
An ID that is not known in the vulnerability data is an error: the exit status is 1.`,
		Example: `  kubectl scanner cve CVE-2024-3094
  kubectl scanner cve CVE-2024-3094 -n shop --fail-on=any`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			id := strings.Join(args, " ")
			if numbers.MatchString(id) {
				id = "CVE " + id
			}
			return s.cve(c.Context(), id, s.allNamespaces)
		},
	}
	s.addAllNamespaces(c)
	s.addFormat(c)
	s.addFailOn(c)
	return s.requiresConnection(c, own("imagescans", "", "list"))
}

func (s *session) cve(ctx context.Context, id string, everywhere bool) error {
	if _, err := s.checkFormat(); err != nil {
		return err
	}
	if err := s.checkFailOn(); err != nil {
		return err
	}
	// Without -n, the question is about the cluster, whatever the namespace of the kubeconfig is.
	namespace := ptr.Deref(s.kube.Namespace, "")
	if everywhere {
		namespace = ""
	}
	api, err := s.connect(ctx)
	var noToken *connect.NoTokenError
	if errors.As(err, &noToken) {
		return fmt.Errorf("whether somebody runs %s is not known: %w", id, err)
	}
	if err != nil {
		return err
	}
	defer api.Close()
	list, err := readWorkloads(ctx, api, id, namespace)
	if err != nil {
		return err
	}
	coverage := restv1.Coverage{AllNamespaces: list.AllNamespaces, Scanners: list.Scanners, Scanned: list.Scanned, NotCovered: list.NotCovered}
	notKnown := gapsOf(namespace, coverage)
	switch {
	case list.Known == restv1.KnownNotChecked && list.Scanners > 0:
		notKnown = append(notKnown, "the engine does not say whether its vulnerability data have this ID")
	case list.Known == restv1.KnownNotMatched:
		notKnown = append(notKnown, "some images have a result of earlier vulnerability data")
	}
	var found []imageFinding
	for _, w := range list.Items {
		found = append(found, imageFinding{Finding: restv1.Finding{Severity: w.Severity, KnownExploited: w.KnownExploited, Exception: w.Exception}})
	}
	answer := vulnerabilityAnswer{Items: list.Items, Scanned: list.Scanned, Excluded: list.Excluded, Complete: len(notKnown) == 0 && list.Known == restv1.KnownFound, Known: list.Known, NotKnown: append([]string{}, notKnown...)}
	if err := s.write(workloadTable(list.Items), answer); err != nil {
		return err
	}
	switch list.Known {
	case restv1.KnownNot:
		return fmt.Errorf("%s is not known in the vulnerability data, so that nothing is known about who runs it. Compare it with its source", list.ID)
	case restv1.KnownNotAnID:
		return fmt.Errorf("%q is not known in the vulnerability data: no publisher gives such IDs. An ID is CVE-2024-3094, for example", list.ID)
	}
	s.remark("%s", whoRuns(list.ID, namespace, list, notKnown))
	return s.verdict(found, notKnown)
}

// readWorkloads reads all pages of the workloads that run a vulnerability.
func readWorkloads(ctx context.Context, api *connect.Connection, id, namespace string) (*restv1.WorkloadList, error) {
	params := &restv1.ListWorkloadsParams{Limit: ptr.To(pageSize), Namespace: namespaceParameter(namespace)}
	var all *restv1.WorkloadList
	for {
		answer, err := api.ListWorkloadsWithResponse(ctx, id, params)
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

// whoRuns answers the question in a sentence.
func whoRuns(id, namespace string, list *restv1.WorkloadList, notKnown []string) string {
	type container struct{ namespace, kind, name, container string }
	containers, namespaces, suppressed := map[container]bool{}, map[string]bool{}, 0
	for _, w := range list.Items {
		containers[container{w.Namespace, w.Kind, w.Name, w.Container}] = true
		namespaces[w.Namespace] = true
		if w.Exception != nil {
			suppressed++
		}
	}
	in := ""
	if namespace != "" {
		in = " " + where(namespace)
	}
	var text strings.Builder
	switch {
	case len(containers) > 0:
		fmt.Fprintf(&text, "%s in %s %s it.", count(len(containers), "container", "containers"), count(len(namespaces), "namespace", "namespaces"),
			map[bool]string{true: "runs", false: "run"}[len(containers) == 1])
		if suppressed > 0 {
			fmt.Fprintf(&text, " An exception suppresses %d of the lines above.", suppressed)
		}
		if len(notKnown) > 0 || list.Excluded > 0 {
			text.WriteString(" There may be more.")
		}
	case len(notKnown) > 0:
		fmt.Fprintf(&text, "Nobody is known to run %s%s.", id, in)
	case list.Excluded > 0:
		fmt.Fprintf(&text, "Nobody is known to run %s%s. %s asked; 0 pending, 0 failed, 0 not covered.", id, in, count(list.Scanned, "image was", "images were"))
	case list.Scanned == 0:
		fmt.Fprintf(&text, "No image was asked for %s: no pod runs one that is scanned%s.", id, in)
	default:
		fmt.Fprintf(&text, "Nobody runs %s%s. %s asked; 0 pending, 0 failed, 0 not covered, 0 excluded by Scanners.", id, in, count(list.Scanned, "image was", "images were"))
		if namespace == "" {
			text.WriteString(" Namespaces that nothing scans were not asked.")
		} else { // a ClusterScanner does not count them by namespace
			text.WriteString(" Images that a ClusterScanner excludes were not asked.")
		}
	}
	if list.Excluded > 0 {
		fmt.Fprintf(&text, "\nNot asked: %s by the settings of scanners. More: kubectl scanner status", count(list.Excluded, "image is excluded", "images are excluded"))
	}
	if len(notKnown) > 0 {
		fmt.Fprintf(&text, "\nNot known: %s. More: kubectl scanner status", strings.Join(notKnown, "; "))
	}
	return text.String()
}

func workloadTable(workloads []restv1.Workload) output.Table {
	table := output.Table{Columns: []output.Column{
		{Name: "NAMESPACE"}, {Name: "WORKLOAD"}, {Name: "CONTAINER"}, {Name: "IMAGE"}, {Name: "SEVERITY"}, {Name: "PACKAGE"}, {Name: "INSTALLED"}, {Name: "FIXED IN"},
		{Name: "EXPLOITED"}, {Name: "VULNERABILITY", Wide: true}, {Name: "EXCEPTION", Wide: true}, {Name: "ENGINES", Wide: true}, {Name: "PLATFORM", Wide: true},
		{Name: "DIGEST", Wide: true},
	}}
	for _, w := range workloads {
		table.Rows = append(table.Rows, []string{
			w.Namespace, w.Kind + "/" + w.Name, w.Container, w.Image, string(w.Severity), w.Package.Name, w.Package.Version, strings.Join(w.FixVersions, ", "),
			yes(w.KnownExploited), w.Vulnerability, exceptionCell(w.Exception), strings.Join(w.Engines, ", "), w.Platform, w.Digest,
		})
	}
	return table
}
