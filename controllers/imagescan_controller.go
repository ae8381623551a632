package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception/cluster"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/rights"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Failed images are tried again after a time that doubles from the first to the second of these, less up to a quarter.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// ImageScanReconciler takes an image through indexing and matching and says how far it is.
type ImageScanReconciler struct {
	Client client.Client
	// Reader reads without a cache.
	Reader   client.Reader
	Store    store.Store
	Backends backend.Choosers
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Wakeups  *Wakeups
	// Exceptions are left out of the counts.
	Exceptions cluster.Source
	// ShareSBOMs lets what one namespace's own Job found in an image count in all namespaces: only for clusters that trust
	// all of them.
	ShareSBOMs bool
	Rights     *rights.Checker
	Limits     Limits
	// Random gives numbers from 0 up to 1 that spread retries, so that images that failed together do not return together. Nil spreads none.
	Random func() float64
	// Metrics count failures.
	Metrics *Metrics
	// concerned has a checksum of the receivers that each ImageScan's workloads concerned when they were recorded last, by namespace and name
	// until the ImageScan is gone. No status shows that.
	concerned sync.Map
	// swept is when sweepAfterDeletion last swept each namespace.
	swept sync.Map
	// deleted are ImageScans whose deletion requests that their image is scanned again.
	deleted deletedScans
}

// imageScanScope is what the steps of one reconciliation share.
type imageScanScope struct {
	// scan is changed by the steps; its status is written once, at the end.
	scan *v1alpha1.ImageScan
	// scanner that it belongs to. Never nil.
	scanner *v1alpha1.Scanner
	// refused says that its namespace has too many Scanners, of which this is not among the first.
	refused bool
	// backend is the Scanner's engine; nil if this operator runs without it.
	backend backend.Backend
	key     image.Key
	// uses are the containers that run the image now; set by findUses, as is counted, which says that they are all:
	// the platforms of some pods' nodes may not be known yet.
	uses    []use
	counted bool
	// ran says that something ran the image when it was last counted.
	ran bool
	// ended are the containers that ran the image and whose pods have ended, within the Scanner's retention; set by findUses.
	ended []use
	// dropped are the containers that run the image or ran it, and whose pods the Scanner is not about any more; set by findUses.
	dropped []use
	// image is what the backend is asked about; set by findUses.
	image backend.Image
	// progress is what the backend last said; nil once all is done.
	progress *backend.Progress
	// matching says that indexing is done, and packages how many that found.
	matching bool
	packages int
	// failure is why the image can't be scanned; nil if it can.
	failure *backend.Failure
	// retired says that the ImageScan was deleted.
	retired bool
}

// imageScanStep does one part. A positive duration ends the reconciliation until then.
type imageScanStep func(context.Context, *imageScanScope) (time.Duration, error)

// +kubebuilder:rbac:groups=scanner-operator.io,resources=imagescans/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile handles one ImageScan.
func (r *ImageScanReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, err error) {
	var scan v1alpha1.ImageScan
	if err := r.Client.Get(ctx, req.NamespacedName, &scan); err != nil {
		if apierrors.IsNotFound(err) {
			r.concerned.Delete(req.NamespacedName)
			err = r.sweepAfterDeletion(ctx, req.Namespace)
		}
		return ctrl.Result{}, err
	}
	if !scan.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s := &imageScanScope{scan: &scan, ran: scan.Status.WorkloadCount > 0}
	before := scan.DeepCopy()
	if obsolete, err := r.identify(ctx, s); obsolete || err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		if !s.retired {
			err = errors.Join(err, r.patchStatus(ctx, before, s))
		}
	}()
	for _, step := range []imageScanStep{r.findUses, r.awaitStore, r.recordUse, r.recount, r.retire, r.followRequest, r.hold, r.findBackend, r.index, r.rematch, r.prompt, r.match} {
		wait, err := step(ctx, s)
		var failure *backend.Failure
		if errors.As(err, &failure) {
			return ctrl.Result{RequeueAfter: r.fail(s, failure)}, nil
		}
		if err != nil || wait > 0 || s.retired {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	}
	return ctrl.Result{RequeueAfter: r.nextLook(s)}, r.summarise(ctx, s)
}

