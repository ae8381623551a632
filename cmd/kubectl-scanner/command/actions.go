package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// packageUpdate is an action for programs: the update of one package in the images of one repository.
type packageUpdate struct {
	Repository  string   `json:"repository"`
	Package     string   `json:"package"`
	PackageType string   `json:"packageType"`
	Installed   []string `json:"installed"`
	// FixVersions each end all findings of the action.
	FixVersions []string       `json:"fixVersions"`
	Counts      finding.Counts `json:"counts"`
	Ends        []endedFinding `json:"ends"`
	Namespaces  []string       `json:"namespaces"`
	Workloads   []string       `json:"workloads"`
}

// endedFinding is a finding that an action ends.
type endedFinding struct {
	ID             string          `json:"id"`
	Severity       restv1.Severity `json:"severity"`
	KnownExploited bool            `json:"knownExploited"`
	Installed      string          `json:"installed"`
}

// updateList is the result of "actions" for programs.
type updateList struct {
	Items []packageUpdate `json:"items"`
	// WithoutFix counts the findings for which no fixed version is known.
	WithoutFix int      `json:"withoutFix"`
	Complete   bool     `json:"complete"`
	NotKnown   []string `json:"notKnown"`
}

func (s *session) actionsCommand() *cobra.Command {
	filter := findingFilter{severity: finding.High.String()}
	c := &cobra.Command{
		Use: "actions", Short: "List which packages to update in which images, the most urgent first", Args: cobra.NoArgs,
		Long: `List which packages to update in which images, and the findings that each update ends, the most urgent first.

As in messages, an action is one package in one image repository with the version that ends most of its findings. Known exploited
vulnerabilities count whatever their severity is.`,
		Example: `  kubectl scanner actions -n shop
  kubectl scanner actions -A --severity=Critical --fail-on=Critical`,
		RunE: func(c *cobra.Command, _ []string) error { return s.actions(c.Context(), filter) },
	}
	c.Flags().StringVar(&filter.severity, "severity", filter.severity, "only findings of this severity or a worse one, and known exploited ones")
	c.Flags().StringVar(&filter.workload, "workload", "", "only images of this workload, such as Deployment/web")
	c.Flags().StringVar(&filter.image, "image", "", "only images whose reference has this text")
	s.addAllNamespaces(c)
	s.addFormat(c)
	s.addFailOn(c)
	return s.requiresConnection(c, own("imagescans", "", "get", "list"))
}

func (s *session) actions(ctx context.Context, filter findingFilter) error {
	_, err := s.checkFormat()
	if err := errors.Join(err, s.checkFailOn()); err != nil {
		return err
	}
	severity, err := parseSeverity("--severity", filter.severity)
	if err != nil {
		return err
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
	if err != nil {
		return err
	}
	defer api.Close()
	filter.severity = "" // a known exploited finding counts, whatever its severity is
	found, err := collect(ctx, api, scans, filter.parameters())
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(f imageFinding) bool {
		return !f.Finding.KnownExploited && f.sortable.Severity < finding.ParseSeverity(string(severity))
	})
	missing, err := gaps(ctx, api, namespace)
	if err != nil {
		return err
	}
	return s.showActions(namespace, found, append(notKnown, missing...))
}

func (s *session) showActions(namespace string, found []imageFinding, notKnown []string) error {
	grouped, without := action.Group(oncePerRepository(found), func(f repositoryFinding) (string, *finding.Finding) { return f.repository, &f.sortable })
	list := updateList{Items: []packageUpdate{}, WithoutFix: len(without), Complete: len(notKnown) == 0, NotKnown: append([]string{}, notKnown...)}
	table := output.Table{Columns: []output.Column{
		{Name: "UPDATE"}, {Name: "INSTALLED"}, {Name: "TO"}, {Name: "IN"}, {Name: "ENDS"}, {Name: "NAMESPACES"}, {Name: "WORKLOADS", Wide: true}, {Name: "VULNERABILITIES", Wide: true},
	}}
	for _, a := range grouped {
		u := updateOf(a)
		list.Items = append(list.Items, u)
		var ids []string
		for _, e := range u.Ends {
			ids = append(ids, e.ID)
		}
		table.Rows = append(table.Rows, []string{
			u.Package, strings.Join(u.Installed, ", "), strings.Join(u.FixVersions, " or "), u.Repository, endsText(u.Counts), strings.Join(u.Namespaces, ", "),
			strings.Join(u.Workloads, ", "), strings.Join(ids, ", "),
		})
	}
	if err := s.write(table, list); err != nil {
		return err
	}
	switch {
	case len(found) == 0 && len(notKnown) == 0:
		s.remark("Nothing to do %s. "+allComplete, where(namespace))
	case len(grouped) == 0:
		s.remark("No update is known that would end a finding %s.", where(namespace))
	}
	if len(without) > 0 {
		s.remark("%s no fix: kubectl scanner findings", count(len(without), "more finding has", "more findings have"))
	}
	s.remarkGaps(notKnown)
	return s.verdict(found, notKnown)
}

// repositoryFinding is a finding in the images of a repository.
type repositoryFinding struct {
	imageFinding
	repository            string
	namespaces, workloads []string
}

// oncePerRepository merges the findings of the images of a repository, in all namespaces: one update ends them all.
func oncePerRepository(found []imageFinding) []repositoryFinding {
	known := map[string]int{}
	var merged []repositoryFinding
	for _, f := range found {
		repository := f.Image
		if reference, err := image.ParseReference(f.Image); err == nil {
			repository = reference.Repository
		}
		key := repository + "\x00" + f.sortable.Key()
		i, exists := known[key]
		if !exists {
			i = len(merged)
			known[key] = i
			merged = append(merged, repositoryFinding{imageFinding: f, repository: repository})
		}
		merged[i].namespaces = appendNew(merged[i].namespaces, f.Namespace)
		for _, workload := range f.Workloads {
			merged[i].workloads = appendNew(merged[i].workloads, f.Namespace+"/"+workload)
		}
	}
	return merged
}

func updateOf(a action.Action[repositoryFinding]) packageUpdate {
	u := packageUpdate{
		Repository: a.Repository, Package: a.PackageName, PackageType: a.PackageType, Installed: a.Installed, FixVersions: a.FixVersions, Counts: a.Counts,
		Namespaces: []string{}, Workloads: []string{},
	}
	for _, f := range a.Ends {
		u.Ends = append(u.Ends, endedFinding{ID: f.Finding.ID, Severity: f.Finding.Severity, KnownExploited: f.Finding.KnownExploited, Installed: f.Finding.Package.Version})
		u.Namespaces = appendNew(u.Namespaces, f.namespaces...)
		u.Workloads = appendNew(u.Workloads, f.workloads...)
	}
	slices.SortFunc(u.Namespaces, cmp.Compare)
	slices.SortFunc(u.Workloads, cmp.Compare)
	return u
}

// endsText returns what an update ends: "1 known exploited, 2 Critical".
func endsText(c finding.Counts) string {
	var parts []string
	if c.KnownExploited > 0 {
		parts = append(parts, fmt.Sprintf("%d known exploited", c.KnownExploited))
	}
	for _, severity := range finding.Severities() {
		if n := c.Of(severity); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, severity))
		}
	}
	return strings.Join(parts, ", ")
}
