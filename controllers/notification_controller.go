package controllers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// storeRetry is when receivers are visited again after trouble with the store.
const storeRetry = 10 * time.Second

// maxEventNote is the API server's limit for an event's note, in characters; it refuses longer ones.
const maxEventNote = 1024

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
	covered, err := scannerCoverage(ctx, r.Client, r.Store, &scanner)
	if err != nil {
		return ctrl.Result{}, err
	}
	coverage := describeCoverage(covered, dataSince(&scanner))
	courier := notify.Courier{Store: r.Store, Sender: r.Sender, Planner: notify.Planner{Random: rand.Reader}, Now: r.Clock.Now}
	var errs []error
	var next time.Time
	for _, receiver := range scanner.Spec.Notifications {
		progress, err := courier.Visit(ctx, string(scanner.UID), r.settings(&scanner, receiver), coverage)
		errs = append(errs, err)
		r.tell(ctx, &scanner, receiver.Name, progress)
		if !reflect.DeepEqual(progress.Before, progress.After) {
			r.Wakeups.Scanner(ctx, &scanner)
		}
		if next.IsZero() || (!progress.Next.IsZero() && progress.Next.Before(next)) {
			next = progress.Next
		}
	}
	if err := errors.Join(errs...); err != nil {
		// Not returned: that would have the other receivers wait for this one's trouble to be over.
		ctrl.LoggerFrom(ctx).Error(err, "Visiting receivers")
		if again := r.Clock.Now().Add(storeRetry); next.IsZero() || again.Before(next) {
			next = again
		}
	}
	return ctrl.Result{RequeueAfter: r.until(next)}, nil
}

// ForgetReceivers drops what is remembered of receivers that no Scanner lists any more. It is to be called now and
// then, and not at once: a receiver that comes back soon goes on where it was.
func (r *NotificationReconciler) ForgetReceivers(ctx context.Context) error {
	var scanners v1alpha1.ScannerList
	if err := r.Client.List(ctx, &scanners); err != nil {
		return err
	}
	var errs []error
	for _, scanner := range scanners.Items {
		var names []string
		for _, receiver := range scanner.Spec.Notifications {
			names = append(names, receiver.Name)
		}
		errs = append(errs, r.Store.KeepReceivers(ctx, string(scanner.UID), names))
	}
	return errors.Join(errs...)
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

// tell makes events of what users would ask about: a message that went out, and a receiver that does not take
// one, once for each reason.
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
		if p.Before.LastError == nil || p.Before.LastError.Reason != p.Outcome.Reason {
			note := truncate(fmt.Sprintf("receiver %s: %s", receiver, p.Outcome.Message), maxEventNote)
			r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, cmp.Or(p.Outcome.Reason, v1alpha1.ReasonDeliveryFailed), "Notify", "%s", note)
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