// nextLook is when an image is looked at again that is done for now; 0 if an event will come.
func (r *ImageScanReconciler) nextLook(s *imageScanScope) time.Duration {
	switch {
	case !s.counted:
		return nodeWait
	case len(s.uses) == 0:
		return r.untilRetirement(s)
	}
	return 0
}

// identify finds the Scanner. An ImageScan without one, or beside another one for the same image, is deleted (of two,
// the one whose name comes later):
// garbage collection and a lagging cache leave such behind.
func (r *ImageScanReconciler) identify(ctx context.Context, s *imageScanScope) (obsolete bool, err error) {
	inv := r.inventory()
	if s.scanner, err = inv.owner(ctx, s.scan); err != nil {
		return false, err
	}
	if s.key, err = keyOf(s.scan); err != nil {
		return true, r.delete(ctx, s, client.Preconditions{})
	}
	if s.scanner == nil {
		return true, r.delete(ctx, s, client.Preconditions{})
	}
	admitted, err := r.Limits.admits(ctx, r.Client, s.scanner)
	if err != nil {
		return false, err
	}
	s.refused = !admitted
	s.backend = r.Backends.For(s.scanner)
	s.startOver()
	var scans v1alpha1.ImageScanList
	err = r.Client.List(ctx, &scans, client.InNamespace(s.scan.Namespace), client.UnsafeDisableDeepCopy, // they are only read
		client.MatchingFields{imageScansByScannerDigest: scannerDigest(s.scanner.Name, s.key.Digest)})
	if err != nil {
		return false, err
	}
	for _, other := range scans.Items {
		if other.Name < s.scan.Name && metav1.IsControlledBy(&other, s.scanner) &&
			other.Spec.Digest == s.key.Digest && other.Spec.Platform == s.scan.Spec.Platform {
			return true, r.delete(ctx, s, client.Preconditions{})
		}
	}
	return false, nil
}

func (r *ImageScanReconciler) inventory() inventory {
	return inventory{client: r.Client, jobs: r.Store}
}

// startOver drops what another engine, or another instance of it, found: it says nothing about what this one will find.
func (s *imageScanScope) startOver() {
	status, engine, instance := &s.scan.Status, s.scanner.Spec.Backend.Type, s.engineInstance()
	if status.Engine != "" && (status.Engine != engine || status.EngineInstance != instance) {
		*status = v1alpha1.ImageScanStatus{UnusedSinceTime: status.UnusedSinceTime}
	}
	status.Engine, status.EngineInstance = engine, instance
}

// engineInstance is a short name of the engine's instance; empty if there is only one.
func (s *imageScanScope) engineInstance() string {
	engine := s.scanner.Spec.Backend.Type
	switch {
	case s.backend == nil && s.scan.Status.Engine == engine:
		return s.scan.Status.EngineInstance // which one it would be is not known
	case s.backend == nil, s.backend.Engine() == strings.ToLower(string(engine)):
		return ""
	}
	sum := sha256.Sum256([]byte(s.backend.Engine()))
	return hex.EncodeToString(sum[:8])
}

// findBackend wants the engine to be there. Which one it is was chosen by the API's constant.
func (r *ImageScanReconciler) findBackend(_ context.Context, s *imageScanScope) (time.Duration, error) {
	if s.backend == nil {
		return 0, &backend.Failure{
			Reason:  v1alpha1.ReasonBackendDisabled,
			Message: fmt.Sprintf("this operator runs without the backend %s", s.scanner.Spec.Backend.Type),
		}
	}
	return 0, nil
}

// retire deletes the ImageScan when the image was unused for longer than the Scanner wants to keep it. Until then an image whose pods
// ended is scanned like one that runs. Any other the store keeps in the match queue; there is nothing to do for it here.
func (r *ImageScanReconciler) retire(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	status := &s.scan.Status
	if len(s.uses) > 0 {
		status.UnusedSinceTime = nil
		return 0, nil
	}
	s.noteUnused(r.Clock.Now())
	if wait := r.untilRetirement(s); wait > 0 {
		if inUse, err := r.staysInUse(ctx, s); inUse || err != nil {
			return 0, err
		}
		if status.Findings == nil && status.Phase != v1alpha1.PhaseFailed {
			s.progress = &backend.Progress{Reason: v1alpha1.ReasonUnused, Message: "no pod uses the image any more"}
		}
		return wait, nil
	}
	if err := r.Store.Release(ctx, string(s.scanner.UID), s.key); err != nil {
		return 0, err
	}
	// Since when it is unused must be the last that was written.
	err := r.delete(ctx, s, client.Preconditions{ResourceVersion: &s.scan.ResourceVersion})
	if apierrors.IsConflict(err) {
		return settle, nil
	}
	return 0, err
}

