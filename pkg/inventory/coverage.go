package inventory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// CoveredImage is one distinct image of a scanner's pods.
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
	// Findings are the counts of a scanned image in one of the namespaces, where exceptions may suppress others than elsewhere. They belong to the
	// cache and must not be changed.
	Findings *v1alpha1.FindingCounts
	// Name is a reference that messages show.
	Name string
	// Namespaces are those in which pods run the image, or ran it recently, sorted.
	Namespaces []string
	// Repositories are those by which running containers name the image. Empty while it has no digest.
	Repositories []string
	// Receivers has one entry for each distinct set of receivers that the image's pods name, in the format of store.Workload. Empty while
	// the image has no digest.
	Receivers []string
}

// Coverage has the namespaces and the images that a scanner is responsible for. Images are ordered by ID.
type Coverage struct {
	// ClusterWide is true for a ClusterScanner.
	ClusterWide bool
	Namespaces  Namespaces
	// Running has each image of a running pod once.
	Running []CoveredImage
	// Recent has the images that no pod runs now and that are still in use, since their last pods ended within the retention.
	Recent []CoveredImage
	// UnknownReceivers are the receivers that running pods name and that no scanner responsible for the pod lets them use. Each has one object
	// that names it, in the form kind/name, always the same for the same pods.
	UnknownReceivers map[string]string

	// parts are the images of each covered namespace.
	parts map[string]namespaceImages
}

// In returns the part of the coverage in some namespaces; all of it if they are nil. The states of images are those in these namespaces.
func (c Coverage) In(namespaces map[string]bool) Coverage {
	if namespaces == nil {
		return c
	}
	c.Namespaces.Covered = slices.DeleteFunc(slices.Clone(c.Namespaces.Covered), func(name string) bool { return !namespaces[name] })
	c.combine()
	return c
}

// combine sets Running and Recent from the images of the covered namespaces.
func (c *Coverage) combine() {
	byID := coverageByID{running: map[string]CoveredImage{}, recent: map[string]CoveredImage{}}
	for _, namespace := range c.Namespaces.Covered {
		byID.add(namespace, c.parts[namespace])
	}
	c.Running, c.Recent = byID.sorted()
}

// RunningIn returns the images of the running pods of a covered namespace, with their states there. They do not name their namespaces.
func (c Coverage) RunningIn(namespace string) []CoveredImage { return c.parts[namespace].running }

// HasImages reports whether a namespace runs images or ran some recently, and whether any of them waits for a result.
func (c Coverage) HasImages(namespace string) (used, waiting bool) {
	part := c.parts[namespace]
	waits := func(img CoveredImage) bool { return img.State == image.Pending }
	return len(part.running)+len(part.recent) > 0, slices.ContainsFunc(part.running, waits) || slices.ContainsFunc(part.recent, waits)
}

// namespaceImages are the images of one namespace, as in Coverage.
type namespaceImages struct{ running, recent []CoveredImage }

