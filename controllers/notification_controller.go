package controllers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/notify"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// Defaults of a receiver, for objects from before the API server filled them in.
const (
	defaultGroupWait     = 30 * time.Second
	defaultGroupInterval = 5 * time.Minute
)

// NotificationReconciler tells the receivers of a Scanner what they have not been told. It writes nothing to
// the Kubernetes API but events: what became of messages is in the store, where the ScannerReconciler reads it.
type NotificationReconciler struct {
	Client  client.Client
	Store   store.Store
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	Wakeups *Wakeups
	Sender  notify.Sender
	// ReadMore is what messages say about where to read more; empty for a kubectl command.
	ReadMore string
}

// Reconcile visits each receiver of a Scanner. A receiver that fails does not keep the others waiting.
func (r *NotificationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var scanner v1alpha1.Scanner
	if err := r.Client.Get(ctx, req.NamespacedName, &scanner); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !scanner.DeletionTimestamp.IsZero() || scanner.Spec.Suspend || len(scanner.Spec.Notifications) == 0 {
		return ctrl.Result{}, nil
	}
	covered, err := (inventory{client: r.Client, jobs: r.Store}).coverage(ctx, &scanner)
	if err != nil {
		return ctrl.Result{}, err
	}
	courier := notify.Courier{Store: r.Store, Sender: r.Sender, Planner: notify.Planner{Random: rand.Reader}, Now: r.Clock.Now}
	coverage := describeCoverage(covered, dataSince(&scanner))
	var errs []error
	var next time.Time
	for _, receiver := range scanner.Spec.Notifications {
		progress, err := courier.Visit(ctx, string(scanner.UID), r.settings(&scanner, receiver), coverage)
		errs = append(errs, err)
		r.tell(ctx, &scanner, receiver.Name, progress)
		if next.IsZero() || (!progress.Next.IsZero() && progress.Next.Before(next)) {
			next = progress.Next
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.until(next)}, nil
}

// until is how long to wait for a time; 0 for none.
func (r *NotificationReconciler) until(next time.Time) time.Duration {
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(r.Clock.Now()), time.Millisecond)
}

// settings translates what the API says about a receiver.
func (r *NotificationReconciler) settings(scanner *v1alpha1.Scanner, receiver v1alpha1.Receiver) notify.Settings {
	settings := notify.Settings{
		Namespace: scanner.Namespace, Scanner: scanner.Name, Receiver: receiver.Name, Generation: scanner.Generation,
		Filter: store.NewsFilter{
			MinSeverity: finding.ParseSeverity(string(cmp.Or(receiver.MinSeverity, "High"))),
			Unknown:     unknownPolicies[cmp.Or(receiver.UnknownSeverity, v1alpha1.UnknownAnnounceFixable)],
			OnlyFixable: receiver.OnlyFixable,
		},
		GroupWait: defaultGroupWait, GroupInterval: defaultGroupInterval,
		FirstScan:    firstScans[cmp.Or(receiver.FirstScan, v1alpha1.FirstScanSummary)],
		ReadMore:     cmp.Or(r.ReadMore, fmt.Sprintf("kubectl get imagescans -n %s", scanner.Namespace)),
		StoreRenewed: scanner.Status.StoreID != "" && scanner.Status.StoreID != r.Store.ID(),
	}
	if receiver.GroupWait != nil {
		settings.GroupWait = receiver.GroupWait.Duration
	}
	if receiver.GroupInterval != nil {
		settings.GroupInterval = receiver.GroupInterval.Duration
	}
	if slack := receiver.Slack; slack != nil {
		ref := slack.WebhookURLSecretRef
		settings.Address = notify.ReceiverRef{
			Type: notify.ReceiverTypeSlack, Namespace: scanner.Namespace, SecretName: ref.Name, SecretKey: cmp.Or(ref.Key, "url"),
		}
	}
	return settings
}

