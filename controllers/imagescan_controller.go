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
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// A failed image is retried after minRetryDelay. The delay doubles with each failure up to maxRetryDelay, less up to a quarter at random.
const (
	minRetryDelay = time.Minute
	maxRetryDelay = time.Hour
)

// imageScanStore is the part of the store that the ImageScanReconciler uses.
type imageScanStore interface {
	Health() error
	Catalog(ctx context.Context, engine string, key image.Key, scope store.Scope) (store.Catalog, error)
	DataVersion(ctx context.Context, engine string) (store.DataVersion, error)
	Summary(ctx context.Context, s store.Subject, e store.ImageExceptions) (store.Summary, error)
	RequestMatch(ctx context.Context, s store.Subject) error
	Locate(ctx context.Context, scanner, namespace string, key image.Key) (store.Location, error)
	RecentImages(ctx context.Context, scanner, engine string) ([]store.RecentImage, error)
	ScannerImages(ctx context.Context, namespace string) ([]store.ScannerImage, error)
	ReleaseImage(ctx context.Context, scanner string, key image.Key) error
}

// ImageScanReconciler indexes and matches one image and reports the progress in the ImageScan's status.
type ImageScanReconciler struct {
	Client client.Client
	// Reader reads from the API server, not from a cache.
	Reader   client.Reader
	Store    imageScanStore
	Backends backend.Choosers
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Wakeups  *Wakeups
	// Exceptions suppress findings; suppressed findings are counted separately.
	Exceptions  active.Source
	Permissions *preflight.Checker
	Inventory   *inventory.Inventory
	// Random returns numbers in [0, 1) that spread retries, so that images that failed together are not retried together. Nil disables the
	// spread.
	Random func() float64
	// Metrics counts failed attempts.
	Metrics *Metrics
	// routedReceivers maps the namespaced name of each ImageScan to a hash of the receivers that its workloads were last routed to. No status
	// field has that. An entry is removed when the ImageScan is gone.
	routedReceivers sync.Map
	// swept has the time of the last sweep of each namespace by sweepAfterDeletion.
	swept sync.Map
	// deleted has the ImageScans whose deletion requests another scan of their image.
	deleted deletedScans
}

// imageScanScope is the state that the steps of one reconciliation share.
type imageScanScope struct {
	// scan is modified by the steps. Its status is written once, at the end.
	scan *v1alpha1.ImageScan
	// scanner owns the ImageScan. Never nil.
	scanner *v1alpha1.Scanner
	// refused is true if the namespace has too many Scanners and this one is not among the admitted.
	refused bool
	// backend is the Scanner's engine; nil if this operator runs without it.
	backend backend.Backend
	key     image.Key
	// uses are the containers that run or ran the image. Set by findUses.
	uses inventory.Uses
	// wasRunning is true if a pod ran the image when its workloads were last counted.
	wasRunning bool
	// image is passed to the backend. Set by findUses.
	image backend.Image
	// progress is the backend's last progress; nil once all is done.
	progress *backend.Progress
	// matching is true once indexing is done. packages is the number of packages that indexing found.
	matching bool
	packages int
	// failure is why the image cannot be scanned; nil if it can.
	failure *backend.Failure
	// retired is true once the ImageScan is deleted.
	retired bool
}

// imageScanStep does one part of a reconciliation. A positive duration ends the reconciliation and is its requeue delay.
type imageScanStep func(context.Context, *imageScanScope) (time.Duration, error)

// +kubebuilder:rbac:groups=scanner-operator.io,resources=imagescans/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile handles one ImageScan.
func (r *ImageScanReconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, err error) {
	var scan v1alpha1.ImageScan
	if err := r.Client.Get(ctx, req.NamespacedName, &scan); err != nil {
		if apierrors.IsNotFound(err) {
			r.routedReceivers.Delete(req.NamespacedName)
			err = r.sweepAfterDeletion(ctx, req.Namespace)
		}
		return ctrl.Result{}, err
	}
	if !scan.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s := &imageScanScope{scan: &scan, wasRunning: scan.Status.WorkloadCount > 0}
	before := scan.DeepCopy()
	if obsolete, err := r.identify(ctx, s); obsolete || err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		if !s.retired {
			err = errors.Join(err, r.patchStatus(ctx, before, s))
		}
	}()
	for _, step := range []imageScanStep{r.findUses, r.awaitStore, r.recordUse, r.recount, r.retire, r.handleRescanRequest, r.requireDue, r.findBackend, r.index, r.rematch, r.prompt, r.match} {
		wait, err := step(ctx, s)
		var failure *backend.Failure
		if errors.As(err, &failure) {
			return ctrl.Result{RequeueAfter: r.recordFailure(s, failure)}, nil
		}
		if err != nil || wait > 0 || s.retired {
			return ctrl.Result{RequeueAfter: wait}, err
		}
	}
	return ctrl.Result{RequeueAfter: r.requeueDelay(s)}, r.setResult(ctx, s)
}

