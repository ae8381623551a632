package controllers

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestScannerConditions: all conditions of a Scanner, for each state that it can be in.
func TestScannerConditions(t *testing.T) {
	const (
		backendFine = "BackendAvailable=True Available"
		noReceivers = "NotificationsDelivered=True NoReceivers"
		durable     = "StoreDurable=True VolumeMounted"
	)
	pod := aPod(fixtureNamespace, "a", running("c", web))
	for name, tt := range map[string]struct {
		scanner *v1alpha1.Scanner
		objects []client.Object
		arrange func(*unit)
		want    []string
		message string // of Ready
	}{
		"no pods": {
			theScanner(), nil, nil, []string{backendFine, noReceivers, durable, "Ready=True NoImages"}, "no running pod is selected",
		},
		"scanning": {
			theScanner(), []client.Object{pod}, nil,
			[]string{backendFine, noReceivers, durable, "Ready=False Scanning", "Reconciling=True Scanning"}, "1 of 1 images have no result yet",
		},
		"scanned": {
			theScanner(), []client.Object{pod, scanOf(theScanner(), web, scanned)}, func(u *unit) { u.saveUsedImage(web) },
			[]string{backendFine, noReceivers, durable, "Ready=True Scanned"}, "1 image scanned: no known vulnerabilities",
		},
		"scanned, and the store was lost": {
			theScanner(), []client.Object{pod, scanOf(theScanner(), web, scanned)}, nil,
			[]string{backendFine, noReceivers, durable, "Ready=False Scanning", "Reconciling=True Scanning"}, "1 of 1 images have no result yet",
		},
		"some failed": {
			theScanner(), []client.Object{pod, aPod(fixtureNamespace, "b", running("c", vulnerable), waiting("d", "nginx", "ErrImagePull")), scanOf(theScanner(), web, failed), scanOf(theScanner(), vulnerable, scanned)},
			func(u *unit) { u.saveUsedImage(vulnerable) },
			[]string{backendFine, noReceivers, durable, "Ready=True SomeImagesFailed"},
			"2 of 3 images could not be scanned (ImageNotFound: registry.example.com/shop/web:1; NotPulled: docker.io/library/nginx:latest)",
		},
		"all excluded": {
			theScanner(excluding("*")), []client.Object{pod}, nil,
			[]string{backendFine, noReceivers, durable, "Ready=True Scanned"}, "0 images scanned: no known vulnerabilities",
		},
		"suspended": {
			theScanner(func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) }), []client.Object{pod}, nil,
			[]string{backendFine, noReceivers, durable, "Ready=False Suspended"}, "spec.suspend is true: nothing new is scanned or announced",
		},
		"without its engine": {
			theScanner(withClair("https://clair.example.com")), []client.Object{pod}, nil,
			[]string{"BackendAvailable=False BackendDisabled", noReceivers, durable, "Ready=False BackendDisabled", "Stalled=True BackendDisabled"},
			"this operator runs without the backend Clair; choose another one in spec.backend.type",
		},
		"no data yet": {
			theScanner(), []client.Object{pod},
			func(u *unit) {
				u.engine.versionErr = &backend.Failure{Reason: v1alpha1.ReasonNoVulnerabilityData, Message: "no vulnerability database is installed yet"}
			},
			[]string{"BackendAvailable=False NoVulnerabilityData", noReceivers, durable, "Ready=False Scanning", "Reconciling=True Scanning"}, "1 of 1 images have no result yet",
		},
		"old data": {
			theScanner(), nil, func(u *unit) { u.engine.problem = "the listing cannot be read" },
			[]string{"BackendAvailable=True VulnerabilityDataOutdated", noReceivers, durable, "Ready=True NoImages"}, "no running pod is selected",
		},
		"a store that goes with the pod": {
			theScanner(), nil, func(u *unit) { u.scanners.StoreDurable, u.scanners.StoreAdvice = false, "mount a volume" },
			[]string{backendFine, noReceivers, "StoreDurable=False EphemeralVolume", "Ready=True NoImages"}, "no running pod is selected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, append(tt.objects, tt.scanner)...)
			if tt.arrange != nil {
				tt.arrange(u)
			}
			status := u.reconcileScanner().Status
			if diff := cmp.Diff(tt.want, conditionsOf(status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if got := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Message; got != tt.message {
				t.Errorf("Ready says %q, want %q", got, tt.message)
			}
			for _, c := range status.Conditions {
				if c.ObservedGeneration != 1 {
					t.Errorf("%s is about generation %d, want 1", c.Type, c.ObservedGeneration)
				}
			}
			if status.ObservedGeneration != 1 {
				t.Errorf("the status is about generation %d, want 1", status.ObservedGeneration)
			}
		})
	}
}

