package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/podmark"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
)

// PodReconciler creates an ImageScan for each image of each pod that a scanner is responsible for, and annotates the pod with the images
// that have a result. For Scanners with addPodFinalizer, it holds a pod's deletion until the store has recorded the release.
type PodReconciler struct {
	Client      client.Client
	Backends    backend.Choosers
	Clock       clock.PassiveClock
	Events      events.EventRecorder
	Permissions *preflight.Checker
	Inventory   *inventory.Inventory

	// createMutex serializes the final lookup and the creation of ImageScans: new replicas are reconciled at the same time and need one
	// ImageScan.
	createMutex sync.Mutex
	// fullUntil has the time until which a namespace counts as full without another count of its ImageScans. Guarded by createMutex.
	fullUntil map[string]time.Time
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=scanner-operator.io,resources=scanners,verbs=get;list;watch
// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=scanner-operator.io,resources=clusterscanners,verbs=get;list;watch
// +kubebuilder:rbac:groups=scanner-operator.io,resources=imagescans,verbs=list;watch;create;patch;delete

// Reconcile handles one pod. A deleted pod needs nothing, since images are counted from existing pods. Release handles a pod that is being
// deleted. A failure to change the finalizers does not stop the creation of ImageScans: where a policy denies changes of pods, their images
// are still scanned.
func (r *PodReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := r.Client.Get(ctx, req.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pod.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	scanners, err := r.Inventory.ScannersOf(ctx, &pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	var holding []v1alpha1.GenericScanner
	if inventory.IsActive(&pod) {
		holding = scanners
	}
	notHeld := r.ensureFinalizers(ctx, &pod, holding)
	wait, err := r.scan(ctx, &pod, scanners)
	if err = errors.Join(notHeld, err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// fullRetryDelay is the requeue delay of a pod whose namespace has reached the limit of ImageScans.
const fullRetryDelay = time.Minute

// fullFor is how long a full namespace counts as full without another count: each pod without room checks the limit for each of its images.
const fullFor = 10 * time.Second

// scan ensures the ImageScans of a pod's images for the given Scanners and annotates the pod. It returns a requeue delay if the node is
// unknown or the namespace is full. A failure for one image does not affect the others.
func (r *PodReconciler) scan(ctx context.Context, pod *corev1.Pod, scanners []v1alpha1.GenericScanner) (time.Duration, error) {
	var errs []error
	var wait time.Duration
	wanted := map[string]string{}
	for _, scanner := range scanners {
		running, _, known, err := r.Inventory.RunningImages(ctx, scanner, pod)
		if err != nil {
			return 0, err
		}
		if !known && inventory.IsActive(pod) {
			return scan.NodeRetry, nil
		}
		handled, full, err := r.ensureImageScans(ctx, scanner, pod.Namespace, running)
		if full {
			wait = fullRetryDelay
		}
		errs = append(errs, err)
		if inventory.IsActive(pod) && addsPodAnnotation(scanner) && len(handled) > 0 {
			wanted[podAnnotation(scanner)] = encodeHashes(handled)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err // the annotation stays, since a new one would be incomplete
	}
	return wait, r.annotate(ctx, pod, wanted)
}

// ensureImageScans creates missing ImageScans and returns container → digest of the images that have a result. full is true if an ImageScan
// is missing because the namespace has reached its limit.
func (r *PodReconciler) ensureImageScans(
	ctx context.Context, scanner v1alpha1.GenericScanner, namespace string, running []inventory.RunningImage,
) (handled map[string]string, full bool, err error) {
	handled = map[string]string{}
	var errs []error
	for _, img := range running {
		if img.Excluded {
			continue
		}
		scan, err := r.Inventory.ImageScan(ctx, scanner, namespace, img.Key)
		if err == nil && (scan == nil && !isSuspended(scanner) || scan != nil && lacksReference(scan, img.Reference)) {
			if err = r.ensureImageScan(ctx, scanner, namespace, img); errors.Is(err, errFull) {
				full, err = true, nil
			}
		}
		if err == nil && scan != nil && scan.Status.Phase == v1alpha1.PhaseScanned {
			handled[img.Container] = img.Key.Digest
		}
		errs = append(errs, err)
	}
	return handled, full, errors.Join(errs...)
}

// ensureTimeout bounds how long one pod blocks others, since an API server or a webhook may never answer a request.
const ensureTimeout = 10 * time.Second

// errFull means that a namespace has reached its limit of ImageScans.
var errFull = errors.New("the namespace has too many ImageScans")

// ensureImageScan creates an image's ImageScan, or adds the image's name to it. Calls are serialized, so that of several pods with a new
// image one creates it.
func (r *PodReconciler) ensureImageScan(ctx context.Context, scanner v1alpha1.GenericScanner, namespace string, img inventory.RunningImage) error {
	r.createMutex.Lock()
	defer r.createMutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	scan, err := r.Inventory.ImageScan(ctx, scanner, namespace, img.Key)
	switch {
	case err != nil:
		return err
	case scan == nil:
		if err := r.requireRoom(ctx, namespace); err != nil {
			return err
		}
		return r.create(ctx, scanner, namespace, img)
	}
	return r.addReference(ctx, scan, img.Reference)
}

// requireRoom returns errFull if a namespace has reached its limit of ImageScans. The caller holds createMutex, which blocks all namespaces.
func (r *PodReconciler) requireRoom(ctx context.Context, namespace string) error {
	now := r.Clock.Now()
	if now.Before(r.fullUntil[namespace]) {
		return errFull
	}
	full, err := r.Inventory.IsFull(ctx, namespace)
	if err != nil || !full {
		return err
	}
	if r.fullUntil == nil {
		r.fullUntil = map[string]time.Time{}
	}
	maps.DeleteFunc(r.fullUntil, func(_ string, until time.Time) bool { return !now.Before(until) })
	r.fullUntil[namespace] = now.Add(fullFor)
	return errFull
}

func (r *PodReconciler) create(ctx context.Context, scanner v1alpha1.GenericScanner, namespace string, img inventory.RunningImage) error {
	scan := &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      inventory.ImageScanName(scanner.GetUID(), img.Key, img.Reference.Repository),
		},
		Spec: v1alpha1.ImageScanSpec{
			Digest: img.Key.Digest, DigestType: v1alpha1.DigestManifest, Platform: img.Key.Platform.String(),
			ScannerRef: inventory.ReferenceTo(scanner), References: []string{boundedReference(img.Reference)},
		},
	}
	if img.ID.Bare {
		scan.Spec.DigestType = v1alpha1.DigestImageID
	}
	if err := controllerutil.SetControllerReference(scanner, scan, r.Client.Scheme(), controllerutil.WithBlockOwnerDeletion(false)); err != nil {
		return err
	}
	// If the cache lags behind, the ImageScan exists already.
	return client.IgnoreAlreadyExists(r.Client.Create(ctx, scan))
}

// boundedReference returns an image's name for spec.references: the full reference, or only the repository if the reference is too long.
func boundedReference(ref image.Reference) string {
	if full := ref.String(); len(full) <= v1alpha1.MaxReferenceBytes {
		return full
	}
	return truncate(ref.Repository, v1alpha1.MaxReferenceBytes)
}

// lacksReference reports whether an ImageScan lacks a name of its image and has room for it.
func lacksReference(scan *v1alpha1.ImageScan, named image.Reference) bool {
	ref := boundedReference(named)
	return !slices.Contains(scan.Spec.References, ref) && len(scan.Spec.References) < v1alpha1.MaxReferences &&
		len(strings.Join(scan.Spec.References, ""))+len(ref) <= v1alpha1.MaxReferencesBytes
}

// addReference adds another name of the image if there is room. Which names are recorded does not matter.
func (r *PodReconciler) addReference(ctx context.Context, scan *v1alpha1.ImageScan, named image.Reference) error {
	if !lacksReference(scan, named) {
		return nil
	}
	changed := scan.DeepCopy()
	changed.Spec.References = append(changed.Spec.References, boundedReference(named))
	slices.Sort(changed.Spec.References)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(scan, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}

// annotate makes the operator's annotations on the pod equal to wanted. It removes annotations of Scanners that are gone or not responsible
// for the pod, and leaves all other annotations unchanged.
func (r *PodReconciler) annotate(ctx context.Context, pod *corev1.Pod, wanted map[string]string) error {
	changes := map[string]any{}
	for _, key := range podmark.Annotations(pod.Annotations) {
		if _, keep := wanted[key]; !keep {
			changes[key] = nil
		}
	}
	for key, value := range wanted {
		if pod.Annotations[key] != value {
			changes[key] = value
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return r.patch(ctx, pod, podmark.Patch{Annotations: changes})
}

// encodeHashes returns container → digest as JSON with sorted keys, so that equal maps give equal texts.
func encodeHashes(hashes map[string]string) string {
	text, err := json.Marshal(hashes)
	if err != nil {
		return "{}" // unreachable: a map of strings can always be marshalled
	}
	return string(text)
}

// podsAtOnce is how many pods are reconciled concurrently. Each new pod is patched, and a patch mostly waits for the API server.
const podsAtOnce = 8

// SetupWithManager registers the controller, and the one that releases pods.
func (r *PodReconciler) SetupWithManager(mgr ctrl.Manager) error {
	scannerChanged := builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, finalizersChanged))
	err := ctrl.NewControllerManagedBy(mgr).
		Named("pod").
		For(&corev1.Pod{}).
		Watches(&v1alpha1.Scanner{}, handler.EnqueueRequestsFromMapFunc(r.podsOfScanner), scannerChanged).
		Watches(&v1alpha1.ClusterScanner{}, handler.EnqueueRequestsFromMapFunc(r.podsOfScanner), scannerChanged).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.podsOfNamespace), builder.WithPredicates(namespaceChanged)).
		Watches(&v1alpha1.ImageScan{}, handler.EnqueueRequestsFromMapFunc(r.podsOfImageScan),
			builder.WithPredicates(phaseChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: podsAtOnce}).
		Complete(withStoreBackoff{withReadAccess{r, r.Permissions}})
	return errors.Join(err, r.setupRelease(mgr))
}

// finalizersChanged passes updates of a Scanner's finalizers, which decide whether pods get finalizers. They do not change the generation.
var finalizersChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	},
}

// phaseChanged passes updates of an ImageScan's phase, the only part of it that affects the annotations of pods.
var phaseChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.ImageScan), e.ObjectNew.(*v1alpha1.ImageScan)
		return before.Status.Phase != after.Status.Phase
	},
}

