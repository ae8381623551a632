package restapi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ListRunningWorkloads implements restv1.StrictServerInterface.
func (a operations) ListRunningWorkloads(
	ctx context.Context, r restv1.ListRunningWorkloadsRequestObject,
) (restv1.ListRunningWorkloadsResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	var after store.WorkloadCursor
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	items, page, err := a.workloadsPage(ctx, seen, r.Params.Text, after, limitOf(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	answer := restv1.ListRunningWorkloads200JSONResponse{Items: items, Total: page.Total}
	if answer.Coverage, err = a.coverageOf(ctx, seen); err != nil {
		return nil, err
	}
	if page.Next != nil {
		answer.Continue, err = encodeContinue(ctx, page.Next)
	}
	return answer, err
}

// workloadsPage reads a page of workloads, and returns its items.
func (a operations) workloadsPage(
	ctx context.Context, seen sight, text *restv1.WorkloadText, after store.WorkloadCursor, limit int,
) (items []restv1.RunningWorkload, page store.WorkloadsPage, err error) {
	asked := store.WorkloadsQuery{Seen: seen.inStore(), Text: ptr.Deref(text, "")}
	if asked.Exceptions, _, err = a.exceptions().InForceIn(ctx, seen.scannedNamespaces()); err != nil {
		return nil, page, fmt.Errorf("reading exceptions: %w", err)
	}
	err = a.query(ctx, func(ctx context.Context) (err error) {
		page, err = a.Store.WorkloadsPage(ctx, asked, after, limit)
		return err
	})
	if err != nil {
		return nil, page, err
	}
	byNamespace := map[string][]store.WorkloadImage{}
	for i := range page.Workloads {
		namespace := page.Workloads[i].Namespace
		byNamespace[namespace] = append(byNamespace[namespace], page.Workloads[i].Images...)
	}
	scans, err := a.scansOf(ctx, byNamespace)
	if err != nil {
		return nil, page, err
	}
	stale := map[string]sets.Set[restv1.ScannerReference]{}
	for namespace := range byNamespace {
		stale[namespace] = seen.staleScanners(namespace)
	}
	items = []restv1.RunningWorkload{}
	for i := range page.Workloads {
		w := &page.Workloads[i]
		containers, images := sets.New[string](), sets.New[string]()
		for _, image := range w.Images {
			containers.Insert(image.Container)
			images.Insert(image.Key.String())
		}
		items = append(items, restv1.RunningWorkload{
			Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Containers: len(containers), Images: len(images),
			Findings: totalsOf(w.Totals), ToActOn: w.ToActOn, NotCovered: notCoveredOf(workloadImages(w.Namespace, w.Images, scans), stale[w.Namespace]),
		})
	}
	return items, page, nil
}