// TestConditionsAreRemoved: Stalled and Reconciling are removed when they are over.
func TestConditionsAreRemoved(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner, aPod(fixtureNamespace, "a", running("c", web)))
	u.scanners.Backends = backend.Choosers{}
	if got := u.reconcileScanner().Status.Conditions; !meta.IsStatusConditionTrue(got, v1alpha1.ConditionStalled) {
		t.Errorf("conditions %q, want Stalled", conditionsOf(got))
	}
	u.scanners.Backends = u.scans.Backends
	if got := u.reconcileScanner().Status.Conditions; meta.FindStatusCondition(got, v1alpha1.ConditionStalled) != nil || !meta.IsStatusConditionTrue(got, v1alpha1.ConditionReconciling) {
		t.Errorf("conditions %q, want Reconciling and not Stalled", conditionsOf(got))
	}
	u.must(u.client.Create(t.Context(), scanOf(scanner, web, scanned)))
	u.saveUsedImage(web)
	if got := u.reconcileScanner().Status.Conditions; meta.FindStatusCondition(got, v1alpha1.ConditionReconciling) != nil {
		t.Errorf("conditions %q, want none that is over", conditionsOf(got))
	}
}

// TestScannerStatus: the counts, the vulnerability data and the store ID.
func TestScannerStatus(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("c", web)), aPod(fixtureNamespace, "b", running("c", web)))
	u.engine.version.Built = noon.Add(-time.Hour + 123*time.Millisecond)
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical), vulnerability("CVE-2024-0002", finding.Low))
	u.reconcile(scan)
	status := u.reconcileScanner().Status
	status.Conditions, status.Columns = nil, v1alpha1.ScannerColumns{} // TestPrinterColumns has the columns
	want := v1alpha1.ScannerStatus{
		ObservedGeneration: 1, Images: v1alpha1.ImageCounts{Total: 1, Scanned: 1}, StoreID: u.store.ID(),
		Findings:          v1alpha1.FindingCounts{Critical: 1, Low: 1, Fixable: 2},
		VulnerabilityData: &v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(noon.Add(-time.Hour)), Tool: "scripted 1"},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	u.engine.versionErr = &backend.Failure{Reason: v1alpha1.ReasonNoVulnerabilityData, Message: "gone"}
	if got := u.reconcileScanner().Status.VulnerabilityData; got != nil {
		t.Errorf("without data the status says %+v", got)
	}
}

// TestAnnouncedSourcesCount: the findings of a source of external reports count as long as the Scanner announces the source, also those of an image.
func TestAnnouncedSourcesCount(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("c", web)))
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	u.reconcile(scan)
	for _, source := range []string{"trivy-ci", "other"} {
		report := store.ExternalReport{
			ExternalKey: store.ExternalKey{Namespace: fixtureNamespace, Digest: scan.Spec.Digest, Source: source}, Version: 1, Time: noon, Text: strings.NewReader("{}"),
			Findings: []finding.Finding{vulnerability("CVE-2024-0001", finding.Critical), vulnerability("CVE-2024-0002", finding.Low)},
		}
		_, err := u.store.SaveExternalReport(t.Context(), report, func(*store.ExternalState) error { return nil })
		u.must(err)
	}
	for _, tt := range []struct {
		sources  []v1alpha1.ReportSource
		critical int32
		low      int32
	}{
		{nil, 1, 0},
		{[]v1alpha1.ReportSource{{Name: "trivy-ci"}, {Name: "other", Announce: ptr.To(false)}}, 1, 0},
		{[]v1alpha1.ReportSource{{Name: "trivy-ci", Announce: ptr.To(true)}, {Name: "other"}}, 1, 1},
		{[]v1alpha1.ReportSource{{Name: "trivy-ci", Announce: ptr.To(true)}, {Name: "other", Announce: ptr.To(true)}}, 1, 1},
		{nil, 1, 0},
	} {
		u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(scanner), scanner))
		scanner.Spec.ExternalReports.Sources = tt.sources
		u.must(u.client.Update(t.Context(), scanner))
		if got := u.reconcileScanner().Status.Findings; got.Critical != tt.critical || got.Low != tt.low {
			t.Errorf("with %+v: findings %+v, want %d critical and %d low", tt.sources, got, tt.critical, tt.low)
		}
		if after, _ := u.reconcile(scan); after.Status.Findings.Critical != tt.critical || after.Status.Findings.Low != tt.low || len(after.Status.TopFindings) != int(tt.critical+tt.low) {
			t.Errorf("with %+v, the image has %+v and the worst are %+v, want %d critical and %d low", tt.sources, after.Status.Findings, after.Status.TopFindings, tt.critical, tt.low)
		}
	}
}

