package rest

import (
	"context"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ListWorkloads implements restv1.StrictServerInterface.
func (a operations) ListWorkloads(ctx context.Context, r restv1.ListWorkloadsRequestObject) (restv1.ListWorkloadsResponseObject, error) {
	all, seen, err := a.visibleScanners(ctx, imageScans, ptr.Deref(r.Params.Namespace, ""))
	if err != nil {
		return nil, err
	}
	question := callerOf(ctx).question
	var after store.RunMark
	if err := readPlace(question, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	var page store.RunsPage
	err = a.query(ctx, func() (err error) {
		asked := store.RunsQuery{ID: r.ID, All: seen.all, Namespaces: seen.namespaces}
		page, err = a.Store.RunsPage(ctx, asked, after, limitOf(r.Params.Limit))
		return err
	})
	if err != nil {
		return nil, err
	}
	answer := restv1.ListWorkloads200JSONResponse{Items: []restv1.Workload{}, Total: page.Total, AllNamespaces: seen.all}
	answer.Scanners, answer.NotCovered = notCovered(all, seen)
	for _, run := range page.Runs {
		answer.Items = append(answer.Items, workloadOf(run))
	}
	if page.Next != nil {
		answer.Continue, err = continueAt(question, page.Next)
	}
	return answer, err
}

// notCovered counts what an answer about the namespaces that a caller sees cannot speak of, and the Scanners there: without
// it, an image that nobody has scanned would look like one that has no vulnerability.
func notCovered(all []v1alpha1.Scanner, seen sight) (scanners int, missing restv1.NotCovered) {
	for i := range all {
		if !seen.of(all[i].Namespace) {
			continue
		}
		scanners++
		status := &all[i].Status
		missing.Pending += int(status.Images.Pending)
		missing.Failed += int(status.Images.Failed)
		if status.ObservedGeneration == 0 {
			missing.NewScanners++
		}
	}
	return scanners, missing
}

func workloadOf(run store.Run) restv1.Workload {
	f := run.Finding
	return restv1.Workload{
		Namespace: run.Namespace, Kind: run.Kind, Name: run.Name, Container: run.Container, Image: run.Reference,
		Digest: run.Key.Digest, Platform: run.Key.Platform.String(), Vulnerability: f.ID,
		Severity: restv1.Severity(f.Severity.String()), KnownExploited: f.KnownExploited, Package: packageOf(f.Package),
		FixState: f.FixState, Fixable: f.Fixable(), FixVersions: f.FixVersions, Engine: run.Engine,
	}
}