// noteUnused notes since when nothing runs the image: since the last pod ended that is there, or since now. It is since now if something ran
// it until now: the pod that did may be gone, and those that are there may have ended long before.
func (s *imageScanScope) noteUnused(now time.Time) {
	since := s.scan.Status.UnusedSinceTime
	if since == nil && s.ran {
		since = &metav1.Time{Time: now}
	}
	for _, u := range s.ended {
		if since == nil || u.endedAt.After(since.Time) {
			since = &metav1.Time{Time: u.endedAt}
		}
	}
	if since == nil {
		since = &metav1.Time{Time: now}
	}
	s.scan.Status.UnusedSinceTime = since
}

// untilRetirement is how long an unused image is still kept; 0 when its time is over.
func (r *ImageScanReconciler) untilRetirement(s *imageScanScope) time.Duration {
	keep := retention(s.scanner)
	// Of a clock that was put back, a time may be still to come though it is of the past.
	return min(max(0, keep-r.Clock.Since(s.scan.Status.UnusedSinceTime.Time)), keep)
}

func (r *ImageScanReconciler) delete(ctx context.Context, s *imageScanScope, only client.Preconditions) error {
	s.retired = true
	only.UID = &s.scan.UID
	return client.IgnoreNotFound(r.Client.Delete(ctx, s.scan, only))
}

// hold stops here what must not go on now: a suspended Scanner, or a failed image whose time has not come and
// for which nothing has changed meanwhile.
func (r *ImageScanReconciler) hold(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	if s.refused {
		s.progress = &backend.Progress{Reason: v1alpha1.ReasonTooManyScanners, Message: "the namespace has too many Scanners; see this image's own"}
		return time.Hour, nil
	}
	if isSuspended(s.scanner) {
		s.progress = &backend.Progress{Reason: v1alpha1.ReasonSuspended, Message: "the Scanner is suspended"}
		return time.Hour, nil
	}
	if next := s.scan.Status.NextAttemptTime; next != nil && s.scan.Status.Phase == v1alpha1.PhaseFailed {
		wait := min(next.Sub(r.Clock.Now()), lastRetry) // more only if the clock was put back
		if wait <= 0 || s.backend == nil {
			return max(wait, 0), nil
		}
		overtaken, err := r.overtaken(ctx, s)
		if overtaken || err != nil {
			return 0, err
		}
		return wait, nil
	}
	return 0, nil
}

// overtaken says whether a failed image has got elsewhere what it failed to get: its catalogue, by another
// Scanner's attempt, or a report made with newer data.
func (r *ImageScanReconciler) overtaken(ctx context.Context, s *imageScanScope) (bool, error) {
	catalogued, err := r.Store.Catalogued(ctx, s.backend.Engine(), s.key, s.image.Scope)
	if err != nil {
		return false, ignoreMissing(err)
	}
	if catalogued.PlatformDigest != s.scan.Status.PlatformDigest {
		return true, nil
	}
	summary, err := r.Store.Summary(ctx, s.subject(), store.Excepting{})
	if err != nil {
		return false, ignoreMissing(err)
	}
	current, err := r.Store.DataVersion(ctx, s.backend.Engine())
	return err == nil && summary.DataVersion == current.Version, ignoreMissing(err)
}

// ignoreMissing drops an error that says that the store does not have something.
func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func (r *ImageScanReconciler) index(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	if s.scan.Spec.DigestType == v1alpha1.DigestImageID {
		return 0, &backend.Failure{
			Reason: v1alpha1.ReasonBareImageID,
			Message: "the node knows this image only by its own id: it was built or loaded there and is in no registry. " +
				"Push it to a registry and run it from there",
			RetryAfter: lastRetry,
		}
	}
	progress, err := s.backend.Index(ctx, s.image)
	if err != nil {
		return 0, err
	}
	if !progress.Done {
		s.progress = &progress
		return progress.CheckAgain, nil
	}
	catalogued, err := r.Store.Catalogued(ctx, s.backend.Engine(), s.key, s.image.Scope)
	if err != nil {
		return 0, err
	}
	s.scan.Status.PlatformDigest = catalogued.PlatformDigest
	s.matching, s.packages = true, catalogued.Packages
	return 0, nil
}

