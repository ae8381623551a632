package inventory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// ImageState is the state of one image of a Scanner. Each image is in exactly one.
type ImageState string

// The states of an image. Metrics use them as labels.
const (
	ImageScanned  ImageState = "scanned"
	ImagePending  ImageState = "pending"
	ImageFailed   ImageState = "failed"
	ImageExcluded ImageState = "excluded"
)

// CoveredImage is one distinct image of a Scanner's pods.
type CoveredImage struct {
	// ID is the image's key, or its reference while it has no digest.
	ID    string
	State ImageState
	// Reason of a failed image, and of a pending one where waiting alone may not help; empty if there is none. Suspended is the reason of a
	// scanned or pending image whose ImageScan has not been reconciled since its Scanner was suspended.
	Reason string
	// Since is when a pending image began to wait for a result, a failed one first failed, or a scanned one's Ready condition changed last; zero
	// if that is not known.
	Since time.Time
	// Report is the age of the image's report. An image that is not scanned may have one from before.
	Report store.ReportAge
	// NotCovered lists what the report of a scanned image does not cover.
	NotCovered []string
	// Name is a reference that messages show.
	Name string
	// Repositories are those by which running containers name the image. Empty while it has no digest.
	Repositories []string
	// Receivers has one entry for each distinct set of receivers that the image's pods name, in the format of store.Workload. Empty while
	// the image has no digest.
	Receivers []string
}

// Coverage has the images that a Scanner is responsible for, ordered by ID.
type Coverage struct {
	// Running has each image of a running pod once.
	Running []CoveredImage
	// Recent has the images that no pod runs now and that are still in use, since their last pods ended within the retention.
	Recent []CoveredImage
}

// Coverage returns the coverage of a Scanner. An image counts as scanned only if the store has the engine's report: after a loss of the store
// or a change of the engine, ImageScans show the earlier result for a while. engine is empty if the operator runs without the Scanner's engine.
func (i *Inventory) Coverage(ctx context.Context, scanner *v1alpha1.Scanner, engine string) (Coverage, error) {
	reports, err := i.Store.ReportAges(ctx, string(scanner.UID), engine)
	if err != nil {
		return Coverage{}, err
	}
	scans, err := i.imageScans(ctx, scanner)
	if err != nil {
		return Coverage{}, err
	}
	running, err := i.runningCoverage(ctx, scanner, scans, reports)
	if err != nil {
		return Coverage{}, err
	}
	ended, err := i.Store.RecentImages(ctx, string(scanner.UID), engine)
	return Coverage{Running: running, Recent: recentCoverage(scanner, ended, scans, reports, running)}, err
}

// runningCoverage returns the images of a Scanner's running pods.
func (i *Inventory) runningCoverage(
	ctx context.Context, scanner *v1alpha1.Scanner, scans map[image.Key]*v1alpha1.ImageScan, reports map[image.Key]store.ReportAge,
) ([]CoveredImage, error) {
	pods, err := i.activePods(ctx, scanner, client.UnsafeDisableDeepCopy) // neither pods nor ImageScans are modified
	if err != nil {
		return nil, err
	}
	full, err := i.IsFull(ctx, scanner.Namespace)
	if err != nil {
		return nil, err
	}
	ofNamespace, err := namespaceReceivers(ctx, i.Client, scanner.Namespace)
	if err != nil {
		return nil, err
	}
	covered := map[string]CoveredImage{}
	waiting := map[string]CoveredImage{}
	resolvedNames := map[string]bool{}
	for p := range pods {
		running, unresolved, known, err := i.RunningImages(ctx, &pods[p])
		if err != nil {
			return nil, err
		}
		if !known {
			for name, ref := range ContainerImages(&pods[p]) {
				unresolved = append(unresolved, UnresolvedImage{Container: name, Image: ref, Reason: v1alpha1.ReasonNodeUnknown})
			}
		}
		for _, img := range running {
			resolvedNames[img.Reference.String()] = true
			state := stateOf(scanner, img, scans[img.Key], reports)
			if full && scans[img.Key] == nil && state.State == ImagePending {
				state.State, state.Reason = ImageFailed, v1alpha1.ReasonTooManyImages
			}
			state.Receivers = []string{joinReceivers(receiversOf(&pods[p], ofNamespace))}
			mergeImage(covered, state)
		}
		for _, img := range unresolved {
			state := stateOfUnresolved(scanner, img)
			state.Since = pods[p].CreationTimestamp.Time
			mergeImage(waiting, state)
		}
	}
	for _, img := range waiting {
		// If another pod runs the same image, it is counted under its digest.
		if img.State == ImageFailed || !resolvedNames[img.Name] {
			covered[img.ID] = img
		}
	}
	return slices.SortedFunc(maps.Values(covered), compareByID), nil
}

