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
	asked := store.WorkloadsQuery{Seen: seen.inStore(), Text: ptr.Deref(r.Params.Text, "")}
	if asked.Exceptions, _, err = a.exceptions().InForceIn(ctx, seen.scannedNamespaces()); err != nil {
		return nil, fmt.Errorf("reading exceptions: %w", err)
	}
	var page store.WorkloadsPage
	err = a.query(ctx, func() (err error) {
		page, err = a.Store.WorkloadsPage(ctx, asked, after, limitOf(r.Params.Limit))
		return err
	})
	if err != nil {
		return nil, err
	}
	byNamespace := map[string][]store.WorkloadImage{}
	for i := range page.Workloads {
		namespace := page.Workloads[i].Namespace
		byNamespace[namespace] = append(byNamespace[namespace], page.Workloads[i].Images...)
	}
	scans, err := a.scansOf(ctx, byNamespace)
	if err != nil {
		return nil, err
	}
	answer := restv1.ListRunningWorkloads200JSONResponse{Items: []restv1.RunningWorkload{}, Total: page.Total}
	for i := range page.Workloads {
		w := &page.Workloads[i]
		containers, images := sets.New[string](), sets.New[string]()
		for _, image := range w.Images {
			containers.Insert(image.Container)
			images.Insert(image.Key.String())
		}
		answer.Items = append(answer.Items, restv1.RunningWorkload{
			Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Containers: len(containers), Images: len(images),
			Findings: totalsOf(w.Totals), ToActOn: w.ToActOn, NotCovered: notCoveredOf(workloadImages(w.Namespace, w.Images, scans)),
		})
	}
	if answer.Coverage, err = a.coverageOf(ctx, seen); err != nil {
		return nil, err
	}
	if page.Next != nil {
		answer.Continue, err = encodeContinue(ctx, page.Next)
	}
	return answer, err
}
