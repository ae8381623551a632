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

// CoveredImage is one distinct image of a Scanner's pods.
type CoveredImage struct {
	// ID is the image's key, or its reference while it has no digest.
	ID    string
	State image.State
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
	// UnknownReceivers are the receivers that running pods name and that no Scanner responsible for the pod has. Each has one object that names
	// it, in the form kind/name, always the same for the same pods.
	UnknownReceivers map[string]string
}

// coverageFacts are what the coverage of a Scanner is computed from.
type coverageFacts struct {
	// pods have the images of the Scanner's running pods. ended are its images that no pod runs according to the store, without those that it
	// excludes. The store may not know yet that a pod runs one of them.
	pods  []podImages
	ended []store.RecentImage
	// scans are the Scanner's ImageScans. reports are those of its engine in the store.
	scans   map[image.Key]*v1alpha1.ImageScan
	reports map[image.Key]store.ReportAge
	// full is true if no more ImageScans are created in the namespace.
	full bool
}

// podImages are the images of one pod.
type podImages struct {
	running    []RunningImage
	unresolved []UnresolvedImage
	// receivers are those that the pod, or else its namespace, names.
	receivers string
	created   time.Time
}

// Coverage returns the coverage of a Scanner. An image counts as scanned only if the store has the engine's report: after a loss of the store
// or a change of the engine, ImageScans show the earlier result for a while. engine is empty if the operator runs without the Scanner's engine.
func (i *Inventory) Coverage(ctx context.Context, scanner *v1alpha1.Scanner, engine string) (Coverage, error) {
	var facts coverageFacts
	var err error
	if facts.reports, err = i.Store.ReportAges(ctx, string(scanner.UID), engine); err != nil {
		return Coverage{}, err
	}
	if facts.full, err = i.IsFull(ctx, scanner.Namespace); err != nil {
		return Coverage{}, err
	}
	ofNamespace, err := namespaceReceivers(ctx, i.Client, scanner.Namespace)
	if err != nil {
		return Coverage{}, err
	}
	var scanners v1alpha1.ScannerList
	if err := i.Client.List(ctx, &scanners, client.InNamespace(scanner.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return Coverage{}, err
	}
	if facts.scans, err = i.imageScans(ctx, scanner); err != nil {
		return Coverage{}, err
	}
	pods, err := i.podsOf(ctx, scanner, IsActive, client.UnsafeDisableDeepCopy) // neither pods nor ImageScans are modified
	if err != nil {
		return Coverage{}, err
	}
	for p := range pods {
		images := podImages{receivers: joinReceivers(receiversOf(&pods[p], ofNamespace)), created: pods[p].CreationTimestamp.Time}
		if images.running, images.unresolved, _, err = i.RunningImages(ctx, scanner, &pods[p]); err != nil {
			return Coverage{}, err
		}
		facts.pods = append(facts.pods, images)
	}
	if facts.ended, err = i.Store.RecentImages(ctx, string(scanner.UID), engine); err != nil {
		return Coverage{}, err
	}
	facts.ended = slices.DeleteFunc(facts.ended, func(img store.RecentImage) bool { return isExcluded(scanner, lastReference(img)) })
	running := facts.running()
	return Coverage{Running: running, Recent: facts.recent(running), UnknownReceivers: unknownReceivers(pods, ofNamespace, scanners.Items)}, nil
}

// running returns the images of the running pods.
func (f coverageFacts) running() []CoveredImage {
	covered := map[string]CoveredImage{}
	waiting := map[string]CoveredImage{}
	resolvedNames := map[string]bool{}
	for _, pod := range f.pods {
		for _, img := range pod.running {
			resolvedNames[img.Reference.String()] = true
			state := f.stateOf(img)
			if f.full && f.scans[img.Key] == nil && state.State == image.Pending {
				state.State, state.Reason = image.Failed, v1alpha1.ReasonTooManyImages
			}
			state.Receivers = []string{pod.receivers}
			mergeImage(covered, state)
		}
		for _, img := range pod.unresolved {
			state := stateOfUnresolved(img)
			state.Since = pod.created
			mergeImage(waiting, state)
		}
	}
	for _, img := range waiting {
		// If another pod runs the same image, it is counted under its digest.
		if img.State == image.Failed || !resolvedNames[img.Name] {
			covered[img.ID] = img
		}
	}
	return slices.SortedFunc(maps.Values(covered), compareByID)
}

func compareByID(a, b CoveredImage) int { return strings.Compare(a.ID, b.ID) }

// recent returns the ended images. It leaves out those in running, which the store may not have recorded yet.
func (f coverageFacts) recent(running []CoveredImage) (recent []CoveredImage) {
	for _, img := range f.ended {
		state := f.stateOf(RunningImage{PodImage: PodImage{Reference: lastReference(img)}, Key: img.Key})
		state.Repositories, state.Receivers = img.Repositories, img.Receivers
		if !slices.ContainsFunc(running, func(r CoveredImage) bool { return r.ID == state.ID }) {
			recent = append(recent, state)
		}
	}
	slices.SortFunc(recent, compareByID)
	return recent
}

// lastReference returns the reference by which an image was last run, or only its repository if the reference is invalid.
func lastReference(img store.RecentImage) image.Reference {
	ref, err := image.ParseReference(img.Reference)
	if err != nil {
		ref.Repository = img.Repositories[0]
	}
	return ref
}

// precedence decides between the states that several pods give one image, independent of the order of pods. An image is scanned even if
// another pod names it by an excluded reference. It is failed even if another node still tries to pull it.
var precedence = map[image.State]int{image.Excluded: 0, image.Pending: 1, image.Scanned: 2, image.Failed: 3}

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

// stateOf returns the state of an image by its ImageScan and its report.
func (f coverageFacts) stateOf(img RunningImage) CoveredImage {
	scan := f.scans[img.Key]
	report, reported := f.reports[img.Key]
	state := CoveredImage{
		ID: img.Key.String(), Name: img.Reference.String(), State: image.Pending, Repositories: []string{img.Reference.Repository},
		Report: report,
	}
	switch {
	case img.Excluded:
		state.State = image.Excluded
	case scan == nil:
	case scan.Status.Phase == v1alpha1.PhaseScanned && reported:
		state.State, state.NotCovered = image.Scanned, scan.Status.NotCovered
		if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			state.Since = ready.LastTransitionTime.Time
			if ready.Reason == v1alpha1.ReasonSuspended {
				state.Reason = ready.Reason
			}
		}
	case scan.Status.Attempts > 0: // also while it is tried again
		state.State, state.Reason, state.Since = image.Failed, ReadyReason(scan), failedSince(scan)
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

func stateOfUnresolved(img UnresolvedImage) CoveredImage {
	state := CoveredImage{ID: img.Image, Name: img.Image, State: image.Pending, Reason: img.Reason}
	switch {
	case img.Excluded:
		state.State, state.Reason = image.Excluded, ""
	case img.Failed:
		state.State = image.Failed
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
