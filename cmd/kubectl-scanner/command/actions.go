package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/output"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// packageUpdate is an action for programs: the update of one package in the images of one repository.
type packageUpdate struct {
	Repository string `json:"repository"`
	restv1.Action
	Namespaces    []string                  `json:"namespaces"`
	Workloads     []restv1.RunningContainer `json:"workloads"`
	WorkloadCount int                       `json:"workloadCount"`
}

// updateList is the result of "actions" for programs.
type updateList struct {
	Items    []packageUpdate `json:"items"`
	Complete bool            `json:"complete"`
	NotKnown []string        `json:"notKnown"`
}

func (s *session) actionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "actions", Short: "List which packages to update in which images, the most urgent first", Args: cobra.NoArgs,
		Long: `List which packages to update in which images, and the findings that each update ends, the most urgent first.

As in messages and in the web UI, an action is one package in one image repository with the version that ends most of its findings. It has
the findings that are known exploited or of High severity at least, and that no exception suppresses.`,
		Example: `  kubectl scanner actions -n shop
  kubectl scanner actions -A --fail-on=Critical`,
		RunE: func(c *cobra.Command, _ []string) error { return s.actions(c.Context()) },
	}
	s.addAllNamespaces(c)
	s.addFormat(c)
	s.addFailOn(c)
	return s.requiresConnection(c, own("imagescans", "", "list"))
}

func (s *session) actions(ctx context.Context) error {
	_, err := s.checkFormat()
	if err := errors.Join(err, s.checkFailOn()); err != nil {
		return err
	}
	namespace, err := s.namespace()
	if err != nil {
		return err
	}
	api, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer api.Close()
	updates, coverage, err := readActions(ctx, api, namespace)
	if err != nil {
		return err
	}
	return s.showActions(namespace, updates, gapsOf(namespace, coverage))
}

// readActions reads the actions of all pages, the most urgent first.
func readActions(ctx context.Context, api *connect.Connection, namespace string) (updates []packageUpdate, coverage restv1.Coverage, err error) {
	params := &restv1.ListActionsParams{Limit: ptr.To(pageSize), Namespace: namespaceParameter(namespace)}
	updates = []packageUpdate{}
	for {
		answer, err := api.ListActionsWithResponse(ctx, params)
		if err != nil {
			return nil, coverage, err
		}
		page := answer.JSON200
		if page == nil {
			return nil, coverage, unexpected(answer.Status())
		}
		for _, r := range page.Items {
			for _, a := range r.Actions {
				updates = append(updates, packageUpdate{r.Repository, a, r.Namespaces, r.Workloads, r.WorkloadCount})
			}
		}
		if page.Continue == "" {
			slices.SortStableFunc(updates, moreUrgent)
			return updates, page.Coverage, nil
		}
		params.Continue = ptr.To(page.Continue)
	}
}

// moreUrgent orders actions as messages do: those that end most known exploited findings first, then most Critical and most High ones.
func moreUrgent(a, b packageUpdate) int {
	return cmp.Or(cmp.Compare(b.KnownExploited, a.KnownExploited), cmp.Compare(b.Critical, a.Critical), cmp.Compare(b.High, a.High), cmp.Compare(b.Other, a.Other))
}

func (s *session) showActions(namespace string, updates []packageUpdate, notKnown []string) error {
	list := updateList{Items: updates, Complete: len(notKnown) == 0, NotKnown: append([]string{}, notKnown...)}
	table := output.Table{Columns: []output.Column{
		{Name: "UPDATE"}, {Name: "INSTALLED"}, {Name: "TO"}, {Name: "IN"}, {Name: "ENDS"}, {Name: "NAMESPACES"}, {Name: "SINCE", Wide: true}, {Name: "WORKLOADS", Wide: true},
		{Name: "VULNERABILITIES", Wide: true},
	}}
	for _, u := range updates {
		table.Rows = append(table.Rows, []string{
			u.Package, strings.Join(u.Installed, ", "), strings.Join(u.FixVersions, " or "), u.Repository, endsText(u.Action), strings.Join(u.Namespaces, ", "),
			u.SinceTime.UTC().Format(time.DateOnly), workloadsText(u), vulnerabilitiesText(u.Action),
		})
	}
	if err := s.write(table, list); err != nil {
		return err
	}
	switch {
	case len(updates) > 0:
	case len(notKnown) == 0:
		s.remark("Nothing to update %s: no finding that is known exploited, Critical or High has a fix. "+allComplete, where(namespace))
	default:
		s.remark("No update is known that would end a known exploited, Critical or High finding %s.", where(namespace))
	}
	s.remarkGaps(notKnown)
	return s.verdictOf(s.countActions(updates), notKnown)
}

// countActions counts the findings that match --fail-on. An action has numbers for all findings from High on and for those that are exploited.
func (s *session) countActions(updates []packageUpdate) (matches int) {
	for _, u := range updates {
		switch s.failOn {
		case failOnExploited:
			matches += u.KnownExploited
		case finding.Critical.String():
			matches += u.Critical
		case finding.High.String():
			matches += u.Critical + u.High
		case failOnAny:
			matches += u.Critical + u.High + u.Other
		default:
			matches += u.Critical + u.High + s.countLower(u.Ends)
		}
	}
	return matches
}

// countLower counts the findings below High that match --fail-on.
func (s *session) countLower(ends []restv1.EndedFinding) (matches int) {
	for _, e := range ends {
		if e.Severity != restv1.SeverityCritical && e.Severity != restv1.SeverityHigh && s.failsOn(e.Severity, e.KnownExploited) {
			matches++
		}
	}
	return matches
}

// endsText returns what an update ends: "1 known exploited, 2 Critical".
func endsText(a restv1.Action) string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{a.KnownExploited, "known exploited"}, {a.Critical, "Critical"}, {a.High, "High"}, {a.Other, "other"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return strings.Join(parts, ", ")
}

func workloadsText(u packageUpdate) string {
	var names []string
	for _, w := range u.Workloads {
		names = append(names, w.Namespace+"/"+w.Kind+"/"+w.Name)
	}
	return andMore(slices.Compact(names), u.WorkloadCount-len(u.Workloads))
}

func vulnerabilitiesText(a restv1.Action) string {
	var ids []string
	for _, e := range a.Ends {
		ids = append(ids, e.ID)
	}
	return andMore(ids, a.Critical+a.High+a.Other-len(a.Ends))
}

// andMore joins names, of which there are more.
func andMore(names []string, more int) string {
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
