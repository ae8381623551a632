package controllers

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
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// imageState is the state of one image of a Scanner. Each image is in exactly one.
type imageState string

const (
	imageScanned  imageState = "scanned"
	imagePending  imageState = "pending"
	imageFailed   imageState = "failed"
	imageExcluded imageState = "excluded"
)

// coveredImage is one distinct image of a Scanner's pods.
type coveredImage struct {
	// ID is the image's key, or its reference while it has no digest.
	ID    string
	State imageState
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

// engineOf returns the name under which an engine's results are stored. It is empty if the operator runs without the engine.
func engineOf(b backend.Backend) string {
	if b == nil {
		return ""
	}
	return b.Engine()
}

// coverageStore is what the store knows of a Scanner's images.
type coverageStore interface {
	jobRecords
	ReportAges(ctx context.Context, scanner, engine string) (map[image.Key]store.ReportAge, error)
	RecentImages(ctx context.Context, scanner, engine string) ([]store.RecentImage, error)
}

// scannerCoverage returns the images that a Scanner is responsible for, each once, with its state, ordered by ID. An image counts as
// scanned only if the store has the engine's report: after a loss of the store or a change of the engine, ImageScans show the earlier
// result for a while. recent has the images that no pod runs now and that are still in use, since their last pods ended within the
// retention.
func scannerCoverage(
	ctx context.Context, reader client.Reader, reports coverageStore, limits Limits, scanner *v1alpha1.Scanner, engine string,
) (running, recent []coveredImage, err error) {
	reported, err := reports.ReportAges(ctx, string(scanner.UID), engine)
	if err != nil {
		return nil, nil, err
	}
	i := inventory{client: reader, jobs: reports, limits: limits}
	if running, err = i.coverage(ctx, scanner, reported); err != nil {
		return nil, nil, err
	}
	ended, err := reports.RecentImages(ctx, string(scanner.UID), engine)
	if err != nil {
		return nil, nil, err
	}
	recent, err = i.recent(ctx, scanner, ended, reported, running)
	return running, recent, err
}

func (i inventory) coverage(ctx context.Context, scanner *v1alpha1.Scanner, reported map[image.Key]store.ReportAge) ([]coveredImage, error) {
	pods, err := i.selected(ctx, scanner, client.UnsafeDisableDeepCopy) // neither pods nor ImageScans are modified
	if err != nil {
		return nil, err
	}
	scans, err := i.scansByKey(ctx, scanner)
	if err != nil {
		return nil, err
	}
	full, err := i.limits.isFull(ctx, i.client, scanner.Namespace)
	if err != nil {
		return nil, err
	}
	ofNamespace, err := namespaceReceivers(ctx, i.client, scanner.Namespace)
	if err != nil {
		return nil, err
	}
	covered := map[string]coveredImage{}
	waiting := map[string]coveredImage{}
	resolvedNames := map[string]bool{}
	for p := range pods {
		running, unresolved, known, err := i.images(ctx, &pods[p])
		if err != nil {
			return nil, err
		}
		if !known {
			for name, ref := range containerImages(&pods[p]) {
				unresolved = append(unresolved, unresolvedImage{Container: name, Image: ref, Reason: v1alpha1.ReasonNodeUnknown})
			}
		}
		for _, img := range running {
			resolvedNames[img.Reference.String()] = true
			state := stateOf(scanner, img, scans[img.Key], reported)
			if full && scans[img.Key] == nil && state.State == imagePending {
				state.State, state.Reason = imageFailed, v1alpha1.ReasonTooManyImages
			}
			state.Receivers = []string{strings.Join(firstSorted(validReceivers(annotatedReceivers(&pods[p], ofNamespace)), maxNamedReceivers), ",")}
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
		if img.State == imageFailed || !resolvedNames[img.Name] {
			covered[img.ID] = img
		}
	}
	return slices.SortedFunc(maps.Values(covered), func(a, b coveredImage) int { return strings.Compare(a.ID, b.ID) }), nil
}

// precedence decides between the states that several pods give one image, independent of the order of pods. An image is scanned even if
// another pod names it by an excluded reference. It is failed even if another node still tries to pull it.
var precedence = map[imageState]int{imageExcluded: 0, imagePending: 1, imageScanned: 2, imageFailed: 3}

// mergeImage merges an image into covered. It keeps the state with the highest precedence, the first of the names and the union of the
// repositories and receivers of that state.
func mergeImage(covered map[string]coveredImage, img coveredImage) {
	known, found := covered[img.ID]
	switch {
	case !found || precedence[known.State] < precedence[img.State]:
		covered[img.ID] = img
	case known.State == img.State:
		known.Name, known.Reason = min(known.Name, img.Name), min(known.Reason, img.Reason)
		known.Since = earliest(known.Since, img.Since)
		known.Repositories = union(known.Repositories, img.Repositories)
		known.Receivers = union(known.Receivers, img.Receivers)
		covered[img.ID] = known
	}
}

// union returns the distinct elements of both lists, sorted.
func union(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

func stateOf(scanner *v1alpha1.Scanner, img runningImage, scan *v1alpha1.ImageScan, reports map[image.Key]store.ReportAge) coveredImage {
	report, reported := reports[img.Key]
	state := coveredImage{
		ID: img.Key.String(), Name: img.Reference.String(), State: imagePending, Repositories: []string{img.Reference.Repository},
		Report: report,
	}
	switch {
	case isExcluded(scanner, img.Reference):
		state.State = imageExcluded
	case scan == nil:
	case scan.Status.Phase == v1alpha1.PhaseScanned && reported:
		state.State, state.NotCovered = imageScanned, scan.Status.NotCovered
		if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			state.Since = ready.LastTransitionTime.Time
			if ready.Reason == v1alpha1.ReasonSuspended {
				state.Reason = ready.Reason
			}
		}
	case scan.Status.Attempts > 0: // also while it is tried again
		state.State, state.Reason, state.Since = imageFailed, readyReason(scan), failedSince(scan)
	default:
		state.Since = unreadySince(scan)
		if readyReason(scan) == v1alpha1.ReasonSuspended {
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

// earliest returns the earliest known time; zero if none is known.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// latest of some times; zero if none is known.
func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

func stateOfUnresolved(scanner *v1alpha1.Scanner, img unresolvedImage) coveredImage {
	state := coveredImage{ID: img.Image, Name: img.Image, State: imagePending}
	if ref, err := image.ParseReference(img.Image); err == nil {
		state.ID, state.Name = ref.String(), ref.String()
		if isExcluded(scanner, ref) {
			state.State = imageExcluded
			return state
		}
	}
	state.Reason = img.Reason
	if img.Failed {
		state.State = imageFailed
	}
	return state
}

func readyReason(scan *v1alpha1.ImageScan) string {
	if ready := meta.FindStatusCondition(scan.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return ""
}

// scansByKey returns the ImageScans that a Scanner owns, by image.
func (i inventory) scansByKey(ctx context.Context, scanner *v1alpha1.Scanner) (map[image.Key]*v1alpha1.ImageScan, error) {
	var scans v1alpha1.ImageScanList
	err := i.client.List(ctx, &scans, client.InNamespace(scanner.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{imageScansByScanner: scanner.Name})
	if err != nil {
		return nil, err
	}
	byKey := map[image.Key]*v1alpha1.ImageScan{}
	for s := range scans.Items {
		scan := &scans.Items[s]
		key, err := keyOf(scan)
		if err == nil && metav1.IsControlledBy(scan, scanner) {
			byKey[key] = scan
		}
	}
	return byKey, nil
}