// requeueDelay returns the requeue delay of an image that is done for now; 0 if an event will trigger the next reconciliation.
func (r *ImageScanReconciler) requeueDelay(s *imageScanScope) time.Duration {
	switch {
	case !s.uses.Complete:
		return nodeRetryDelay
	case len(s.uses.Running) == 0:
		return r.untilRetirement(s)
	}
	return 0
}

// identify sets the Scanner, the key and the backend. It deletes an ImageScan without a Scanner and a duplicate: of two ImageScans for the
// same image, the one with the later name goes. Both can remain after garbage collection, or result from a lagging cache.
func (r *ImageScanReconciler) identify(ctx context.Context, s *imageScanScope) (obsolete bool, err error) {
	img, err := r.Inventory.Identify(ctx, s.scan)
	if err != nil {
		return false, err
	}
	if img == nil {
		return true, r.delete(ctx, s, client.Preconditions{})
	}
	s.scanner, s.key, s.refused = img.Scanner, img.Key, img.Refused
	s.backend = r.Backends.For(s.scanner)
	s.resetOnEngineChange()
	var scans v1alpha1.ImageScanList
	err = r.Client.List(ctx, &scans, client.InNamespace(s.scan.Namespace), client.UnsafeDisableDeepCopy, // only read
		client.MatchingFields{inventory.ImageScansByScannerDigest: inventory.ScannerDigest(s.scanner.Name, s.key.Digest)})
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

// resetOnEngineChange resets the status if another engine, or another instance of the engine, made it: that result does not hold for this one.
func (s *imageScanScope) resetOnEngineChange() {
	status, engine, instance := &s.scan.Status, s.scanner.Spec.Backend.Type, s.engineInstance()
	if status.Engine != "" && (status.Engine != engine || status.EngineInstance != instance) {
		*status = v1alpha1.ImageScanStatus{UnusedSinceTime: status.UnusedSinceTime}
	}
	status.Engine, status.EngineInstance = engine, instance
}

// engineInstance returns a short hash that identifies the engine's instance; empty if the engine has only one.
func (s *imageScanScope) engineInstance() string {
	engine := s.scanner.Spec.Backend.Type
	switch {
	case s.backend == nil && s.scan.Status.Engine == engine:
		return s.scan.Status.EngineInstance // without a backend the instance is unknown
	case s.backend == nil, s.backend.Engine() == strings.ToLower(string(engine)):
		return ""
	}
	sum := sha256.Sum256([]byte(s.backend.Engine()))
	return hex.EncodeToString(sum[:8])
}

// findBackend fails the image if this operator runs without the Scanner's engine.
func (r *ImageScanReconciler) findBackend(_ context.Context, s *imageScanScope) (time.Duration, error) {
	if s.backend == nil {
		return 0, &backend.Failure{
			Reason:  v1alpha1.ReasonBackendDisabled,
			Message: fmt.Sprintf("this operator runs without the backend %s", s.scanner.Spec.Backend.Type),
		}
	}
	return 0, nil
}

// retire deletes the ImageScan when the image was unused for longer than the Scanner's retention. Until then, an image whose pods ended is
// scanned like a running one. For every other unused image there is nothing to do here: the store keeps it in the match queue.
func (r *ImageScanReconciler) retire(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	status := &s.scan.Status
	if len(s.uses.Running) > 0 {
		status.UnusedSinceTime = nil
		return 0, nil
	}
	s.setUnusedSince(r.Clock.Now())
	if wait := r.untilRetirement(s); wait > 0 {
		if inUse, err := r.staysInUse(ctx, s); inUse || err != nil {
			return 0, err
		}
		if status.Findings == nil && status.Phase != v1alpha1.PhaseFailed {
			s.progress = &backend.Progress{Reason: v1alpha1.ReasonUnused, Message: "no pod uses the image any more"}
		}
		return wait, nil
	}
	if err := r.Store.ReleaseImage(ctx, string(s.scanner.UID), s.key); err != nil {
		return 0, err
	}
	// The precondition ensures that the decision is based on the latest UnusedSinceTime.
	err := r.delete(ctx, s, client.Preconditions{ResourceVersion: &s.scan.ResourceVersion})
	if apierrors.IsConflict(err) {
		return eventDelay, nil
	}
	return 0, err
}

// setUnusedSince sets since when no pod runs the image: the end of the last ended pod that still exists, or now. It is now if a pod ran the
// image until now: that pod may be gone, and the pods that still exist may have ended long before.
func (s *imageScanScope) setUnusedSince(now time.Time) {
	since := s.scan.Status.UnusedSinceTime
	if since == nil && s.wasRunning {
		since = &metav1.Time{Time: now}
	}
	for _, u := range s.uses.Ended {
		if since == nil || u.EndedAt.After(since.Time) {
			since = &metav1.Time{Time: u.EndedAt}
		}
	}
	if since == nil {
		since = &metav1.Time{Time: now}
	}
	s.scan.Status.UnusedSinceTime = since
}

// untilRetirement returns how long an unused image is still kept; 0 once the retention is over.
func (r *ImageScanReconciler) untilRetirement(s *imageScanScope) time.Duration {
	keep := inventory.Retention(s.scanner)
	// If the clock was set back, UnusedSinceTime may lie in the future.
	return min(max(0, keep-r.Clock.Since(s.scan.Status.UnusedSinceTime.Time)), keep)
}

func (r *ImageScanReconciler) delete(ctx context.Context, s *imageScanScope, only client.Preconditions) error {
	s.retired = true
	only.UID = &s.scan.UID
	return client.IgnoreNotFound(r.Client.Delete(ctx, s.scan, only))
}

// requireDue stops the reconciliation of an ImageScan that must not proceed: its Scanner is refused or suspended, or its image has failed, its
// next attempt is not due and overtaken is false.
func (r *ImageScanReconciler) requireDue(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	if s.refused {
		s.progress = &backend.Progress{Reason: v1alpha1.ReasonTooManyScanners, Message: "the namespace has too many Scanners; see this image's own"}
		return time.Hour, nil
	}
	if isSuspended(s.scanner) {
		s.progress = &backend.Progress{Reason: v1alpha1.ReasonSuspended, Message: "the Scanner is suspended"}
		return time.Hour, nil
	}
	if next := s.scan.Status.NextAttemptTime; next != nil && s.scan.Status.Phase == v1alpha1.PhaseFailed {
		wait := min(next.Sub(r.Clock.Now()), maxRetryDelay) // longer only if the clock was set back
		if wait <= 0 || s.backend == nil {
			return max(wait, 0), nil
		}
		overtaken, err := r.isSuperseded(ctx, s)
		if overtaken || err != nil {
			return 0, err
		}
		return wait, nil
	}
	return 0, nil
}

// isSuperseded reports whether the store now has what a failed image is missing: a catalog made for another Scanner, or a report made with the
// current data.
func (r *ImageScanReconciler) isSuperseded(ctx context.Context, s *imageScanScope) (bool, error) {
	cataloged, err := r.Store.Catalog(ctx, s.backend.Engine(), s.key, s.image.Scope)
	if err != nil {
		return false, ignoreMissing(err)
	}
	if cataloged.PlatformDigest != s.scan.Status.PlatformDigest {
		return true, nil
	}
	summary, err := r.Store.Summary(ctx, s.subject(), store.ImageExceptions{})
	if err != nil {
		return false, ignoreMissing(err)
	}
	current, err := r.Store.DataVersion(ctx, s.backend.Engine())
	return err == nil && summary.DataVersion == current.Version, ignoreMissing(err)
}

// ignoreMissing returns nil for store.ErrNotFound, and any other error unchanged.
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
			RetryAfter: maxRetryDelay,
		}
	}
	progress, err := s.backend.Index(ctx, s.image)
	if err != nil {
		return 0, err
	}
	if !progress.Done {
		s.progress = &progress
		return progress.RequeueAfter, nil
	}
	cataloged, err := r.Store.Catalog(ctx, s.backend.Engine(), s.key, s.image.Scope)
	if err != nil {
		return 0, err
	}
	s.scan.Status.PlatformDigest = cataloged.PlatformDigest
	s.matching, s.packages = true, cataloged.Packages
	return 0, nil
}