// TestImageOfAnAnnouncedSource: an image is not clean if only an announced source knows a vulnerability.
func TestImageOfAnAnnouncedSource(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) {
		s.Spec.ExternalReports.Sources = []v1alpha1.ReportSource{{Name: "trivy-ci", Announce: ptr.To(true)}}
	})
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("c", web)))
	u.saveReport(web)
	u.reconcile(scan)
	_, err := u.store.SaveExternalReport(t.Context(), store.ExternalReport{
		ExternalKey: store.ExternalKey{Namespace: fixtureNamespace, Digest: scan.Spec.Digest, Source: "trivy-ci"}, Version: 1, Time: noon, Text: strings.NewReader("{}"),
		Findings: []finding.Finding{vulnerability("CVE-2024-0002", finding.Low)},
	}, func(*store.ExternalState) error { return nil })
	u.must(err)
	after, _ := u.reconcile(scan)
	if message := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.HasPrefix(message, "1 finding: ") {
		t.Errorf("the image is described as %q, want its finding", message)
	}
}

// TestCountImages: each image is counted once, by its state.
func TestCountImages(t *testing.T) {
	images := []inventory.CoveredImage{
		{State: image.Scanned}, {State: image.Pending}, {State: image.Pending}, {State: image.Failed}, {State: image.Excluded},
	}
	if got, want := countImages(images), (v1alpha1.ImageCounts{Total: 5, Scanned: 1, Pending: 2, Failed: 1, Excluded: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// TestUnchangedScannerIsNotWritten: another reconciliation causes no write, whatever fractions of seconds times have.
func TestUnchangedScannerIsNotWritten(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.Notifications = []v1alpha1.Receiver{receiverNamed("team")} })
	u := newUnit(t, scanner, aPod(fixtureNamespace, "a", running("c", web)))
	u.engine.version.Built = noon.Add(123456789 * time.Nanosecond)
	u.saveReceiverState("team", announce.State{Baseline: announce.Baseline{Phase: announce.BaselineDone}, LastDelivery: noon.Add(123456789 * time.Nanosecond)})
	first := u.reconcileScanner()
	writes := u.writes
	for range 3 {
		u.advanceClock(time.Minute)
		if again := u.reconcileScanner(); again.ResourceVersion != first.ResourceVersion || u.writes != writes {
			t.Fatalf("another look is written (%d times):\n%s", u.writes-writes, cmp.Diff(first.Status, again.Status))
		}
	}
	if got := len(u.takeEvents()); got == 0 {
		t.Error("there are no events of the first look")
	}
}

func receiverNamed(name string) v1alpha1.Receiver {
	return v1alpha1.Receiver{Name: name, Slack: &v1alpha1.SlackReceiver{WebhookURLSecretRef: v1alpha1.SecretKeyReference{Name: "slack", Key: "url"}}}
}

// saveReceiverState stores the state of a receiver.
func (u *unit) saveReceiverState(receiver string, state announce.State) {
	u.t.Helper()
	raw, err := state.Encode()
	u.must(err)
	u.must(u.store.SaveReceiverState(u.t.Context(), "scanner-uid", receiver, raw))
}

// TestReceivers: the delivery state of each receiver and of all together.
func TestReceivers(t *testing.T) {
	begun := announce.Baseline{Phase: announce.BaselineDone}
	badZone := []v1alpha1.QuietHours{{StartTime: "20:00", EndTime: "08:00", TimeZone: "Europe/Berln"}}
	const badTime = `spec.notifications[b].quietHours[0].timeZone: "Europe/Berln" is no time zone of the IANA database, such as Europe/Berlin or UTC. ` +
		"It has no effect until it is corrected"
	for name, tt := range map[string]struct {
		states map[string]announce.State
		want   string
		text   string
		quiet  []v1alpha1.QuietHours
		cron   string
	}{
		"a schedule that is never due": {
			map[string]announce.State{"a": {Baseline: begun}, "b": {Baseline: begun}}, "NotificationsDelivered=False InvalidTime",
			"spec.notifications[b].schedule.cron: it is never due: no month has this day. It has no effect until it is corrected", nil, "0 8 30 2 *",
		},
		"a time zone that does not exist": {
			map[string]announce.State{"a": {Baseline: begun, Pending: 3}, "b": {Baseline: begun}}, "NotificationsDelivered=False InvalidTime", badTime, badZone, "",
		},
		"a time zone that does not exist, and one failed": {
			map[string]announce.State{"a": {Baseline: begun, LastError: &announce.DeliveryError{Reason: "Network", Message: "away"}}, "b": {Baseline: begun}},
			"NotificationsDelivered=False Network", "a: Network: away", badZone, "",
		},
		"nothing to tell": {map[string]announce.State{"a": {Baseline: begun}, "b": {Baseline: begun}}, "NotificationsDelivered=True Delivered", "", nil, ""},
		"some wait":       {map[string]announce.State{"a": {Baseline: begun, Pending: 3}, "b": {Baseline: begun, Pending: 4}}, "NotificationsDelivered=True DeliveryPending", "waiting for the next message: 7 findings", nil, ""},
		"one failed": {
			map[string]announce.State{"a": {Baseline: begun, Pending: 3}, "b": {Baseline: begun, LastError: &announce.DeliveryError{Reason: "ChannelArchived", Message: "channel_is_archived"}}},
			"NotificationsDelivered=False ChannelArchived", "b: ChannelArchived: channel_is_archived", nil, "",
		},
		"both failed, for different reasons": {
			map[string]announce.State{
				"a": {Baseline: begun, LastError: &announce.DeliveryError{Reason: "not a reason", Message: "odd"}},
				"b": {Baseline: begun, LastError: &announce.DeliveryError{Reason: "ChannelArchived", Message: "channel_is_archived"}},
			},
			"NotificationsDelivered=False DeliveryFailed", "a: DeliveryFailed: odd; b: ChannelArchived: channel_is_archived", nil, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, theScanner(func(s *v1alpha1.Scanner) {
				s.Spec.Notifications = []v1alpha1.Receiver{receiverNamed("a"), receiverNamed("b")}
				s.Spec.Notifications[1].QuietHours = tt.quiet
				if tt.cron != "" {
					s.Spec.Notifications[1].Schedule = &v1alpha1.SummarySchedule{Cron: tt.cron}
				}
			}))
			for receiver, state := range tt.states {
				u.saveReceiverState(receiver, state)
			}
			status := u.reconcileScanner().Status
			condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionNotificationsDelivered)
			if got := conditionsOf([]metav1.Condition{*condition})[0]; got != tt.want || condition.Message != tt.text {
				t.Errorf("it is %s: %q, want %s: %q", got, condition.Message, tt.want, tt.text)
			}
			if len(status.Receivers) != 2 || status.Receivers[0].Name != "a" || status.Receivers[0].Pending != int32(tt.states["a"].Pending) {
				t.Errorf("receivers %+v", status.Receivers)
			}
		})
	}
}

