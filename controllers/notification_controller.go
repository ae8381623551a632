package controllers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/scan"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/ui"
)

// Defaults of a receiver, for objects that were created before the API server had these defaults.
const (
	defaultGroupWait     = 30 * time.Second
	defaultGroupInterval = 5 * time.Minute
)

// maxEventNote is the API server's limit for an event's note, in characters; it refuses longer ones.
const maxEventNote = 1024

// NotificationReconciler delivers unannounced changes to the receivers of Scanners and ClusterScanners. It writes nothing to the Kubernetes API except events.
// The delivery results are in the store, where the ScannerReconciler reads them.
type NotificationReconciler struct {
	Client   client.Client
	Store    *store.Store
	Backends backend.Choosers
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Wakeups  *Wakeups
	Sender   announce.Sender
	// Exceptions suppress findings, which are not announced.
	Exceptions active.Source
	// Namespace is the operator's own, where the Secrets of a ClusterScanner's receivers are.
	Namespace string
	// ClusterName is the name of the cluster in messages; empty if it has none.
	ClusterName string
	// ReadMore is the link that messages show for details; empty for a kubectl command.
	ReadMore string
	// WebUI is the address of the web UI, which messages link to; empty for no links.
	WebUI string
	// Thresholds has the durations after which receivers get health notices.
	Thresholds  health.Thresholds
	Inventory   *inventory.Inventory
	Permissions *preflight.Checker
	// RecordDelivery is announce.Dispatcher.RecordNumber.
	RecordDelivery func(ctx context.Context, number int64)
	// Metrics counts delivery attempts.
	Metrics *Metrics
}

// noticeInterval is the maximum time between two reconciliations of a Scanner, since no event announces that a problem lasts.
const noticeInterval = 10 * time.Minute

// maxDeliveriesAtOnce bounds the destinations that one reconciliation delivers to at a time. It exceeds the number of receivers that a scanner may
// have; a ClusterScanner's may have thousands of channels.
const maxDeliveriesAtOnce = 32

// Reconcile delivers to the receivers of a Scanner concurrently, so that a slow or failing receiver does not delay the others.
func (r *NotificationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	scanner, err := inventory.ReadScanner(ctx, r.Client, req.NamespacedName)
	if scanner == nil || err != nil {
		return ctrl.Result{}, err
	}
	if scanner.GetDeletionTimestamp() != nil || isSuspended(scanner) || len(scanner.Receivers()) == 0 {
		return ctrl.Result{}, nil
	}
	if admitted, err := r.Inventory.Admits(ctx, scanner); err != nil || !admitted {
		return ctrl.Result{}, err
	}
	o, err := r.newScope(ctx, scanner)
	if err != nil {
		return ctrl.Result{}, err
	}
	dispatcher := announce.Dispatcher{Store: r.Store, Sender: r.Sender, Random: rand.Reader, Now: r.Clock.Now, RecordNumber: r.RecordDelivery}
	runs := make([]deliveryRun, 2*len(o.destinations))
	var deliveries errgroup.Group
	deliveries.SetLimit(maxDeliveriesAtOnce)
	for i, to := range o.destinations {
		deliveries.Go(func() error {
			runs[2*i] = r.deliverTest(ctx, dispatcher, o, to)
			runs[2*i+1] = r.deliver(ctx, dispatcher, o, to)
			return nil
		})
	}
	_ = deliveries.Wait() // each run has its error
	// Findings that an exception suppresses are announced when it expires.
	return ctrl.Result{RequeueAfter: r.until(r.next(ctx, append(runs, deliveryRun{next: o.exceptionEnds})))}, nil
}

// deliveryRun is the result of one delivery run: the time of the next one (zero: when something changes), or the store's error.
type deliveryRun struct {
	next time.Time
	err  error
}

// deliver delivers to one receiver and emits the events at once.
func (r *NotificationReconciler) deliver(
	ctx context.Context, dispatcher announce.Dispatcher, o *notificationScope, to destination,
) deliveryRun {
	progress, err := dispatcher.Dispatch(ctx, string(o.scanner.GetUID()), r.settings(o, to), o.coverageFor(to))
	r.emitEvents(ctx, o.scanner, to.name(), progress)
	r.emitGivenUp(o.scanner, to.name(), progress)
	if !reflect.DeepEqual(progress.Before, progress.After) {
		r.Wakeups.Scanner(ctx, o.scanner)
	}
	return deliveryRun{next: progress.Next, err: err}
}