func (r *ImageScanReconciler) match(ctx context.Context, s *imageScanScope) (time.Duration, error) {
	progress, err := s.backend.Match(ctx, s.image)
	if err != nil || progress.Done {
		return 0, err
	}
	if s.scan.Status.Phase == v1alpha1.PhaseFailed && s.scan.Status.Findings != nil {
		return progress.RequeueAfter, nil // a retry does not make a failed image ready by its earlier result
	}
	// The last result stays in the status until the next one is there. A new build of the data therefore causes no write to etcd by itself.
	if summaryErr := r.setResult(ctx, s); summaryErr == nil {
		return progress.RequeueAfter, nil
	} else if !errors.Is(summaryErr, store.ErrNotFound) {
		return 0, summaryErr
	}
	s.progress = &progress
	return progress.RequeueAfter, nil
}

// reasonPattern is the format that the API server requires of a condition's reason.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_]{0,62}[A-Za-z0-9])?$`)

// recordFailure records a failure and returns the delay until the next attempt. It replaces a reason that no condition accepts: the reason may come
// from a pod in a tenant's namespace.
func (r *ImageScanReconciler) recordFailure(s *imageScanScope, failure *backend.Failure) time.Duration {
	s.failure = failure
	if !reasonPattern.MatchString(failure.Reason) {
		s.failure = &backend.Failure{Reason: v1alpha1.ReasonBackendError, Message: failure.Message, RetryAfter: failure.RetryAfter}
	}
	status := &s.scan.Status
	if status.Attempts == 0 {
		status.FailedSinceTime = &metav1.Time{Time: r.Clock.Now()}
	}
	status.Attempts++
	wait := maxRetryDelay
	if status.Attempts < 7 { // 2^6 minutes exceed maxRetryDelay
		wait = min(minRetryDelay<<(status.Attempts-1), maxRetryDelay)
	}
	// A retry may come earlier than planned, but never earlier than the registry or the engine asks for.
	wait = max(wait-r.jitter(wait), failure.RetryAfter+r.jitter(failure.RetryAfter))
	status.NextAttemptTime = &metav1.Time{Time: r.Clock.Now().Add(wait)}
	return wait
}

