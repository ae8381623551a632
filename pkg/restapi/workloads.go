package restapi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ListWorkloads implements restv1.StrictServerInterface.
func (a operations) ListWorkloads(ctx context.Context, r restv1.ListWorkloadsRequestObject) (restv1.ListWorkloadsResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	var after store.RunCursor
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	id, isID := finding.ParseID(r.ID, a.Clock.Now())
	page, err := a.runsPage(ctx, seen, id, after, limitOf(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	coverage, err := a.coverageOf(ctx, seen)
	if err != nil {
		return nil, err
	}
	answer := restv1.ListWorkloads200JSONResponse{
		ID: id, Items: []restv1.Workload{}, Total: page.Total, AllNamespaces: coverage.AllNamespaces, Scanners: coverage.Scanners, Scanned: coverage.Scanned,
		Excluded: coverage.Excluded, NotCovered: coverage.NotCovered,
	}
	if answer.Known, err = a.knownOf(ctx, seen, id, isID, page.Total); err != nil {
		return nil, err
	}
	for _, run := range page.Runs {
		answer.Items = append(answer.Items, workloadOf(run))
	}
	if page.Next != nil {
		answer.Continue, err = encodeContinue(ctx, page.Next)
	}
	return answer, err
}

// knownOf returns whether the vulnerability data have an id that a number of running packages has. An id that was ever found is known. Of all others,
// the data of each engine that scans what the caller sees must say whether it has them. An id that is known may be missing in results of earlier data.
func (a operations) knownOf(ctx context.Context, seen sight, id string, isID bool, runs int) (known restv1.VulnerabilityKnown, err error) {
	err = a.query(ctx, func(ctx context.Context) error {
		if known, err = a.found(ctx, seen, id, isID, runs); err != nil || known != restv1.KnownFound {
			return err
		}
		earlier, err := a.Store.HasResultsOfEarlierData(ctx, seen.inStore())
		if earlier {
			known = restv1.KnownNotMatched
		}
		return err
	})
	return known, err
}

// found is knownOf, whatever data the results of images are of.
func (a operations) found(ctx context.Context, seen sight, id string, isID bool, runs int) (restv1.VulnerabilityKnown, error) {
	if runs > 0 {
		return restv1.KnownFound, nil
	}
	v, err := a.Store.Vulnerability(ctx, seen.inStore(), id)
	switch {
	case err != nil:
		return "", err
	case len(v.IDs) > 0:
		return restv1.KnownFound, nil
	case !isID:
		return restv1.KnownNotAnID, nil
	}
	return a.inData(ctx, seen.engines(), id)
}

// inData returns whether the data of at least one of the engines can find an id. It is not checked if one of them does not say.
func (a operations) inData(ctx context.Context, engines []string, id string) (known restv1.VulnerabilityKnown, err error) {
	if len(engines) == 0 {
		return restv1.KnownNotChecked, nil
	}
	known = restv1.KnownNot
	for _, engine := range engines {
		finds, listed, err := a.Store.FindsVulnerability(ctx, engine, id)
		switch {
		case err != nil:
			return "", err
		case !listed:
			return restv1.KnownNotChecked, nil
		case finds:
			known = restv1.KnownFound
		}
	}
	return known, nil
}

// runsPage reads a page of the containers that run an image with a vulnerability.
func (a operations) runsPage(ctx context.Context, seen sight, id string, after store.RunCursor, limit int) (page store.RunsPage, err error) {
	asked := store.RunsQuery{ID: id, All: seen.all, Namespaces: seen.namespaces}
	if asked.Exceptions, err = a.exceptions().AllNamespaces(ctx); err != nil {
		return page, fmt.Errorf("reading exceptions: %w", err)
	}
	err = a.query(ctx, func(ctx context.Context) (err error) {
		page, err = a.Store.RunsPage(ctx, asked, after, limit)
		return err
	})
	return page, err
}

// countNotCovered counts the Scanners in the namespaces that a caller sees, and their images that the answer knows nothing about.
func countNotCovered(all []v1alpha1.Scanner, seen visibility) (scanners, excluded int, missing restv1.NotCovered) {
	for i := range all {
		if !seen.includes(all[i].Namespace) {
			continue
		}
		scanners++
		status := &all[i].Status
		excluded += int(status.Images.Excluded)
		missing.Pending += int(status.Images.Pending)
		missing.Failed += int(status.Images.Failed)
		if status.ObservedGeneration == 0 {
			missing.NewScanners++
		}
		if v1alpha1.IsStale(&all[i]) {
			missing.StaleScanners++
		}
	}
	return scanners, excluded, missing
}

// countScanned counts the scanned images in the namespaces that a caller sees, and those of them that no engine analyses completely. It adds the
// ecosystems that at least one of these images was not analysed for by any of its engines.
// It reads one namespace at a time: all at once would need much memory.
func (a operations) countScanned(ctx context.Context, seen sight, coverage *restv1.Coverage) error {
	all := sets.New[string]()
	for _, namespace := range seen.scannedNamespaces() {
		var scans v1alpha1.ImageScanList
		if err := a.Reader.List(ctx, &scans, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing ImageScans: %w", err)
		}
		type image struct{ digest, platform string }
		missing := map[image]sets.Set[string]{}
		for i := range scans.Items {
			scan := &scans.Items[i]
			// Images without a result count as pending or failed. Images without pods run nowhere.
			if phaseOf(scan) != restv1.PhaseScanned || scan.Status.UnusedSinceTime != nil {
				continue
			}
			key, notCovered := image{scan.Spec.Digest, scan.Spec.Platform}, sets.New(scan.Status.NotCovered...)
			if others, known := missing[key]; known {
				notCovered = notCovered.Intersection(others)
			}
			missing[key] = notCovered
		}
		coverage.Scanned += len(missing)
		for _, names := range missing {
			if len(names) > 0 {
				coverage.NotCovered.PartlyAnalysed++
				all.Insert(names.UnsortedList()...)
			}
		}
	}
	coverage.NotCovered.Ecosystems = sets.List(all)
	return nil
}

func workloadOf(run store.Run) restv1.Workload {
	f, engines := run.Finding, make([]string, len(run.Engines))
	for i, engine := range run.Engines {
		engines[i] = engineNameOf(engine)
	}
	return restv1.Workload{
		Namespace: run.Namespace, Kind: run.Kind, Name: run.Name, Container: run.Container, Image: run.Reference,
		Digest: run.Key.Digest, Platform: run.Key.Platform.String(), Vulnerability: f.ID,
		Severity: restv1.Severity(f.Severity.String()), KnownExploited: f.KnownExploited, Package: packageOf(f.Package),
		FixState: f.FixState, Fixable: f.Fixable(), FixVersions: f.FixVersions, Engines: engines,
		Exception: exceptionOf(run.Exception),
	}
}
