package controllers

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/calendar"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest"
)

const (
	webDigest   = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	webPlatform = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

var notifyNoon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// fakeNotifier stands for the notifier. It returns outcomes by Secret name, or Delivered if there is none.
type fakeNotifier struct {
	mu       sync.Mutex
	outcomes map[string]announce.Outcome
	sent     []announce.Delivery
	// hangs is the Secret of a receiver that never answers; empty for none.
	hangs string
}

// Send implements announce.Sender.
func (r *fakeNotifier) Send(ctx context.Context, d announce.Delivery) announce.Outcome {
	if r.hangs != "" && d.Receiver.SecretName == r.hangs {
		<-ctx.Done()
		return announce.Outcome{Result: announce.UnknownOutcome, Reason: announce.ReasonAnswerLost, Message: "no answer in time"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, d)
	if outcome, found := r.outcomes[d.Receiver.SecretName]; found {
		return outcome
	}
	return announce.Outcome{Result: announce.Delivered}
}

// notifyWorld is a Scanner in namespace shop with one pod that runs one image, and a real store.
type notifyWorld struct {
	t          *testing.T
	clock      *testingclock.FakePassiveClock
	client     client.Client
	store      *store.Store
	receivers  *fakeNotifier
	events     *events.FakeRecorder
	reconciler *NotificationReconciler
	scanner    *v1alpha1.Scanner
	scan       *v1alpha1.ImageScan
	// engine is the name of the Scanner's engine. data is the number of later versions of its data.
	engine string
	data   int
}

// namedEngine is an engine that implements only Engine and DataVersion.
type namedEngine struct {
	backend.Backend
	engine string
}

func (n namedEngine) Engine() string { return n.engine }

// DataVersion implements backend.Backend: the engine has data.
func (n namedEngine) DataVersion(context.Context) (store.DataVersion, error) {
	return store.DataVersion{}, nil
}

func (w *notifyWorld) chooseBackend(v1alpha1.GenericScanner) backend.Backend {
	return namedEngine{engine: w.engine}
}

func newNotifyWorld(t *testing.T, change func(*v1alpha1.Scanner)) *notifyWorld {
	t.Helper()
	w := &notifyWorld{t: t, engine: "grype", clock: testingclock.NewFakePassiveClock(notifyNoon), receivers: &fakeNotifier{outcomes: map[string]announce.Outcome{}}, events: events.NewFakeRecorder(100)}
	db, err := storetest.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), w.clock.Now, store.OpenSQLite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w.store = db
	w.scanner = &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default", UID: "scanner-uid", Generation: 1},
		Spec: v1alpha1.ScannerSpec{
			ScanSettings:  v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}},
			Notifications: []v1alpha1.Receiver{slackReceiver("team")},
		},
		Status: v1alpha1.ScannerStatus{VulnerabilityData: &v1alpha1.VulnerabilityData{}, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionBackendAvailable, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(notifyNoon.Add(-time.Hour)),
		}}},
	}
	if change != nil {
		change(w.scanner)
	}
	w.scan = &v1alpha1.ImageScan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "scan-uid",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.scanner, v1alpha1.GroupVersion.WithKind("Scanner"))},
		},
		Spec:   v1alpha1.ImageScanSpec{Digest: webDigest, Platform: "linux/amd64", ScannerRef: v1alpha1.ScannerReference{Kind: v1alpha1.KindScanner, Name: "default"}},
		Status: v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseScanned},
	}
	w.client = newNotifyClient(t, w.scanner, w.scan, webPod(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}},
	})
	w.reconciler = &NotificationReconciler{
		Client: w.client, Store: w.store, Backends: backend.Choosers{v1alpha1.BackendGrype: w.chooseBackend}, Clock: w.clock, Events: w.events, Sender: w.receivers, Wakeups: &Wakeups{},
		Thresholds: health.Thresholds{ScansFailing: 6 * time.Hour, ImagesFailed: time.Hour},
		Exceptions: active.Source{Reader: w.client, Clock: w.clock},
		Inventory:  &inventory.Inventory{Client: w.client, Store: w.store, Clock: w.clock},
		Namespace:  operatorNamespace,
	}
	return w
}