// TestStoreIDWaits: the status gets the store ID only when each receiver has a state in that store. Otherwise the loss of the former store
// would stay unannounced.
func TestStoreIDWaits(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = []v1alpha1.Receiver{receiverNamed("a"), receiverNamed("b")}
		s.Status.StoreID = "former"
	})
	u := newUnit(t, scanner)
	u.saveReceiverState("a", announce.State{Baseline: announce.Baseline{Phase: announce.BaselineDone}})
	if got := u.reconcileScanner().Status.StoreID; got != "former" {
		t.Errorf("with one receiver of two the store is %q, want the former", got)
	}
	u.saveReceiverState("b", announce.State{Baseline: announce.Baseline{Phase: announce.BaselineDone}})
	if got := u.reconcileScanner().Status.StoreID; got != u.store.ID() {
		t.Errorf("with both receivers the store is %q, want %q", got, u.store.ID())
	}
}

// TestScannerDeleted: everything of a deleted Scanner is removed from the store, and nothing of others.
func TestScannerDeleted(t *testing.T) {
	scanner, other := theScanner(), theScanner(func(s *v1alpha1.Scanner) { s.Name, s.UID = "other", "other-uid" })
	scan, kept := scanOf(scanner, web), scanOf(other, vulnerable)
	u := newUnit(t, scanner, other, scan, kept, aPod(fixtureNamespace, "a", running("c", web), running("d", vulnerable)))
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "", time.Minute), nil)
	u.reconcile(scan)
	u.reconcile(kept)
	u.must(u.client.Delete(t.Context(), scanner))
	_, err := u.scanners.Reconcile(t.Context(), requestFor(scanner))
	u.must(err)
	for reference, want := range map[string]bool{web: false, vulnerable: true} {
		if used, err := u.store.InUse(t.Context(), "scripted", keyOfImage(reference), store.Cluster); err != nil || used != want {
			t.Errorf("%s is in use: %v, %v; want %v", reference, used, err, want)
		}
	}
	if images, err := u.store.ImagesInUse(t.Context(), "scripted"); err != nil || images != 1 {
		t.Errorf("%d images are matched, %v; want 1", images, err)
	}
	if after, _ := u.reconcile(scan); after != nil {
		t.Error("its ImageScan is still there")
	}
	if used, _ := u.store.InUse(t.Context(), "scripted", keyOfImage(web), store.Cluster); used {
		t.Error("its last ImageScan brings the image back into use")
	}
}

