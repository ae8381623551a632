package restapi

import (
	"context"

	openapitypes "github.com/oapi-codegen/runtime/types"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// maxHistoryDays is how many days a history has at most, and by default. The OpenAPI document defines it.
const maxHistoryDays = 90

// GetHistory implements restv1.StrictServerInterface.
func (a operations) GetHistory(ctx context.Context, r restv1.GetHistoryRequestObject) (restv1.GetHistoryResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	days, err := a.historyOf(ctx, seen, ptr.Deref(r.Params.Days, maxHistoryDays))
	return restv1.GetHistory200JSONResponse{Items: days}, err
}

// historyOf returns what the namespaces that a caller sees had on each of the last days.
func (a operations) historyOf(ctx context.Context, seen sight, days int) ([]restv1.DayOfHistory, error) {
	answer := []restv1.DayOfHistory{}
	err := a.query(ctx, func(ctx context.Context) error {
		found, err := a.Store.History(ctx, seen.inStore(), days)
		for _, d := range found {
			answer = append(answer, restv1.DayOfHistory{
				Day: openapitypes.Date{Time: d.Day}, ToActOn: d.ToActOn, KnownExploited: d.KnownExploited, Critical: d.Critical, High: d.High,
				Images: d.Images, Scanned: d.Scanned,
			})
		}
		return err
	})
	return answer, err
}