// coverageFacts are what the coverage of a scanner in one namespace is computed from.
type coverageFacts struct {
	// pods have the images of the scanner's running pods. ended are its images that no pod runs according to the store, without those that it
	// excludes. The store may not know yet that a pod runs one of them.
	pods  []podImages
	ended []store.RecentImage
	// namespace is the one that the pods and the ended images are in.
	namespace string
	// scans are the scanner's ImageScans. reports are those of its engine in the store.
	scans   map[store.NamespacedImage]*v1alpha1.ImageScan
	reports map[store.NamespacedImage]store.ReportAge
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

// Coverage returns the coverage of a scanner in its namespaces. An image counts as scanned only if the store has the engine's report: after a
// loss of the store or a change of the engine, ImageScans show the earlier result for a while. engine is empty if the operator runs without
// the scanner's engine.
func (i *Inventory) Coverage(ctx context.Context, scanner v1alpha1.GenericScanner, engine string) (coverage Coverage, err error) {
	coverage.ClusterWide = scanner.ScannerKind() == v1alpha1.KindClusterScanner
	if coverage.Namespaces, err = i.Namespaces(ctx, scanner); err != nil {
		return Coverage{}, err
	}
	var shared coverageFacts
	if shared.reports, err = i.Store.ReportAges(ctx, string(scanner.GetUID()), engine); err != nil {
		return Coverage{}, err
	}
	if shared.scans, err = i.imageScans(ctx, scanner); err != nil {
		return Coverage{}, err
	}
	recent, err := i.Store.RecentImages(ctx, string(scanner.GetUID()), engine)
	if err != nil {
		return Coverage{}, err
	}
	ended := map[string][]store.RecentImage{}
	for _, img := range recent {
		if !isExcluded(scanner, lastReference(img)) {
			ended[img.Namespace] = append(ended[img.Namespace], img)
		}
	}
	coverage.UnknownReceivers, coverage.parts = map[string]string{}, map[string]namespaceImages{}
	for _, namespace := range coverage.Namespaces.Covered {
		facts := shared
		facts.namespace, facts.ended = namespace, ended[namespace]
		unknown, err := i.readPods(ctx, scanner, &facts)
		if err != nil {
			return Coverage{}, err
		}
		for name, by := range unknown {
			if known := coverage.UnknownReceivers[name]; known == "" || by < known {
				coverage.UnknownReceivers[name] = by
			}
		}
		running := facts.running()
		coverage.parts[namespace] = namespaceImages{running, facts.recent(running)}
	}
	coverage.combine()
	return coverage, nil
}

// readPods sets the facts about the pods of one namespace. It returns the receivers that the pods name and no scanner has.
func (i *Inventory) readPods(ctx context.Context, scanner v1alpha1.GenericScanner, facts *coverageFacts) (unknown map[string]string, err error) {
	if facts.full, err = i.IsFull(ctx, facts.namespace); err != nil {
		return nil, err
	}
	metadata, err := readNamespace(ctx, i.Client, facts.namespace)
	if err != nil {
		return nil, err
	}
	scanners, err := i.receiverOwners(ctx, facts.namespace)
	if err != nil {
		return nil, err
	}
	allowed, named := allowedReceivers(scanner, metadata), newReceiverCheck(metadata, scanners)
	err = i.visitPodsOf(ctx, scanner, facts.namespace, IsActive, func(pod *corev1.Pod) (err error) {
		images := podImages{receivers: joinReceivers(receiversOf(pod, metadata, allowed)), created: pod.CreationTimestamp.Time}
		images.running, images.unresolved, _, err = i.RunningImages(ctx, scanner, pod)
		facts.pods = append(facts.pods, images)
		named.add(pod)
		return err
	})
	return named.unknown, err
}

// of returns an image in the namespace of the facts.
func (f coverageFacts) of(key image.Key) store.NamespacedImage {
	return store.NamespacedImage{Namespace: f.namespace, Key: key}
}

// coverageByID collects the images of several namespaces by ID.
type coverageByID struct{ running, recent map[string]CoveredImage }

// add adds the images of one namespace. An image in several namespaces counts once. It is scanned only if it is scanned in all of them.
func (c coverageByID) add(namespace string, images namespaceImages) {
	for _, img := range images.running {
		img.Namespaces = []string{namespace}
		c.running[img.ID] = combine(c.running, img)
	}
	for _, img := range images.recent {
		img.Namespaces = []string{namespace}
		c.recent[img.ID] = combine(c.recent, img)
	}
}

// sorted returns the images ordered by ID. An image that runs in one namespace is not among those that ran recently in another.
func (c coverageByID) sorted() (running, recent []CoveredImage) {
	maps.DeleteFunc(c.recent, func(id string, _ CoveredImage) bool { _, runs := c.running[id]; return runs })
	return slices.SortedFunc(maps.Values(c.running), compareByID), slices.SortedFunc(maps.Values(c.recent), compareByID)
}

// acrossNamespaces decides between the states of one image in several namespaces: what is missing in one of them is not hidden by the others.
var acrossNamespaces = map[image.State]int{image.Excluded: 0, image.Scanned: 1, image.Pending: 2, image.Failed: 3}

// combine returns an image together with what namespaces before it have of it.
func combine(known map[string]CoveredImage, img CoveredImage) CoveredImage {
	other, found := known[img.ID]
	if !found {
		return img
	}
	first, second := img, other
	if acrossNamespaces[other.State] > acrossNamespaces[img.State] {
		first, second = other, img
	}
	if first.State == second.State {
		first.Reason, first.Name = min(first.Reason, second.Reason), min(first.Name, second.Name)
		if first.Since.IsZero() || !second.Since.IsZero() && second.Since.Before(first.Since) {
			first.Since = second.Since
		}
	}
	namespaces := other.Namespaces // in order
	namespaces = append(namespaces, img.Namespaces...)
	first.Namespaces = namespaces
	first.Repositories, first.Receivers = union(first.Repositories, second.Repositories), union(first.Receivers, second.Receivers)
	first.NotCovered = union(first.NotCovered, second.NotCovered)
	first.Report.Current = first.Report.Current && (second.Report.Current || second.State != image.Scanned)
	return first
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
			if f.full && f.scans[f.of(img.Key)] == nil && state.State == image.Pending {
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

// union returns the distinct elements of both lists, sorted. Lists that are equal are returned as they are.
func union(a, b []string) []string {
	if slices.Equal(a, b) {
		return a
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// stateOf returns the state of an image by its ImageScan and its report.
func (f coverageFacts) stateOf(img RunningImage) CoveredImage {
	scan := f.scans[f.of(img.Key)]
	report, reported := f.reports[f.of(img.Key)]
	state := CoveredImage{
		ID: img.Key.String(), Name: img.Reference.String(), State: image.Pending, Repositories: []string{img.Reference.Repository},
		Report: report,
	}
	switch {
	case img.Excluded:
		state.State = image.Excluded
	case scan == nil:
	case scan.Status.Phase == v1alpha1.PhaseScanned && reported:
		state.State, state.NotCovered, state.Findings = image.Scanned, scan.Status.NotCovered, scan.Status.Findings
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