// podsOfScanner returns the pods in a Scanner's namespace, none if the Scanner is not admitted, and all pods for a ClusterScanner. Pods that the
// scanner left are among them: the operator's annotation goes.
func (r *PodReconciler) podsOfScanner(ctx context.Context, o client.Object) []reconcile.Request {
	if admitted, err := r.Inventory.Admits(ctx, o.(v1alpha1.GenericScanner)); err == nil && !admitted {
		return nil
	}
	return r.podRequests(ctx, client.InNamespace(o.GetNamespace()))
}

// podsOfNamespace returns the pods of a namespace that other scanners may cover now.
func (r *PodReconciler) podsOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	if !r.Inventory.Watches(o.GetName()) {
		return nil
	}
	return r.podRequests(ctx, client.InNamespace(o.GetName()))
}

func (r *PodReconciler) podsOfImageScan(ctx context.Context, o client.Object) []reconcile.Request {
	return r.podRequests(ctx, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{inventory.PodsByDigest: o.(*v1alpha1.ImageScan).Spec.Digest})
}

// podRequests returns a request for each pod in the cache that the options select.
func (r *PodReconciler) podRequests(ctx context.Context, opts ...client.ListOption) (requests []reconcile.Request) {
	err := r.Inventory.VisitPods(ctx, func(pod *corev1.Pod) error {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		return nil
	}, opts...)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing pods from the cache")
	}
	return requests
}
