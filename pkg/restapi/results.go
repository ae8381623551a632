package restapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// result is an ImageScan and the location of its results in the store.
type result struct {
	scan    *v1alpha1.ImageScan
	scanner v1alpha1.GenericScanner
	key     image.Key
	store.Location
}

// locate returns an ImageScan's results. It trusts the ImageScan only where the store agrees: the ImageScan's Scanner or ClusterScanner must have the image there.
// A user who may write ImageScans could name any digest or owner in one.
func (a operations) locate(ctx context.Context, namespace, name string) (result, error) {
	scan := &v1alpha1.ImageScan{}
	if err := a.getObject(ctx, resourceImageScans, namespace, name, scan); err != nil {
		return result{}, err
	}
	return a.locateScan(ctx, scan)
}

// locateScan is locate for an ImageScan that the caller may read.
func (a operations) locateScan(ctx context.Context, scan *v1alpha1.ImageScan) (result, error) {
	found, namespace, name := result{scan: scan}, scan.Namespace, scan.Name
	owner := found.scan.Spec.ScannerRef
	scanner, err := inventory.ReadScanner(ctx, a.Reader, inventory.OwnerName(found.scan))
	if err != nil {
		return result{}, fmt.Errorf("reading %s %s of ImageScan %s/%s: %w", owner.Kind, owner.Name, namespace, name, err)
	}
	if scanner == nil || !metav1.IsControlledBy(found.scan, scanner) {
		return result{}, newProblem(restv1.ReasonNotFound, "the %s %q of ImageScan %s/%s does not exist any more", owner.Kind, owner.Name, namespace, name)
	}
	found.scanner = scanner
	platform, err := image.ParsePlatform(found.scan.Spec.Platform)
	if err != nil {
		return result{}, found.notScanned("its platform cannot be read")
	}
	found.key = image.Key{Digest: found.scan.Spec.Digest, Platform: platform}
	err = a.query(ctx, func(ctx context.Context) (err error) {
		found.Location, err = a.Store.Locate(ctx, string(scanner.GetUID()), namespace, found.key)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return result{}, found.notScanned("the image has no result yet")
	}
	return found, err
}

// requireReport returns a refusal unless there is a report. After a failed attempt, an older report counts only if the caller asks for outdated
// results: an old empty list would look like a clean image.
func (r *result) requireReport(outdated *restv1.Outdated) error {
	switch {
	case r.Report == nil:
		return r.notScanned("there is no result yet")
	case phaseOf(r.scan) == restv1.PhaseFailed && !ptr.Deref(outdated, false):
		return r.notScanned("the last attempt failed; outdated=true returns the result of " + r.Report.MatchedAt.Format(time.RFC3339))
	}
	return nil
}

// notScanned returns the refusal for a missing result, with the image's phase and the reason and message of its condition Ready.
func (r *result) notScanned(what string) *problem {
	detail := fmt.Sprintf("%s: phase %s", what, phaseOf(r.scan))
	ready := meta.FindStatusCondition(r.scan.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil {
		detail += ", " + ready.Reason
		if ready.Message != "" {
			detail += ": " + ready.Message
		}
	}
	p := newProblem(restv1.ReasonNotScanned, "%s", detail)
	p.Phase = phaseOf(r.scan)
	if ready != nil {
		p.ScanReason = ready.Reason
	}
	if next := r.scan.Status.NextAttemptTime; next != nil {
		p.NextAttemptTime = next.UTC()
	}
	return p
}

// reference returns one reference by which pods name the image; may be empty.
func (r *result) reference() string {
	if len(r.scan.Spec.References) == 0 {
		return ""
	}
	return r.scan.Spec.References[0]
}