// next returns the earliest time of the next delivery run of any receiver. Errors are not returned to the controller: its backoff would
// delay all receivers because of one.
func (r *NotificationReconciler) next(ctx context.Context, runs []deliveryRun) (next time.Time) {
	for _, run := range runs {
		if run.err != nil {
			run.next = r.Clock.Now().Add(scan.StoreRetry)
			if store.StorageFault(run.err) == nil {
				ctrl.LoggerFrom(ctx).Error(run.err, "Dispatching to a receiver")
			}
		}
		if next.IsZero() || (!run.next.IsZero() && run.next.Before(next)) {
			next = run.next
		}
	}
	return next
}

// SweepReceivers deletes the state of receivers that no Scanner lists. It must be called periodically, not at once: a receiver that is
// listed again soon continues where it was.
func (r *NotificationReconciler) SweepReceivers(ctx context.Context) error {
	scanners, err := inventory.ListScanners(ctx, r.Client, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	var errs []error
	for _, scanner := range scanners {
		errs = append(errs, r.Store.RetainReceivers(ctx, string(scanner.GetUID()), possibleDestinations(scanner)))
	}
	return errors.Join(errs...)
}

// until returns the time until next (zero: none), at most noticeInterval.
func (r *NotificationReconciler) until(next time.Time) time.Duration {
	if next.IsZero() {
		return noticeInterval
	}
	return min(max(next.Sub(r.Clock.Now()), time.Millisecond), noticeInterval)
}

// settings translates a receiver's spec to the notifier's settings.
func (r *NotificationReconciler) settings(o *notificationScope, to destination) announce.Settings {
	scanner, receiver := o.scanner, to.ClusterReceiver
	only := to.onlyNamespaces()
	about := only
	if scanner.GetNamespace() != "" {
		about = []string{scanner.GetNamespace()}
	}
	settings := announce.Settings{
		Cluster: r.ClusterName, OnlyNamespaces: only,
		Namespace: scanner.GetNamespace(), Scanner: scanner.GetName(), Receiver: to.name(), Generation: scanner.GetGeneration(),
		Filter: store.ChangeFilter{
			MinSeverity: finding.ParseSeverity(string(cmp.Or(receiver.MinSeverity, "High"))),
			Unknown:     unknownPolicies[cmp.Or(receiver.UnknownSeverity, v1alpha1.UnknownAnnounceFixable)],
			OnlyFixable: ptr.Deref(receiver.OnlyFixable, false),
			Changes:     changesOf(receiver),
			Engine:      o.engine,
			Route:       routeOf(scanner, to),
			Exceptions:  o.exceptions,
		},
		GroupWait: defaultGroupWait, GroupInterval: defaultGroupInterval,
		FirstScan:    firstScans[cmp.Or(receiver.FirstScan, v1alpha1.FirstScanSummary)],
		WebUI:        r.WebUI,
		ReadMore:     cmp.Or(r.ReadMore, r.findingsPage(receiver, about), findingsCommand(r.Namespace, about)),
		Tool:         o.data.Tool,
		Notices:      ptr.Deref(receiver.HealthNotices, true) && to.channel == "",
		StoreRenewed: preflight.HasOtherStore(scanner, r.Store.ID()),
		RestoredFrom: r.Store.RestoredFrom(),
	}
	if receiver.GroupWait != nil {
		settings.GroupWait = receiver.GroupWait.Duration
	}
	if receiver.GroupInterval != nil {
		settings.GroupInterval = receiver.GroupInterval.Duration
	}
	settings.QuietHours, _ = quietHoursOf(receiver) // the status shows the errors
	settings.Schedule, _ = scheduleOf(receiver)
	settings.Address = addressOf(cmp.Or(scanner.GetNamespace(), r.Namespace), receiver)
	settings.Address.Channel = cmp.Or(to.channel, settings.Address.Channel)
	return settings
}

// addressOf references a receiver's Secret in a namespace.
func addressOf(namespace string, receiver v1alpha1.ClusterReceiver) announce.ReceiverRef {
	slack, webhook, teams, email := receiver.Slack, receiver.Webhook, receiver.Teams, receiver.Email
	switch {
	case email != nil:
		mail := &announce.MailRef{Server: email.Server, TLS: announce.MailTLS(cmp.Or(email.TLS, v1alpha1.EmailStartTLS)), From: string(email.From), Helo: email.Helo} // the same names
		for _, to := range email.To {
			mail.To = append(mail.To, string(to))
		}
		ref := announce.ReceiverRef{Type: announce.ReceiverTypeEmail, Namespace: namespace, Mail: mail}
		if email.SecretRef.Name != "" {
			ref.SecretName, ref.SecretKey = email.SecretRef.Name, "password"
		}
		return ref
	case receiver.Alertmanager != nil:
		return announce.ReceiverRef{
			Type: announce.ReceiverTypeAlertmanager, Namespace: namespace, SecretName: receiver.Alertmanager.SecretRef.Name, SecretKey: "address",
		}
	case teams != nil:
		return announce.ReceiverRef{Type: announce.ReceiverTypeTeams, Namespace: namespace, SecretName: teams.SecretRef.Name, SecretKey: "address"}
	case webhook != nil:
		return announce.ReceiverRef{Type: announce.ReceiverTypeWebhook, Namespace: namespace, SecretName: webhook.SecretRef.Name, SecretKey: "address"}
	case slack == nil:
		return announce.ReceiverRef{}
	case slack.TokenSecretRef.Name != "":
		return announce.ReceiverRef{
			Type: announce.ReceiverTypeSlackApp, Namespace: namespace, Channel: slack.Channel,
			SecretName: slack.TokenSecretRef.Name, SecretKey: cmp.Or(slack.TokenSecretRef.Key, "token"),
		}
	}
	return announce.ReceiverRef{
		Type: announce.ReceiverTypeSlack, Namespace: namespace,
		SecretName: slack.WebhookURLSecretRef.Name, SecretKey: cmp.Or(slack.WebhookURLSecretRef.Key, "url"),
	}
}

// findingsPage returns the page of the web UI with the vulnerabilities that pass a receiver's filter; "" without a web UI. A page is about one
// namespace, or about all that its reader may see.
func (r *NotificationReconciler) findingsPage(receiver v1alpha1.ClusterReceiver, namespaces []string) string {
	if r.WebUI == "" {
		return ""
	}
	query := map[string]string{"minSeverity": string(cmp.Or(receiver.MinSeverity, "High"))}
	if len(namespaces) == 1 {
		query["namespace"] = namespaces[0]
	}
	if ptr.Deref(receiver.OnlyFixable, false) {
		query["fixable"] = "true"
	}
	return ui.PageURL(r.WebUI, ui.VulnerabilitiesPage, query)
}

// findingsCommand returns the command that prints all findings of the first of some namespaces, as many as a message names, or of all
// namespaces if there are none. It needs no permission in the operator's namespace, which readers of messages do not have.
func findingsCommand(operatorNamespace string, namespaces []string) string {
	command := "kubectl scanner findings"
	if operatorNamespace != defaultNamespace {
		command += " --operator-namespace " + operatorNamespace
	}
	switch named := namespaces[:min(len(namespaces), announce.MaxOnlyNamespaces)]; len(named) {
	case 0:
		return command + " -A"
	case 1:
		return command + " -n " + named[0]
	default:
		return fmt.Sprintf("for n in %s; do %s -n $n; done", strings.Join(named, " "), command)
	}
}

// defaultNamespace is the namespace in which the kubectl plugin expects the operator.
const defaultNamespace = "scanner-operator-system"

// changesOf returns the changes that are announced to a receiver; nil if the receiver does not list any.
func changesOf(receiver v1alpha1.ClusterReceiver) (changes []diff.Change) {
	for _, change := range receiver.Announce {
		changes = append(changes, diff.Change(change)) // both types have the same names
	}
	return changes
}

// routeOf returns which workloads are routed to a receiver; nil for all.
func routeOf(scanner v1alpha1.GenericScanner, to destination) *store.Route {
	if to.Workloads == v1alpha1.WorkloadsAll && to.namespaces == nil {
		return nil
	}
	return &store.Route{
		Receiver: to.Name, Known: receiverNames(scanner), All: to.Workloads == v1alpha1.WorkloadsAll,
		Unassigned: to.Workloads != v1alpha1.WorkloadsOwn, Namespaces: to.namespaces,
	}
}

// receiverNames returns the names of a Scanner's receivers.
func receiverNames(scanner v1alpha1.GenericScanner) (names []string) {
	for _, receiver := range scanner.Receivers() {
		names = append(names, receiver.Name)
	}
	return names
}

var unknownPolicies = map[v1alpha1.UnknownSeverityPolicy]store.UnknownPolicy{
	v1alpha1.UnknownAnnounceFixable: store.UnknownIfFixable,
	v1alpha1.UnknownAnnounce:        store.UnknownAlways,
	v1alpha1.UnknownHold:            store.UnknownNever,
}

var firstScans = map[v1alpha1.FirstScanPolicy]announce.FirstScan{
	v1alpha1.FirstScanSummary: announce.FirstScanSummary,
	v1alpha1.FirstScanSilent:  announce.FirstScanSilent,
	v1alpha1.FirstScanAll:     announce.FirstScanAll,
}

// emitEvents emits an event for a delivered message, and one per reason for a receiver that fails. It counts each attempt in Metrics.
func (r *NotificationReconciler) emitEvents(ctx context.Context, scanner v1alpha1.GenericScanner, receiver string, p announce.DispatchResult) {
	if p.Outcome == nil {
		return
	}
	r.Metrics.countDelivery(p.Outcome)
	log := ctrl.LoggerFrom(ctx).WithValues("receiver", receiver)
	switch p.Outcome.Result {
	case announce.Delivered:
		log.Info("Delivered a message")
		again := ""
		if p.Before.LastError != nil {
			again = ", after it had not"
		}
		r.Events.Eventf(scanner, nil, corev1.EventTypeNormal, v1alpha1.ReasonDelivered, "Notify", "receiver %s took a message%s", receiver, again)
		if p.Outcome.Message != "" {
			note := truncate(fmt.Sprintf("receiver %s: %s", receiver, p.Outcome.Message), maxEventNote)
			r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, cmp.Or(p.Outcome.Reason, v1alpha1.ReasonDelivered), "Notify", "%s", note)
		}
	default:
		log.Info("A message was not delivered", "result", p.Outcome.Result, "reason", p.Outcome.Reason, "message", p.Outcome.Message)
		if p.Before.LastError == nil || p.Before.LastError.Reason != p.Outcome.Reason {
			note := truncate(fmt.Sprintf("receiver %s: %s", receiver, p.Outcome.Message), maxEventNote)
			r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, cmp.Or(p.Outcome.Reason, v1alpha1.ReasonDeliveryFailed), "Notify", "%s", note)
		}
	}
}

