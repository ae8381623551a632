package restapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/action"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// overviewActions is how many actions an overview has, and of how many repositories it takes them.
	overviewActions = 20
	// repositoryActions is how many of them may be of one repository, so that one with many does not hide the others.
	repositoryActions = 3
	// endingSoon is the time within which an exception ends soon.
	endingSoon = 7 * 24 * time.Hour
)

// GetOverview implements restv1.StrictServerInterface.
func (a operations) GetOverview(ctx context.Context, r restv1.GetOverviewRequestObject) (restv1.GetOverviewResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	answer := restv1.GetOverview200JSONResponse{Data: a.dataInUse(seen)}
	if answer.Coverage, err = a.coverageOf(ctx, seen); err != nil {
		return nil, err
	}
	if answer.Health, err = a.healthOf(ctx, seen); err != nil {
		return nil, err
	}
	if answer.Findings, err = a.countFindings(ctx, seen); err != nil {
		return nil, err
	}
	page, err := a.actionsPage(ctx, seen, store.ActionCursor{}, overviewActions)
	if err != nil {
		return nil, err
	}
	answer.Actions, answer.ActionRepositories = mostUrgent(page.Repositories), page.Total
	if answer.History, err = a.historyOf(ctx, seen, maxHistoryDays); err != nil {
		return nil, err
	}
	answer.ExceptionsEndingSoon, err = a.countEndingSoon(ctx, seen)
	return answer, err
}

// mostUrgent returns the most urgent actions of some repositories, each as an item of its own. The actions of each repository are in order.
func mostUrgent(repositories []store.RepositoryActions) []restv1.RepositoryActions {
	type single struct {
		of     *store.RepositoryActions
		action int
	}
	var urgent []single
	for r := range repositories {
		for i := range min(len(repositories[r].Actions), repositoryActions) {
			urgent = append(urgent, single{&repositories[r], i})
		}
	}
	slices.SortStableFunc(urgent, func(x, y single) int {
		return action.Compare(x.of.Actions[x.action].Counts, y.of.Actions[y.action].Counts)
	})
	answer := []restv1.RepositoryActions{}
	for _, one := range urgent[:min(len(urgent), overviewActions)] {
		item := repositoryActionsOf(*one.of)
		item.Actions = item.Actions[one.action : one.action+1]
		answer = append(answer, item)
	}
	return answer
}

// countFindings adds up the findings of the Scanners, and of the ClusterScanners in the namespaces that the caller sees. A ClusterScanner's status
// has the numbers only for all namespaces together, which other callers must not learn.
func (a operations) countFindings(ctx context.Context, seen sight) (sum restv1.FindingCounts, err error) {
	for i := range seen.scanners {
		if seen.includes(seen.scanners[i].Namespace) {
			addCounts(&sum, countsOf(seen.scanners[i].Status.Findings))
		}
	}
	for _, scanner := range seen.clusterWide {
		visible := slices.DeleteFunc(slices.Clone(scanner.covered), func(namespace string) bool { return !seen.includes(namespace) })
		switch {
		case len(visible) == 0:
			continue
		case len(visible) == len(scanner.covered):
			addCounts(&sum, countsOf(scanner.Status.Findings))
			continue
		}
		exceptions, _, err := a.exceptions().InForceIn(ctx, visible)
		if err != nil {
			return sum, fmt.Errorf("reading exceptions: %w", err)
		}
		var totals store.Totals
		err = a.query(ctx, func(ctx context.Context) (err error) {
			totals, err = a.Store.TotalsIn(ctx, string(scanner.UID), visible, exceptions)
			return err
		})
		if err != nil {
			return sum, err
		}
		addCounts(&sum, totalsOf(totals))
	}
	return sum, nil
}

func totalsOf(t store.Totals) restv1.FindingCounts {
	of := t.Counts.Of
	return restv1.FindingCounts{
		Critical: of(finding.Critical), High: of(finding.High), Medium: of(finding.Medium), Low: of(finding.Low), Negligible: of(finding.Negligible),
		Unknown: of(finding.Unknown), Fixable: t.Counts.Fixable, KnownExploited: t.Counts.KnownExploited, Suppressed: t.Suppressed,
	}
}

func addCounts(sum *restv1.FindingCounts, more restv1.FindingCounts) {
	sum.Critical += more.Critical
	sum.High += more.High
	sum.Medium += more.Medium
	sum.Low += more.Low
	sum.Negligible += more.Negligible
	sum.Unknown += more.Unknown
	sum.Fixable += more.Fixable
	sum.KnownExploited += more.KnownExploited
	sum.Suppressed += more.Suppressed
}

// dataInUse returns the oldest data of each engine that a visible scanner uses, ordered by engine.
func (a operations) dataInUse(seen sight) []restv1.EngineData {
	oldest := map[string]*v1alpha1.VulnerabilityData{}
	seen.eachScanner(func(settings *v1alpha1.ScanSettings, status *v1alpha1.ScannerStatus) {
		engine, data := string(settings.Backend.Type), status.VulnerabilityData
		if data != nil && (oldest[engine] == nil || data.BuildTime.Before(&oldest[engine].BuildTime)) {
			oldest[engine] = data
		}
	})
	all := []restv1.EngineData{}
	for engine, data := range oldest {
		d := a.dataOf(data)
		all = append(all, restv1.EngineData{Engine: engine, BuildTime: d.BuildTime, AgeSeconds: d.AgeSeconds, Tool: d.Tool})
	}
	slices.SortFunc(all, func(x, y restv1.EngineData) int { return cmp.Compare(x.Engine, y.Engine) })
	return all
}

// countEndingSoon counts the exceptions in force in the namespaces that the caller sees that end soon.
func (a operations) countEndingSoon(ctx context.Context, seen sight) (n int, err error) {
	set, _, err := a.exceptions().InForceIn(ctx, seen.scannedNamespaces())
	if err != nil {
		return 0, fmt.Errorf("reading exceptions: %w", err)
	}
	before := a.Clock.Now().Add(endingSoon)
	for _, e := range set.All() {
		if !e.Expires.IsZero() && e.Expires.Before(before) {
			n++
		}
	}
	return n, nil
}