func slackReceiver(name string) v1alpha1.Receiver {
	return v1alpha1.Receiver{Name: name, Slack: &v1alpha1.SlackReceiver{WebhookURLSecretRef: v1alpha1.SecretKeyReference{Name: "slack-" + name, Key: "url"}}}
}

func webPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "pod-uid"},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "web", Image: "web:1.0"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", ImageID: "docker.io/library/web@" + webDigest, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

// newNotifyClient returns a fake client with the index that the NotificationReconciler uses.
func newNotifyClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(objects...).
		WithIndex(&v1alpha1.ImageScan{}, inventory.ImageScansByScanner, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ImageScan).Spec.ScannerRef.Name}
		}).Build()
}

// saveReport stores a report of the image with findings of the given severities.
func (w *notifyWorld) saveReport(severities ...finding.Severity) {
	w.t.Helper()
	ctx := w.t.Context()
	key := image.Key{Digest: webDigest, Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
	w.must(w.store.SaveCatalog(ctx, store.Catalog{Engine: w.engine, Key: key, PlatformDigest: webPlatform}, nil))
	w.must(w.store.SetUsage(ctx, store.ImageUsage{
		Scanner: "scanner-uid", Namespace: "shop", Key: key, Engine: w.engine,
		Workloads: []store.Workload{{Namespace: "shop", Kind: "Deployment", Name: "web", Container: "web", Repository: "docker.io/library/web", Reference: "docker.io/library/web:1.0"}},
	}))
	report := store.Report{Subject: store.Subject{PlatformDigest: webPlatform, Engine: w.engine}, DataVersion: fmt.Sprint(1 + w.data), MatchedAt: w.clock.Now()}
	for i, severity := range severities {
		report.Findings = append(report.Findings, finding.Finding{
			ID: "CVE-2026-000" + string(rune('1'+i)), Severity: severity, FixState: finding.FixStateNotFixed,
			Package: finding.Package{Name: "openssl", Version: "1", Type: "deb"},
		})
	}
	_, err := w.store.SaveReport(ctx, report, "")
	w.must(err)
}

func (w *notifyWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// reconcile returns the requeue delay and what was sent.
func (w *notifyWorld) reconcile() (time.Duration, []announce.Delivery) {
	w.t.Helper()
	before := len(w.receivers.sent)
	result, err := w.reconciler.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.scanner)})
	w.must(err)
	return result.RequeueAfter, w.receivers.sent[before:]
}

// reconcileAfter advances the clock and reconciles.
func (w *notifyWorld) reconcileAfter(d time.Duration) (time.Duration, []announce.Delivery) {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(d))
	return w.reconcile()
}

func (w *notifyWorld) state(receiver string) announce.State {
	w.t.Helper()
	raw, err := w.store.ReceiverState(w.t.Context(), "scanner-uid", receiver)
	w.must(err)
	state, err := announce.ParseState(raw)
	w.must(err)
	return state
}

// wantEvent takes the next event and compares its beginning.
func (w *notifyWorld) wantEvent(want string) {
	w.t.Helper()
	w.wantEvents(want)
}

// wantEvents takes as many events as are given, in any order, and compares their beginnings, sorted.
func (w *notifyWorld) wantEvents(want ...string) {
	w.t.Helper()
	var got []string
	for len(got) < len(want) {
		select {
		case event := <-w.events.Events:
			got = append(got, event)
			continue
		default:
			w.t.Fatalf("events %q, want %q", got, want)
		}
	}
	slices.Sort(got)
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) || len(got[i]) > 1100 {
			w.t.Errorf("event of %d bytes %.100q, want %q", len(got[i]), got[i], want[i])
		}
	}
}

const allFindings = "kubectl scanner findings -n shop"