func compareByID(a, b CoveredImage) int { return strings.Compare(a.ID, b.ID) }

// recentCoverage returns a Scanner's images that no pod runs now and whose last pods ended within its retention. It leaves out images in
// running, which the store may not have recorded yet.
func recentCoverage(
	scanner *v1alpha1.Scanner, images []store.RecentImage, scans map[image.Key]*v1alpha1.ImageScan, reports map[image.Key]store.ReportAge, running []CoveredImage,
) (recent []CoveredImage) {
	for _, img := range images {
		ref, err := image.ParseReference(img.Reference)
		if err != nil {
			ref.Repository = img.Repositories[0]
		}
		state := stateOf(scanner, RunningImage{PodImage{Reference: ref}, img.Key}, scans[img.Key], reports)
		state.Repositories, state.Receivers = img.Repositories, img.Receivers
		if state.State != ImageExcluded && !slices.ContainsFunc(running, func(r CoveredImage) bool { return r.ID == state.ID }) {
			recent = append(recent, state)
		}
	}
	slices.SortFunc(recent, compareByID)
	return recent
}

// precedence decides between the states that several pods give one image, independent of the order of pods. An image is scanned even if
// another pod names it by an excluded reference. It is failed even if another node still tries to pull it.
var precedence = map[ImageState]int{ImageExcluded: 0, ImagePending: 1, ImageScanned: 2, ImageFailed: 3}

// mergeImage merges an image into covered. It keeps the state with the highest precedence, the first of the names and the union of the
// repositories and receivers of that state.
func mergeImage(covered map[string]CoveredImage, img CoveredImage) {
	known, found := covered[img.ID]
	switch {
	case !found || precedence[known.State] < precedence[img.State]:
		covered[img.ID] = img
	case known.State == img.State:
		known.Name, known.Reason = min(known.Name, img.Name), min(known.Reason, img.Reason)
		if known.Since.IsZero() || !img.Since.IsZero() && img.Since.Before(known.Since) {
			known.Since = img.Since
		}
		known.Repositories = union(known.Repositories, img.Repositories)
		known.Receivers = union(known.Receivers, img.Receivers)
		covered[img.ID] = known
	}
}

// union returns the distinct elements of both lists, sorted.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

func stateOf(scanner *v1alpha1.Scanner, img RunningImage, scan *v1alpha1.ImageScan, reports map[image.Key]store.ReportAge) CoveredImage {
	report, reported := reports[img.Key]
	state := CoveredImage{
		ID: img.Key.String(), Name: img.Reference.String(), State: ImagePending, Repositories: []string{img.Reference.Repository},
		Report: report,
	}
	switch {
	case IsExcluded(scanner, img.Reference):
		state.State = ImageExcluded
	case scan == nil:
	case scan.Status.Phase == v1alpha1.PhaseScanned && reported:
		state.State, state.NotCovered = ImageScanned, scan.Status.NotCovered
		if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			state.Since = ready.LastTransitionTime.Time
			if ready.Reason == v1alpha1.ReasonSuspended {
				state.Reason = ready.Reason
			}
		}
	case scan.Status.Attempts > 0: // also while it is tried again
		state.State, state.Reason, state.Since = ImageFailed, ReadyReason(scan), failedSince(scan)
	default:
		state.Since = unreadySince(scan)
		if ReadyReason(scan) == v1alpha1.ReasonSuspended {
			state.Reason = v1alpha1.ReasonSuspended
		}
	}
	return state
}

// failedSince returns when the first attempt failed after the last success.
func failedSince(scan *v1alpha1.ImageScan) time.Time {
	if scan.Status.FailedSinceTime != nil {
		return scan.Status.FailedSinceTime.Time
	}
	return unreadySince(scan)
}

// unreadySince returns when an image began to wait for a result.
func unreadySince(scan *v1alpha1.ImageScan) time.Time {
	if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		return ready.LastTransitionTime.Time
	}
	return scan.CreationTimestamp.Time
}

func stateOfUnresolved(scanner *v1alpha1.Scanner, img UnresolvedImage) CoveredImage {
	state := CoveredImage{ID: img.Image, Name: img.Image, State: ImagePending}
	if ref, err := image.ParseReference(img.Image); err == nil {
		state.ID, state.Name = ref.String(), ref.String()
		if IsExcluded(scanner, ref) {
			state.State = ImageExcluded
			return state
		}
	}
	state.Reason = img.Reason
	if img.Failed {
		state.State = ImageFailed
	}
	return state
}

// ReadyReason returns the reason of an ImageScan's condition Ready; empty if it has none.
func ReadyReason(scan *v1alpha1.ImageScan) string {
	if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return ""
}
