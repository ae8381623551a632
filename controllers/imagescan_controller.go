package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// imageScanStore is the part of the store that the ImageScanReconciler uses.
type imageScanStore interface {
	scan.Store
	Health() error
	RequestMatch(ctx context.Context, s store.Subject) error
	Locate(ctx context.Context, scanner, namespace string, key image.Key) (store.Location, error)
	RecentImages(ctx context.Context, scanner, engine string) ([]store.RecentImage, error)
	ScannerImages(ctx context.Context, namespace string) ([]store.ScannerImage, error)
	ReleaseImage(ctx context.Context, img store.ScannerImage, uncovered bool) error
}

// ImageScanReconciler scans one image and reports the progress in the ImageScan's status.
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
	// refusedReceivers maps a namespace and a ClusterScanner to the message of the last event about receivers that the namespace may not use: its
	// images have the same condition, one by one. An entry is removed when the condition is.
	refusedReceivers sync.Map
	// swept has the time of the last sweep of each namespace by sweepAfterDeletion.
	swept sync.Map
	// deleted has the ImageScans whose deletion requests another scan of their image.
	deleted deletedScans
}

// imageScanScope is the state of one reconciliation.
type imageScanScope struct {
	// scan is modified by the actions. Its status is written once, at the end.
	scan *v1alpha1.ImageScan
	// scanner owns the ImageScan. Never nil.
	scanner v1alpha1.GenericScanner
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
	// facts are what package scan decides by.
	facts scan.Facts
	// matchRequestHandled is true once the request for a match in the ImageScan's annotation was handled.
	matchRequestHandled bool
	// progress is what the image waits for; nil once all is done. matching is true if that is its first match.
	progress *backend.Progress
	matching bool
	// failure is why the image cannot be scanned; nil if it can.
	failure *backend.Failure
	// retired is true once the ImageScan is deleted.
	retired bool
}

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
	wait, err := r.advance(ctx, s)
	return ctrl.Result{RequeueAfter: wait}, err
}

// identify sets the Scanner, the key and the backend. It deletes an ImageScan without a Scanner and a duplicate: of two ImageScans for the
// same image, the one with the later name goes. Both can remain after garbage collection, or result from a lagging cache.
func (r *ImageScanReconciler) identify(ctx context.Context, s *imageScanScope) (obsolete bool, err error) {
	img, err := r.Inventory.Identify(ctx, s.scan)
	if err != nil {
		return false, err
	}
	if img == nil {
		return true, errors.Join(r.releaseUncovered(ctx, s.scan), r.delete(ctx, s, client.Preconditions{}))
	}
	s.scanner, s.key, s.refused = img.Scanner, img.Key, img.Refused
	s.backend = r.Backends.For(s.scanner)
	s.resetOnEngineChange()
	var scans v1alpha1.ImageScanList
	err = r.Client.List(ctx, &scans, client.InNamespace(s.scan.Namespace), client.UnsafeDisableDeepCopy, // only read
		client.MatchingFields{inventory.ImageScansByScannerDigest: inventory.ScannerDigest(inventory.ReferenceTo(s.scanner), s.key.Digest)})
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
	status, engine, instance := &s.scan.Status, s.scanner.Settings().Backend.Type, s.engineInstance()
	if status.Engine != "" && (status.Engine != engine || status.EngineInstance != instance) {
		*status = v1alpha1.ImageScanStatus{UnusedSinceTime: status.UnusedSinceTime}
	}
	status.Engine, status.EngineInstance = engine, instance
}

// engineInstance returns a short hash that identifies the engine's instance; empty if the engine has only one.
func (s *imageScanScope) engineInstance() string {
	engine := s.scanner.Settings().Backend.Type
	switch {
	case s.backend == nil && s.scan.Status.Engine == engine:
		return s.scan.Status.EngineInstance // without a backend the instance is unknown
	case s.backend == nil, s.backend.Engine() == strings.ToLower(string(engine)):
		return ""
	}
	sum := sha256.Sum256([]byte(s.backend.Engine()))
	return hex.EncodeToString(sum[:8])
}

// subject identifies the image's report in the store.
func (s *imageScanScope) subject() store.Subject {
	return store.Subject{PlatformDigest: s.scan.Status.PlatformDigest, Scope: s.image.Scope, Engine: s.backend.Engine()}
}

// patchStatus writes the status if it has changed, and emits events.
func (r *ImageScanReconciler) patchStatus(ctx context.Context, before *v1alpha1.ImageScan, s *imageScanScope) error {
	r.setConditions(s)
	s.scan.Status.Columns = columnsOf(&s.scan.Status, EngineGaps(s.backend))
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

// emitEvents emits an event for each failed attempt, for the success after failed ones, and for receivers that the namespace may not use. It counts
// failed attempts in Metrics. An image that is scanned without a failure has no event: a new Scanner would cause one for each image, and its own
// event reports that all are scanned.
func (r *ImageScanReconciler) emitEvents(before *v1alpha1.ImageScan, s *imageScanScope) {
	r.emitReceiverNotAllowed(before, s)
	switch {
	case s.failure != nil && s.scan.Status.Attempts != before.Status.Attempts:
		r.Metrics.countFailure(s.failure.Reason)
		r.Events.Eventf(s.scan, nil, corev1.EventTypeWarning, s.failure.Reason, "Scan", "%s", truncate(s.failure.Message, v1alpha1.MaxMessageBytes))
	case before.Status.Attempts > 0 && s.scan.Status.Attempts == 0 && s.scan.Status.Phase == v1alpha1.PhaseScanned:
		r.Events.Eventf(s.scan, nil, corev1.EventTypeNormal, v1alpha1.ReasonScanned, "Scan", "%s", describeResult(&s.scan.Status, EngineGaps(s.backend)))
	}
}

// emitReceiverNotAllowed emits one event in a namespace when its receivers that are not allowed change, however many images it has.
func (r *ImageScanReconciler) emitReceiverNotAllowed(before *v1alpha1.ImageScan, s *imageScanScope) {
	known := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReceiverNotAllowed)
	refused := meta.FindStatusCondition(s.scan.Status.Conditions, v1alpha1.ConditionReceiverNotAllowed)
	key := types.NamespacedName{Namespace: s.scan.Namespace, Name: s.scanner.GetName()}
	if refused == nil {
		if known != nil {
			r.refusedReceivers.Delete(key)
		}
		return
	}
	last, _ := r.refusedReceivers.Swap(key, refused.Message)
	if isNew := known == nil || known.Message != refused.Message; isNew && last != refused.Message {
		r.Events.Eventf(s.scan, nil, corev1.EventTypeWarning, refused.Reason, "Notify", "%s", refused.Message)
	}
}
