package restapi

import (
	"context"
	"fmt"
	"slices"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Bounds of the lists in an action, which the OpenAPI document defines.
const (
	maxEnded            = 50
	maxActionWorkloads  = 20
	maxActionNamespaces = 100
)

// ListActions implements restv1.StrictServerInterface.
func (a operations) ListActions(ctx context.Context, r restv1.ListActionsRequestObject) (restv1.ListActionsResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	var after store.ActionCursor
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	page, err := a.actionsPage(ctx, seen, after, limitOf(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	answer := restv1.ListActions200JSONResponse{Items: []restv1.RepositoryActions{}, Total: page.Total}
	for _, found := range page.Repositories {
		answer.Items = append(answer.Items, repositoryActionsOf(found))
	}
	if answer.Coverage, err = a.coverageOf(ctx, seen); err != nil {
		return nil, err
	}
	if page.Next != nil {
		answer.Continue, err = encodeContinue(ctx, page.Next)
	}
	return answer, err
}

// actionsPage reads a page of actions, without what the exceptions in force suppress.
func (a operations) actionsPage(ctx context.Context, seen sight, after store.ActionCursor, limit int) (page store.ActionsPage, err error) {
	asked := store.ActionsQuery{Seen: seen.inStore()}
	if asked.Exceptions, _, err = a.exceptions().InForceIn(ctx, seen.scannedNamespaces()); err != nil {
		return page, fmt.Errorf("reading exceptions: %w", err)
	}
	err = a.query(ctx, func(ctx context.Context) (err error) {
		page, err = a.Store.ActionsPage(ctx, asked, after, limit)
		return err
	})
	return page, err
}

func repositoryActionsOf(r store.RepositoryActions) restv1.RepositoryActions {
	answer := restv1.RepositoryActions{
		Repository: r.Repository, Namespaces: []string{}, Workloads: []restv1.RunningContainer{}, WorkloadCount: len(r.Workloads),
		Actions: []restv1.Action{}, ActionCount: len(r.Actions),
	}
	for _, w := range r.Workloads {
		if len(answer.Workloads) < maxActionWorkloads {
			answer.Workloads = append(answer.Workloads, restv1.RunningContainer{
				Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Container: w.Container, Image: w.Reference,
			})
		}
		if len(answer.Namespaces) < maxActionNamespaces && !slices.Contains(answer.Namespaces, w.Namespace) {
			answer.Namespaces = append(answer.Namespaces, w.Namespace)
		}
	}
	for _, update := range r.Actions {
		answer.Actions = append(answer.Actions, actionOf(update))
	}
	return answer
}

func actionOf(update action.Action[store.ActionableFinding]) restv1.Action {
	critical, high := update.Counts.Of(finding.Critical), update.Counts.Of(finding.High)
	answer := restv1.Action{
		Package: update.PackageName, Type: update.PackageType, Installed: update.Installed, FixVersions: update.FixVersions,
		KnownExploited: update.Counts.KnownExploited, Critical: critical, High: high, Other: len(update.Ends) - critical - high,
		Ends: []restv1.EndedFinding{}, SinceTime: update.Ends[0].Since.UTC(),
	}
	for i, f := range update.Ends {
		if f.Since.Before(answer.SinceTime) {
			answer.SinceTime = f.Since.UTC()
		}
		if i < maxEnded {
			answer.Ends = append(answer.Ends, restv1.EndedFinding{
				ID: f.ID, Severity: restv1.Severity(f.Severity.String()), KnownExploited: f.KnownExploited, EPSS: f.EPSS, SinceTime: f.Since.UTC(),
			})
		}
	}
	return answer
}