// TestNotifications: a report in the store leads to a summary, and later findings to a message of their own.
func TestNotifications(t *testing.T) {
	w := newNotifyWorld(t, nil)
	w.saveReport(finding.Critical, finding.Low)
	if next, sent := w.reconcile(); next != 30*time.Second || len(sent) != 0 {
		t.Fatalf("%d messages and the next look in %s, want none and 30s", len(sent), next)
	}
	next, sent := w.reconcileAfter(30 * time.Second)
	if len(sent) != 1 || next != noticeInterval {
		t.Fatalf("%d messages and the next look in %s, want the summary and no hurry", len(sent), next)
	}
	want := announce.ReceiverRef{Type: announce.ReceiverTypeSlack, Namespace: "shop", SecretName: "slack-team", SecretKey: "url"}
	if diff := cmp.Diff(want, sent[0].Receiver); diff != "" {
		t.Errorf("receiver (-want +got):\n%s", diff)
	}
	if d := sent[0].Message; d.Kind != announce.KindFirstScan || d.Totals.Critical != 1 || d.Totals.Low != 1 || d.Images != 1 || d.ReadMore != allFindings {
		t.Errorf("message %+v, want a summary of both findings in one image", d)
	}
	w.wantEvent("Normal Delivered receiver team took a message")

	w.saveReport(finding.Critical, finding.Low, finding.High)
	if next, sent = w.reconcileAfter(time.Hour); len(sent) != 0 || next != 30*time.Second {
		t.Fatalf("%d messages and the next look in %s, want none and 30s", len(sent), next)
	}
	if got := w.state("team"); got.Pending != 1 || got.LastDelivery.IsZero() {
		t.Errorf("status %+v, want one finding pending", got)
	}
	_, sent = w.reconcileAfter(30 * time.Second)
	if len(sent) != 1 || sent[0].Message.Totals.Total() != 1 || sent[0].Message.Sections[0].Workloads[0] != "Deployment shop/web" {
		t.Fatalf("messages %+v, want the new finding with its workload", sent)
	}
	if next, sent = w.reconcileAfter(time.Hour); len(sent) != 0 || next != noticeInterval {
		t.Errorf("%d messages and the next look in %s, want nothing more", len(sent), next)
	}
}

// TestStoppedReceiver: a receiver that fails permanently causes one event and does not delay the other receivers.
func TestStoppedReceiver(t *testing.T) {
	w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = []v1alpha1.Receiver{slackReceiver("broken"), slackReceiver("team")}
	})
	w.saveReport(finding.Critical)
	w.receivers.outcomes["slack-broken"] = announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonSecretForbidden, Message: strings.Repeat("kubectl … ", 200)}
	w.reconcile()
	next, sent := w.reconcileAfter(30 * time.Second)
	if len(sent) != 2 || next != 5*time.Minute {
		t.Fatalf("%d messages and the next look in %s, want 2 and 5m for the stopped one", len(sent), next)
	}
	w.wantEvents("Normal Delivered receiver team took a message", "Warning SecretForbidden receiver broken: kubectl")
	if broken, team := w.state("broken"), w.state("team"); broken.Stopped == nil || team.Stopped != nil || team.LastError != nil {
		t.Errorf("status %+v and %+v, want only the first stopped", broken, team)
	}
	if _, sent = w.reconcileAfter(5 * time.Minute); len(sent) != 1 || len(w.events.Events) != 0 {
		t.Errorf("%d messages and %d events, want another attempt and no event for the same reason", len(sent), len(w.events.Events))
	}
	delete(w.receivers.outcomes, "slack-broken")
	w.reconcileAfter(5 * time.Minute)
	w.wantEvent("Normal Delivered receiver broken took a message, after it had not")
}

// TestNothingToNotify: nothing is sent if the Scanner has no receivers, is suspended or is gone.
func TestNothingToNotify(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Scanner){
		"suspended":    func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) },
		"no receivers": func(s *v1alpha1.Scanner) { s.Spec.Notifications = nil },
		"renamed":      func(s *v1alpha1.Scanner) { s.Name = "other" },
	} {
		w := newNotifyWorld(t, change)
		w.scanner.Name = "default"
		w.saveReport(finding.Critical)
		w.reconcile()
		if next, sent := w.reconcileAfter(time.Hour); len(sent) != 0 || next != 0 {
			t.Errorf("%s: %d messages and the next look in %s, want neither", name, len(sent), next)
		}
	}
}