// jitter returns a random share of a delay, up to a quarter.
func (r *ImageScanReconciler) jitter(wait time.Duration) time.Duration {
	if r.Random == nil {
		return 0
	}
	return time.Duration(float64(wait) / 4 * r.Random())
}

// subject identifies the image's report in the store.
func (s *imageScanScope) subject() store.Subject {
	return store.Subject{PlatformDigest: s.scan.Status.PlatformDigest, Scope: s.image.Scope, Engine: s.backend.Engine()}
}

// patchStatus writes the status if it has changed, and emits events.
func (r *ImageScanReconciler) patchStatus(ctx context.Context, before *v1alpha1.ImageScan, s *imageScanScope) error {
	r.setConditions(s)
	shrinkToFit(s.scan)
	if equality.Semantic.DeepEqual(before.Status, s.scan.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, s.scan, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.emitEvents(before, s)
	return nil
}

// emitEvents emits an event when the image becomes scanned and for each failed attempt. It counts the latter in Metrics.
func (r *ImageScanReconciler) emitEvents(before *v1alpha1.ImageScan, s *imageScanScope) {
	switch {
	case s.failure != nil && s.scan.Status.Attempts != before.Status.Attempts:
		r.Metrics.countFailure(s.failure.Reason)
		r.Events.Eventf(s.scan, nil, corev1.EventTypeWarning, s.failure.Reason, "Scan", "%s", truncate(s.failure.Message, v1alpha1.MaxMessageBytes))
	case before.Status.Phase != v1alpha1.PhaseScanned && s.scan.Status.Phase == v1alpha1.PhaseScanned:
		r.Events.Eventf(s.scan, nil, corev1.EventTypeNormal, v1alpha1.ReasonScanned, "Scan", "%s", describeResult(&s.scan.Status, engineGaps(s.backend)))
	}
}
