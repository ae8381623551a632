package restapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// maxRunningImages is how many images one request reads, which the OpenAPI document defines.
	maxRunningImages = 100
	// fullRunningPage is the size of the findings' texts from which on no further image is read, in bytes. The findings of one image have their
	// own bound.
	fullRunningPage = 4 << 20
	// maxRunningTime is the time after which no further image is read. Filters that few findings pass read many images with many findings for a
	// page. It is far below requestTimeout, after which the caller would get nothing.
	maxRunningTime = 5 * time.Second
)

// runningPosition is the position of a page: the image that it begins with, by its ImageScan, the report on that image, and the position in the
// findings of that report.
type runningPosition struct {
	Store     string `json:"store"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Report is empty for that of the engine, and else as in announcedReports.
	Report string              `json:"report,omitempty"`
	Mark   store.FindingCursor `json:"mark"`
}

// ListRunningFindings implements restv1.StrictServerInterface.
func (a operations) ListRunningFindings(ctx context.Context, r restv1.ListRunningFindingsRequestObject) (restv1.ListRunningFindingsResponseObject, error) {
	seen, err := a.sightOf(ctx, r.Params.Namespace)
	if err != nil {
		return nil, err
	}
	place := runningPosition{Store: a.Store.ID()}
	if err := decodeContinue(ctx, r.Params.Continue, &place); err != nil {
		return nil, err
	}
	if place.Store != a.Store.ID() {
		return nil, resultsReplaced()
	}
	answer := restv1.ListRunningFindings200JSONResponse{Items: []restv1.RunningFinding{}}
	if answer.Coverage, err = a.coverageOf(ctx, seen); err != nil {
		return nil, err
	}
	read := a.newRunningReader(r.Params, limitOf(r.Params.Limit))
	began, images := a.Clock.Now(), 0
	var next *runningPosition
	for scan, err := range a.runningScans(ctx, seen, r.Params, place) {
		if err != nil {
			return nil, err
		}
		from := runningPosition{Store: place.Store, Namespace: scan.Namespace, Name: scan.Name}
		if scan.Namespace == place.Namespace && scan.Name == place.Name {
			from = place
		}
		if images == maxRunningImages || images > 0 && a.Clock.Since(began) >= maxRunningTime {
			next = &from
			break
		}
		images++
		if next, err = read.image(ctx, scan, from); err != nil {
			return nil, err
		}
		if next != nil {
			break
		}
	}
	answer.Items = read.items
	if next != nil {
		answer.Continue, err = encodeContinue(ctx, *next)
	}
	return answer, err
}

// runningScans iterates over the ImageScans from a position on that pass the parameters and whose images run, in order. It reads one namespace at a
// time.
func (a operations) runningScans(
	ctx context.Context, seen sight, p restv1.ListRunningFindingsParams, from runningPosition,
) iter.Seq2[*v1alpha1.ImageScan, error] {
	return func(yield func(*v1alpha1.ImageScan, error) bool) {
		isRunBy, err := a.runBy(ctx, seen, p.Workload)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, namespace := range seen.scannedNamespaces() {
			if namespace < from.Namespace {
				continue
			}
			var list v1alpha1.ImageScanList
			if err := a.Reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
				yield(nil, fmt.Errorf("listing ImageScans: %w", err))
				return
			}
			var scans []*v1alpha1.ImageScan
			for i := range list.Items {
				scan := &list.Items[i]
				isBefore := namespace == from.Namespace && scan.Name < from.Name
				if !isBefore && scan.Status.UnusedSinceTime == nil && isImage(scan, ptr.Deref(p.Image, "")) && isRunBy(scan) {
					scans = append(scans, scan)
				}
			}
			slices.SortFunc(scans, func(x, y *v1alpha1.ImageScan) int { return cmp.Compare(x.Name, y.Name) })
			for _, scan := range scans {
				if !yield(scan, nil) {
					return
				}
			}
		}
	}
}

// isImage reports whether a text is in a reference of an image or in its digest.
func isImage(scan *v1alpha1.ImageScan, text string) bool {
	return strings.Contains(scan.Spec.Digest, text) || slices.ContainsFunc(scan.Spec.References, func(r string) bool { return strings.Contains(r, text) })
}

// runBy returns a function that reports whether a workload runs the image of an ImageScan. The workload is given by its name, or by its kind and
// name; nil for any. The store knows all workloads of an image, and an ImageScan the first ones.
func (a operations) runBy(ctx context.Context, seen sight, workload *string) (runs func(*v1alpha1.ImageScan) bool, err error) {
	if workload == nil {
		return func(*v1alpha1.ImageScan) bool { return true }, nil
	}
	kind, name, isBoth := strings.Cut(*workload, "/")
	if !isBoth {
		kind, name = "", *workload
	}
	run := sets.New[scannedImage]()
	err = a.query(ctx, func(ctx context.Context) error {
		images, err := a.Store.ImagesRunBy(ctx, seen.inStore(), kind, name)
		for _, i := range images {
			run.Insert(scannedImage{i.Namespace, i.Scanner, i.Key.Digest, i.Key.Platform.String()})
		}
		return err
	})
	return func(scan *v1alpha1.ImageScan) bool {
		owner := metav1.GetControllerOf(scan)
		return owner != nil && run.Has(scannedImage{scan.Namespace, string(owner.UID), scan.Spec.Digest, scan.Spec.Platform})
	}, err
}

// runningReader reads the findings of images that pass a filter into items, at most limit.
type runningReader struct {
	operations
	filter   store.FindingFilter
	outdated *restv1.Outdated
	// inForce are the exceptions by namespace, once they have been read.
	inForce map[string]exception.Set
	items   []restv1.RunningFinding
	limit   int
	bytes   int // of the items' texts
}

func (a operations) newRunningReader(p restv1.ListRunningFindingsParams, limit int) *runningReader {
	return &runningReader{operations: a, filter: filterOf(restv1.ListFindingsParams{
		MinSeverity: p.MinSeverity, Severity: p.Severity, Fixable: p.Fixable, KnownExploited: p.KnownExploited, Package: p.Package, ID: p.ID, Text: p.Text,
		FirstSeenSince: p.FirstSeenSince, Suppressed: p.Suppressed,
	}), outdated: p.Outdated, inForce: map[string]exception.Set{}, items: []restv1.RunningFinding{}, limit: limit}
}

func (r *runningReader) isFull() bool { return len(r.items) >= r.limit || r.bytes >= fullRunningPage }

// image reads the findings of an image from a position on: those of the engine, and those of the sources that its scanner announces. next is the
// position of what is left; nil if nothing is. An image without a result has no findings.
func (r *runningReader) image(ctx context.Context, scan *v1alpha1.ImageScan, from runningPosition) (next *runningPosition, err error) {
	if r.isFull() {
		return &from, nil
	}
	found, err := r.locateScan(ctx, scan)
	if isNotScanned(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	reports := announcedReports(&found)
	switch err := found.requireReport(r.outdated); {
	case err == nil:
		reports[""] = found.Subject
	case !isNotScanned(err):
		return nil, err
	}
	filter := r.filter
	if filter.Exceptions.Exceptions, err = r.inForceIn(ctx, scan.Namespace); err != nil {
		return nil, err
	}
	filter.Exceptions.Images = found.imageNames()
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		switch cmp.Compare(name, from.Report) {
		case -1:
			continue
		case 1:
			from.Report, from.Mark = name, store.FindingCursor{}
		}
		if r.isFull() {
			return &from, nil
		}
		page, err := r.page(ctx, reports[name], filter, from.Mark)
		if err != nil {
			return nil, err
		}
		for _, f := range page.Findings {
			r.items = append(r.items, runningFindingOf(scan, engineNameOf(reports[name].Engine), f))
			r.bytes += f.TextBytes()
		}
		if page.Next != nil {
			from.Mark = *page.Next
			return &from, nil
		}
	}
	return nil, nil
}

// isNotScanned reports whether an error is the refusal of an image without a result.
func isNotScanned(err error) bool {
	var refused *problem
	return errors.As(err, &refused) && (refused.Reason == restv1.ReasonNotScanned || refused.Reason == restv1.ReasonNotFound)
}

// announcedReports returns the reports that the sources which the scanner of an image announces can have on the image, by names that are in order.
func announcedReports(found *result) map[string]store.Subject {
	reports := map[string]store.Subject{}
	for _, source := range found.scanner.Settings().AnnouncedSources() {
		for _, platform := range []string{"", found.key.Platform.String()} {
			k := store.ExternalKey{Namespace: found.scan.Namespace, Digest: found.key.Digest, Source: source, Platform: platform}
			reports[source+" "+platform] = k.Subject()
		}
	}
	return reports
}

// page returns findings of a report. If what comes before the position has changed, it begins with the first finding. A report that does not exist
// has none.
func (r *runningReader) page(ctx context.Context, of store.Subject, filter store.FindingFilter, from store.FindingCursor) (page store.FindingPage, err error) {
	err = r.query(ctx, func(ctx context.Context) (err error) {
		page, err = r.Store.FindingsPage(ctx, of, filter, from, r.limit-len(r.items))
		if errors.Is(err, store.ErrChanged) {
			page, err = r.Store.FindingsPage(ctx, of, filter, store.FindingCursor{}, r.limit-len(r.items))
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return page, err
}

// inForceIn returns the exceptions that are in force in a namespace.
func (r *runningReader) inForceIn(ctx context.Context, namespace string) (inForce exception.Set, err error) {
	inForce, known := r.inForce[namespace]
	if known {
		return inForce, nil
	}
	if inForce, _, err = r.exceptions().InForce(ctx, namespace); err != nil {
		return inForce, fmt.Errorf("reading the exceptions of namespace %s: %w", namespace, err)
	}
	r.inForce[namespace] = inForce
	return inForce, nil
}

func runningFindingOf(scan *v1alpha1.ImageScan, engine string, f store.TrackedFinding) restv1.RunningFinding {
	item := restv1.RunningFinding{
		Namespace: scan.Namespace, ImageScan: scan.Name, Scanner: ownerOf(scan), Image: scan.Spec.Digest, Digest: scan.Spec.Digest, Platform: scan.Spec.Platform,
		Workloads: append([]string{}, scan.Status.Workloads...), WorkloadCount: int(scan.Status.WorkloadCount), Engine: engine, Finding: findingOf(f),
	}
	if len(scan.Spec.References) > 0 {
		item.Image = scan.Spec.References[0]
	}
	return item
}