// TestLostStore: ImageScans keep the phase Scanned when the store is replaced by an empty one. The renewed baseline waits until all images
// are scanned again, so that no old finding is announced as new.
func TestLostStore(t *testing.T) {
	w := newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Status.StoreID = "the one that was lost"
		s.Spec.Notifications[0].FirstScan = v1alpha1.FirstScanAll
	})
	w.reconcile()
	if _, sent := w.reconcileAfter(10 * time.Minute); len(sent) != 0 {
		t.Fatalf("message %+v before anything was found again, want none", sent[0].Message)
	}
	w.saveReport(finding.Critical)
	_, sent := w.reconcileAfter(time.Minute)
	if len(sent) != 1 || sent[0].Message.Kind != announce.KindBaselineRenewed || sent[0].Message.Totals.Critical != 1 {
		t.Fatalf("messages %+v, want one renewed baseline", sent)
	}
	if _, sent := w.reconcileAfter(time.Hour); len(sent) != 0 {
		t.Errorf("%d messages after the baseline, want none", len(sent))
	}
}

// TestEngineChangedSummary: the receiver gets one summary when the new engine has scanned all images, however long ImageScans and store show the
// results of the former one. A suspended Scanner sends nothing meanwhile.
func TestEngineChangedSummary(t *testing.T) {
	w := newNotifyWorld(t, nil)
	w.saveReport(finding.Critical)
	w.reconcile()
	if _, sent := w.reconcileAfter(time.Minute); len(sent) != 1 || sent[0].Message.Kind != announce.KindFirstScan {
		t.Fatalf("messages %+v, want the first summary", sent)
	}
	w.engine = "clair https://clair.example.com"
	for range 3 {
		if _, sent := w.reconcileAfter(5 * time.Minute); len(sent) != 0 {
			t.Fatalf("message %+v before the new engine has found anything", sent[0].Message)
		}
	}
	suspended := w.scanner.DeepCopy()
	suspended.Spec.Suspend = ptr.To(true)
	w.must(w.client.Update(t.Context(), suspended))
	w.saveReport(finding.Critical, finding.High, finding.High)
	if _, sent := w.reconcileAfter(time.Minute); len(sent) != 0 {
		t.Fatalf("a suspended Scanner says %+v", sent[0].Message)
	}
	suspended.Spec.Suspend = ptr.To(false)
	w.must(w.client.Update(t.Context(), suspended))
	_, sent := w.reconcileAfter(time.Minute)
	if len(sent) != 1 || sent[0].Message.Kind != announce.KindEngineChanged || sent[0].Message.EngineBefore != "grype" || sent[0].Message.Totals.Total() != 3 {
		t.Fatalf("messages %+v, want one summary of the new engine's 3 findings", sent)
	}
	w.engine = "grype"
	w.saveReport(finding.Critical, finding.High)
	w.reconcile()
	if _, sent := w.reconcileAfter(defaultGroupInterval); len(sent) != 1 || sent[0].Message.Kind != announce.KindEngineChanged || len(sent[0].Message.Worst) != 0 {
		t.Fatalf("back: messages %+v, want one summary that names nothing that was announced", sent)
	}
	if _, sent := w.reconcileAfter(time.Hour); len(sent) != 0 {
		t.Errorf("%d messages after the baseline, want none", len(sent))
	}
}