// TestScannerBeingDeleted: a Scanner that is being deleted counts as deleted.
func TestScannerBeingDeleted(t *testing.T) {
	now := metav1.NewTime(noon)
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.DeletionTimestamp, s.Finalizers = &now, []string{"example.com/x"} })
	u := newUnit(t, scanner)
	u.must(u.store.SetUsage(t.Context(), store.ImageUsage{Scanner: "scanner-uid", Namespace: fixtureNamespace, Key: keyOfImage(web), Engine: "scripted"}))
	_, err := u.scanners.Reconcile(t.Context(), requestFor(scanner))
	u.must(err)
	if used, err := u.store.InUse(t.Context(), "scripted", keyOfImage(web), store.Cluster); err != nil || used {
		t.Errorf("its image is in use: %v, %v", used, err)
	}
}

// TestEngineErrorKeepsStatus: if an engine's state cannot be read, the status stays and the error is returned.
func TestEngineErrorKeepsStatus(t *testing.T) {
	u := newUnit(t, theScanner())
	before := u.reconcileScanner()
	u.engine.versionErr = errors.New("the database is locked")
	if _, err := u.scanners.Reconcile(t.Context(), requestFor(before)); err == nil {
		t.Error("the fault is not reported")
	}
	var after v1alpha1.Scanner
	u.must(u.client.Get(t.Context(), client.ObjectKeyFromObject(before), &after))
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		t.Errorf("the status changes:\n%s", diff)
	}
}

// TestScannerEvents: each relevant change causes one event.
func TestScannerEvents(t *testing.T) {
	scanner := theScanner()
	u := newUnit(t, scanner)
	u.reconcileScanner()
	if got := u.takeEvents(); len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), "Normal NoImages no running pod is selected") {
		t.Errorf("events %q, want that the engine works and that there are no images", got)
	}
	u.must(u.client.Create(t.Context(), aPod(fixtureNamespace, "a", waiting("c", "nginx", "ErrImagePull"))))
	u.reconcileScanner()
	want := []string{"Warning SomeImagesFailed 1 of 1 images could not be scanned (NotPulled: docker.io/library/nginx:latest)"}
	if diff := cmp.Diff(want, u.takeEvents()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	u.reconcileScanner()
	if got := u.takeEvents(); len(got) != 0 {
		t.Errorf("events %q for nothing", got)
	}
}

// TestReportsNotWritten: a Scanner has the condition while Reports for other tools cannot be written, and is ready all the same.
func TestReportsNotWritten(t *testing.T) {
	u := newUnit(t, theScanner())
	find := func() *metav1.Condition {
		return meta.FindStatusCondition(u.reconcileScanner().Status.Conditions, v1alpha1.ConditionReportsNotWritten)
	}
	reason := v1alpha1.ReasonOpenReportsMissing
	u.scanners.ReportsProblem = func() (string, string) { return reason, "install it" }
	if got := find(); got == nil || got.Status != metav1.ConditionTrue || got.Reason != reason || got.Message != "install it" {
		t.Errorf("the condition is %+v, want it true because of %s", got, reason)
	}
	if got := u.readyReason(); got != v1alpha1.ReasonNoImages {
		t.Errorf("Ready has the reason %s, want %s", got, v1alpha1.ReasonNoImages)
	}
	reason = ""
	if got := find(); got != nil {
		t.Errorf("the condition is still %+v", got)
	}
}