func (r *ImageScanReconciler) match(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	progress, err := s.backend.Match(ctx, s.image)
	if err != nil || progress.Done {
		return 0, err
	}
	if s.scan.Status.Phase == v1alpha1.PhaseFailed && s.scan.Status.Findings != nil {
		return progress.CheckAgain, nil // what was found before does not make it ready while it is tried again
	}
	// The last result stands until the next is there: nothing to write to etcd for each new build of the data.
	if summaryErr := r.summarise(ctx, s); summaryErr == nil {
		return progress.CheckAgain, nil
	} else if !errors.Is(summaryErr, store.ErrNotFound) {
		return 0, summaryErr
	}
	s.progress = &progress
	return progress.CheckAgain, nil
}

// reasonPattern is what the API server accepts as a condition's reason.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_]{0,62}[A-Za-z0-9])?$`)

// fail notes a failure and returns when to try again. The reason may come from a pod in a tenant's namespace:
// one that no condition can hold is replaced.
func (r *ImageScanReconciler) fail(s *imageScanScope, failure *backend.Failure) time.Duration {
	s.failure = failure
	if !reasonPattern.MatchString(failure.Reason) {
		s.failure = &backend.Failure{Reason: v1alpha1.ReasonBackendError, Message: failure.Message, RetryAfter: failure.RetryAfter}
	}
	status := &s.scan.Status
	if status.Attempts == 0 {
		status.FailedSinceTime = &metav1.Time{Time: r.Clock.Now()}
	}
	status.Attempts++
	wait := lastRetry
	if status.Attempts < 7 { // 2^6 minutes are more than the last
		wait = min(firstRetry<<(status.Attempts-1), lastRetry)
	}
	// Retries may come sooner than planned, but never sooner than the registry or the engine asks for.
	wait = max(wait-r.spread(wait), failure.RetryAfter+r.spread(failure.RetryAfter))
	status.NextAttemptTime = &metav1.Time{Time: r.Clock.Now().Add(wait)}
	return wait
}

// spread is up to a quarter of a time.
func (r *ImageScanReconciler) spread(wait time.Duration) time.Duration {
	if r.Random == nil {
		return 0
	}
	return time.Duration(float64(wait) / 4 * r.Random())
}

// subject is what the image's report is kept under.
func (s *imageScanScope) subject() store.Subject {
	return store.Subject{PlatformDigest: s.scan.Status.PlatformDigest, Scope: s.image.Scope, Engine: s.backend.Engine()}
}

// patchStatus writes the status if it has changed, and tells what users would want to hear.
func (r *ImageScanReconciler) patchStatus(ctx context.Context, before *v1alpha1.ImageScan, s *imageScanScope) error {
	r.setConditions(s)
	fit(s.scan)
	if equality.Semantic.DeepEqual(before.Status, s.scan.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, s.scan, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.tell(before, s)
	return nil
}

// tell makes an event of what users would ask about: a first result, and each failure.
func (r *ImageScanReconciler) tell(before *v1alpha1.ImageScan, s *imageScanScope) {
	switch {
	case s.failure != nil && s.scan.Status.Attempts != before.Status.Attempts:
		r.Metrics.failed(s.failure.Reason)
		r.Events.Eventf(s.scan, nil, corev1.EventTypeWarning, s.failure.Reason, "Scan", "%s", truncate(s.failure.Message, v1alpha1.MaxMessageBytes))
	case before.Status.Phase != v1alpha1.PhaseScanned && s.scan.Status.Phase == v1alpha1.PhaseScanned:
		r.Events.Eventf(s.scan, nil, corev1.EventTypeNormal, v1alpha1.ReasonScanned, "Scan", "%s", describeResult(&s.scan.Status, neverCovered(s.backend)))
	}
}