var unknownPolicies = map[v1alpha1.UnknownSeverityPolicy]store.UnknownPolicy{
	v1alpha1.UnknownAnnounceFixable: store.UnknownIfFixable,
	v1alpha1.UnknownAnnounce:        store.UnknownAlways,
	v1alpha1.UnknownHold:            store.UnknownNever,
}

var firstScans = map[v1alpha1.FirstScanPolicy]notify.FirstScan{
	v1alpha1.FirstScanSummary: notify.FirstScanSummary,
	v1alpha1.FirstScanSilent:  notify.FirstScanSilent,
	v1alpha1.FirstScanAll:     notify.FirstScanAll,
}

// dataSince is since when the Scanner's engine has vulnerability data; zero if it has none.
func dataSince(scanner *v1alpha1.Scanner) time.Time {
	condition := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionBackendAvailable)
	if condition == nil || scanner.Status.VulnerabilityData == nil {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

// describeCoverage says it in the planner's terms: images with a digest one by one, all others as numbers.
func describeCoverage(covered []coveredImage, since time.Time) notify.Coverage {
	coverage := notify.Coverage{Known: true, DataSince: since}
	for _, img := range covered {
		if len(img.Repositories) > 0 && img.State != imageExcluded {
			coverage.Images = append(coverage.Images, notify.Image{
				Key: img.ID, Repositories: img.Repositories, State: imageStates[img.State], Reason: img.Reason,
			})
			continue
		}
		switch img.State {
		case imageExcluded:
			coverage.Others.Excluded++
		case imageFailed:
			if coverage.Others.Failed == nil {
				coverage.Others.Failed = map[string]int{}
			}
			coverage.Others.Failed[img.Reason]++
		default:
			coverage.Others.Pending++
		}
	}
	return coverage
}

var imageStates = map[imageState]notify.ImageState{
	imageScanned: notify.ImageScanned, imagePending: notify.ImagePending,
	imageFailed: notify.ImageFailed, imageExcluded: notify.ImageExcluded,
}

// tell makes events of what users would ask about: a message that went out, a receiver that no longer takes any,
// and one that does again.
func (r *NotificationReconciler) tell(ctx context.Context, scanner *v1alpha1.Scanner, receiver string, p notify.Progress) {
	if p.Outcome == nil {
		return
	}
	log := ctrl.LoggerFrom(ctx).WithValues("receiver", receiver)
	switch p.Outcome.Result {
	case notify.Delivered:
		log.Info("Delivered a message")
		r.Events.Eventf(scanner, nil, corev1.EventTypeNormal, v1alpha1.ReasonDelivered, "Notify", "receiver %s took a message", receiver)
	case notify.RateLimited:
		log.V(1).Info("A receiver wants to be told later")
	default:
		log.Info("A message was not delivered", "result", p.Outcome.Result, "reason", p.Outcome.Reason, "message", p.Outcome.Message)
		if p.Before.LastError == nil {
			r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, p.Outcome.Reason, "Notify", "receiver %s: %s", receiver, p.Outcome.Message)
		}
	}
}

// SetupWithManager registers the controller. Several Scanners are served at a time: one receiver may take its time.
func (r *NotificationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("notification").
		For(&v1alpha1.Scanner{}).
		Watches(&v1alpha1.ImageScan{}, settled(scannerOf)).
		WatchesRawSource(source.Channel(r.Wakeups.Subscribe(), handler.EnqueueRequestsFromMapFunc(r.ofDigest))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// ofDigest finds the Scanners whose image a wake-up is about.
func (r *NotificationReconciler) ofDigest(ctx context.Context, o client.Object) []reconcile.Request {
	var scans v1alpha1.ImageScanList
	err := r.Client.List(ctx, &scans, client.MatchingFields{imageScansByDigest: o.(*v1alpha1.ImageScan).Spec.Digest})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing ImageScans from the cache")
		return nil
	}
	var requests []reconcile.Request
	for i := range scans.Items {
		requests = append(requests, scannerOf(ctx, &scans.Items[i])...)
	}
	return requests
}
