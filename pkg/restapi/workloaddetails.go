package restapi

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxWorkloadFindings is the number of findings of a workload, which the OpenAPI document defines.
const maxWorkloadFindings = 100

// GetWorkload implements restv1.StrictServerInterface.
func (a operations) GetWorkload(ctx context.Context, r restv1.GetWorkloadRequestObject) (restv1.GetWorkloadResponseObject, error) {
	seen, err := a.sightOf(ctx, &r.Namespace)
	if err != nil {
		return nil, err
	}
	asked := store.WorkloadQuery{Namespace: r.Namespace, Kind: r.Kind, Name: r.Name}
	if asked.Exceptions, _, err = a.exceptions().InForce(ctx, r.Namespace); err != nil {
		return nil, fmt.Errorf("reading the exceptions of namespace %s: %w", r.Namespace, err)
	}
	var found store.WorkloadDetails
	err = a.query(ctx, func(ctx context.Context) (err error) {
		found, err = a.Store.Workload(ctx, asked, maxWorkloadFindings)
		return err
	})
	switch {
	case errors.Is(err, store.ErrTooManyCandidates):
		return nil, newProblem(restv1.ReasonTooLarge, "the images of %s %s have too many findings for one response: page through those of each image", r.Kind, r.Name)
	case err != nil:
		return nil, err
	case len(found.Images) == 0:
		return nil, newProblem(restv1.ReasonNotFound, "no scanner has an image of %s %q in namespace %s: it does not exist, has no running pod, or its images are excluded",
			r.Kind, r.Name, r.Namespace)
	}
	answer := restv1.GetWorkload200JSONResponse{
		Namespace: r.Namespace, Kind: r.Kind, Name: r.Name, Items: []restv1.WorkloadFinding{}, Total: found.Counts.Total() + found.Suppressed,
		Findings: totalsOf(store.Totals{Counts: found.Counts, Suppressed: found.Suppressed}),
	}
	for i := range found.Findings {
		answer.Items = append(answer.Items, workloadFindingOf(&found.Findings[i]))
	}
	scans, err := a.scansOf(ctx, map[string][]store.WorkloadImage{r.Namespace: found.Images})
	if err != nil {
		return nil, err
	}
	answer.Images = workloadImages(r.Namespace, found.Images, scans)
	answer.NotCovered = notCoveredOf(answer.Images, seen.staleScanners(r.Namespace))
	return answer, nil
}

func workloadFindingOf(f *store.WorkloadFinding) restv1.WorkloadFinding {
	return restv1.WorkloadFinding{
		ID: f.ID, Severity: restv1.Severity(f.Severity.String()), KnownExploited: f.KnownExploited, EPSS: f.EPSS, Fixable: f.Fixable(), FixVersions: f.FixVersions,
		Package: packageOf(f.Package), Containers: f.Containers, Exception: exceptionOf(f.Exception),
	}
}

// scannedImage identifies an ImageScan by what the store knows of it: the UID of its scanner, and its image.
type scannedImage struct{ namespace, scanner, digest, platform string }

// scansOf returns the ImageScans of images, which are given by namespace. It reads one namespace at a time: all at once would need much memory.
func (a operations) scansOf(ctx context.Context, images map[string][]store.WorkloadImage) (map[scannedImage]*v1alpha1.ImageScan, error) {
	known := map[scannedImage]*v1alpha1.ImageScan{}
	for namespace, ofNamespace := range images {
		wanted := sets.New[scannedImage]()
		for _, i := range ofNamespace {
			wanted.Insert(scannedImage{namespace, i.Scanner, i.Key.Digest, i.Key.Platform.String()})
		}
		var scans v1alpha1.ImageScanList
		if err := a.Reader.List(ctx, &scans, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing ImageScans: %w", err)
		}
		for i := range scans.Items {
			scan := &scans.Items[i]
			owner := metav1.GetControllerOf(scan)
			if owner == nil {
				continue
			}
			if i := (scannedImage{namespace, string(owner.UID), scan.Spec.Digest, scan.Spec.Platform}); wanted.Has(i) {
				kept := *scan // a pointer into the list would keep all of it
				known[i] = &kept
			}
		}
	}
	return known, nil
}

// workloadImages returns the images of a workload with their ImageScans. An image without one is pending.
func workloadImages(namespace string, found []store.WorkloadImage, known map[scannedImage]*v1alpha1.ImageScan) []restv1.WorkloadImage {
	images := []restv1.WorkloadImage{}
	for _, i := range found {
		item := restv1.WorkloadImage{Container: i.Container, Image: i.Reference, Digest: i.Key.Digest, Platform: i.Key.Platform.String(), Phase: restv1.PhasePending}
		if scan := known[scannedImage{namespace, i.Scanner, i.Key.Digest, i.Key.Platform.String()}]; scan != nil {
			details := imageScanOf(scan)
			item.ImageScan, item.Scanner, item.Phase, item.Findings = scan.Name, details.Scanner, details.Phase, details.Findings
			item.ScanTime, item.NotCovered = details.ScanTime, details.NotCovered
			if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil && item.Phase != restv1.PhaseScanned {
				item.ScanReason = ready.Reason
			}
		}
		images = append(images, item)
	}
	return images
}

// notCoveredOf counts the images without a result and those that no scanner analyses completely, and the scanners of images that are among those that
// are stale. An image counts once, as its best scan has it.
func notCoveredOf(images []restv1.WorkloadImage, stale sets.Set[restv1.ScannerReference]) (missing restv1.NotCovered) {
	type key struct{ digest, platform string }
	gaps, unscanned, scanners := map[key]sets.Set[string]{}, map[key]restv1.Phase{}, sets.New[restv1.ScannerReference]()
	for _, i := range images {
		scanners.Insert(i.Scanner)
		k := key{i.Digest, i.Platform}
		if i.Phase != restv1.PhaseScanned {
			if unscanned[k] != restv1.PhaseFailed {
				unscanned[k] = i.Phase
			}
			continue
		}
		notCovered := sets.New(i.NotCovered...)
		if others, known := gaps[k]; known {
			notCovered = notCovered.Intersection(others)
		}
		gaps[k] = notCovered
	}
	all := sets.New[string]()
	for _, names := range gaps {
		if len(names) > 0 {
			missing.PartlyAnalysed++
			all = all.Union(names)
		}
	}
	missing.Ecosystems, missing.StaleScanners = sets.List(all), len(scanners.Intersection(stale))
	for k, phase := range unscanned {
		switch _, scanned := gaps[k]; {
		case scanned:
		case phase == restv1.PhaseFailed:
			missing.Failed++
		default:
			missing.Pending++
		}
	}
	return missing
}