// maxScannersAtOnce is how many Scanners can have slow receivers (at most client.Deadline for each attempt) without delaying other
// Scanners.
const maxScannersAtOnce = 16

// SetupWithManager registers the controller.
func (r *NotificationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return watchExceptions(ctrl.NewControllerManagedBy(mgr), r.Exceptions, scannersFor(r.Inventory)).
		Named("notification").
		For(&v1alpha1.Scanner{}).
		Watches(&v1alpha1.ClusterScanner{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.ImageScan{}, enqueueDelayed(scannerOf)).
		WatchesRawSource(source.Channel(r.Wakeups.Subscribe(), handler.EnqueueRequestsFromMapFunc(r.scannersOfDigest))).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxScannersAtOnce}).
		Complete(withStoreBackoff{withReadAccess{r, r.Permissions}})
}

// scannersOfDigest returns the Scanners of the ImageScans that have the digest of a wake-up.
func (r *NotificationReconciler) scannersOfDigest(ctx context.Context, o client.Object) []reconcile.Request {
	var scans v1alpha1.ImageScanList
	err := r.Client.List(ctx, &scans, client.UnsafeDisableDeepCopy, client.MatchingFields{inventory.ImageScansByDigest: o.(*v1alpha1.ImageScan).Spec.Digest})
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