// TestReceiverSettings: the settings passed to the notifier follow the receiver's spec, with defaults for unset fields.
func TestReceiverSettings(t *testing.T) {
	w := newNotifyWorld(t, nil)
	full := slackReceiver("team")
	full.MinSeverity, full.UnknownSeverity, full.OnlyFixable, full.FirstScan = "Low", v1alpha1.UnknownHold, ptr.To(true), v1alpha1.FirstScanSilent
	full.GroupWait, full.GroupInterval = &metav1.Duration{Duration: time.Second}, &metav1.Duration{Duration: time.Hour}
	full.Announce, full.Workloads, full.HealthNotices = []v1alpha1.Change{v1alpha1.ChangeFixed, v1alpha1.ChangeNewImage}, v1alpha1.WorkloadsAll, ptr.To(false)
	own := slackReceiver("team")
	own.Announce, own.Workloads = []v1alpha1.Change{v1alpha1.ChangeNew}, v1alpha1.WorkloadsOwn
	w.scanner.Spec.Notifications = append(w.scanner.Spec.Notifications, slackReceiver("other"))
	covering := exception.NewSet([]exception.Exception{{UID: "uid", Vulnerabilities: []string{"CVE-2026-0001"}}}, notifyNoon)
	base := announce.Settings{
		Namespace: "shop", Scanner: "default", Receiver: "team", Generation: 1, ReadMore: allFindings, Tool: "grype 0.110.0",
		Address: announce.ReceiverRef{Type: announce.ReceiverTypeSlack, Namespace: "shop", SecretName: "slack-team", SecretKey: "url"},
	}
	defaults, custom, onlyOwn := base, base, base
	defaults.Filter = store.ChangeFilter{MinSeverity: finding.High, Unknown: store.UnknownIfFixable, Engine: "grype"}
	defaults.Filter.Exceptions, defaults.Notices = covering, true
	defaults.Filter.Route = &store.Route{Receiver: "team", Known: []string{"team", "other"}, Unassigned: true}
	defaults.GroupWait, defaults.GroupInterval, defaults.FirstScan = 30*time.Second, 5*time.Minute, announce.FirstScanSummary
	custom.Filter = store.ChangeFilter{MinSeverity: finding.Low, Unknown: store.UnknownNever, OnlyFixable: true, Engine: "grype"}
	custom.Filter.Exceptions, custom.Filter.Changes = covering, []diff.Change{diff.ChangeFixed, diff.ChangeNewImage}
	onlyOwn.Filter, onlyOwn.Notices = defaults.Filter, true
	onlyOwn.Filter.Changes, onlyOwn.Filter.Route = []diff.Change{diff.ChangeNew}, &store.Route{Receiver: "team", Known: []string{"team", "other"}}
	onlyOwn.GroupWait, onlyOwn.GroupInterval, onlyOwn.FirstScan = 30*time.Second, 5*time.Minute, announce.FirstScanSummary
	custom.GroupWait, custom.GroupInterval, custom.FirstScan = time.Second, time.Hour, announce.FirstScanSilent
	for name, tt := range map[string]struct {
		receiver v1alpha1.Receiver
		want     announce.Settings
	}{"defaults": {slackReceiver("team"), defaults}, "custom": {full, custom}, "only its own": {own, onlyOwn}} {
		o := &notificationScope{scanner: w.scanner, engine: "grype", data: store.DataVersion{Tool: "grype 0.110.0"}, exceptions: covering}
		if diff := cmp.Diff(tt.want, w.reconciler.settings(o, destination{ClusterReceiver: v1alpha1.ClusterReceiver{Receiver: tt.receiver}}),
			cmp.Comparer(sameSet), cmpopts.EquateComparable(calendar.Schedule{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func sameSet(a, b exception.Set) bool { return a.Key() == b.Key() }

// TestSweepReceivers: the state of a receiver that no Scanner lists is deleted.
func TestSweepReceivers(t *testing.T) {
	w := newNotifyWorld(t, nil)
	for _, name := range []string{"team", "gone"} {
		w.must(w.store.SaveReceiverState(t.Context(), string(w.scanner.UID), name, []byte(`{}`)))
	}
	w.must(w.reconciler.SweepReceivers(t.Context()))
	for name, kept := range map[string]bool{"team": true, "gone": false} {
		state, err := w.store.ReceiverState(t.Context(), string(w.scanner.UID), name)
		w.must(err)
		if (state != nil) != kept {
			t.Errorf("the state of receiver %s is kept: %v, want %v", name, state != nil, kept)
		}
	}
}
