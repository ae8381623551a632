package restapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// maxChanges is the number of changes of each kind, and maxChangesAge how long ago the first may be. The OpenAPI document defines both.
	maxChanges    = 100
	maxChangesAge = 90 * 24 * time.Hour
)

// ListChanges implements restv1.StrictServerInterface.
func (a operations) ListChanges(ctx context.Context, r restv1.ListChangesRequestObject) (restv1.ListChangesResponseObject, error) {
	switch age := a.Clock.Since(r.Params.Since); {
	case age < 0:
		return nil, invalidParameter("since", "it is in the future: now it is %s", a.Clock.Now().UTC().Format(time.RFC3339))
	case age > maxChangesAge:
		return nil, invalidParameter("since", "it is more than 90 days ago")
	}
	seen, err := a.sightOf(ctx, &r.Namespace)
	if err != nil {
		return nil, err
	}
	asked := store.ChangesQuery{Namespace: r.Namespace, Since: r.Params.Since}
	if asked.Exceptions, _, err = a.exceptions().InForce(ctx, r.Namespace); err != nil {
		return nil, fmt.Errorf("reading the exceptions of namespace %s: %w", r.Namespace, err)
	}
	if asked.EngineGaps, err = a.EngineGaps(ctx); err != nil {
		return nil, fmt.Errorf("reading what engines do not cover: %w", err)
	}
	var found store.NamespaceChanges
	err = a.query(ctx, func(ctx context.Context) (err error) {
		found, err = a.Store.NamespaceChanges(ctx, asked, maxChanges)
		return err
	})
	if errors.Is(err, store.ErrTooManyCandidates) {
		return nil, newProblem(restv1.ReasonTooLarge, "too many findings have changed since then: use a later time")
	}
	if err != nil {
		return nil, err
	}
	answer := restv1.ListChanges200JSONResponse{
		Items: []restv1.Change{}, New: found.Totals[diff.ChangeNew], FixAvailable: found.Totals[diff.ChangeFixAvailable], Fixed: found.Totals[diff.ChangeFixed],
		Unknown: append([]string{}, found.Unknown...),
	}
	for i := range found.Changes {
		c := &found.Changes[i]
		answer.Items = append(answer.Items, restv1.Change{
			Change: restv1.ChangeKind(c.Change), Time: c.At.UTC(), ID: c.ID, Severity: restv1.Severity(c.Severity.String()), KnownExploited: c.KnownExploited,
			Fixable: c.Fixable(), FixVersions: c.FixVersions, Package: packageOf(c.Package), Repository: c.Repository, Exception: exceptionOf(c.Exception),
		})
	}
	answer.Coverage, err = a.coverageOf(ctx, seen)
	return answer, err
}
