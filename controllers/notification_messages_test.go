package controllers

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// notifying gives a Scanner receivers with a group wait and interval of one second.
func notifying(names ...string) func(*v1alpha1.Scanner) {
	return func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = nil
		for _, name := range names {
			receiver := receiverNamed(name)
			receiver.Slack.WebhookURLSecretRef.Name = name
			receiver.GroupWait, receiver.GroupInterval = &metav1.Duration{Duration: time.Second}, &metav1.Duration{Duration: time.Second}
			s.Spec.Notifications = append(s.Spec.Notifications, receiver)
		}
	}
}

// sentMessages returns the messages of a Scanner in the place's namespace, oldest first: the receiver, the kind, and the images of its sections.
func (p *testEnv) sentMessages(scanner string) func() []string {
	return func() (reported []string) {
		for _, d := range p.slack.of(p.namespace) {
			if d.Message.Scanner != scanner {
				continue
			}
			words := []string{d.Receiver.SecretName, string(d.Message.Kind)}
			for _, section := range d.Message.Sections {
				words = append(words, section.Repository[strings.LastIndex(section.Repository, "/")+1:])
			}
			reported = append(reported, strings.Join(words, " "))
		}
		return reported
	}
}

// scanBefore makes the operator scan an image before the Scanner under test is created, so that the image belongs to that Scanner's baseline.
func (p *testEnv) scanBefore(image string) {
	p.t.Helper()
	p.create(aPod(p.namespace, "first", running("main", p.unique(image))))
	early := aScanner(p.namespace, "early")
	p.create(early)
	p.waitForPhases(early, phasesOf{p.unique(image): v1alpha1.PhaseScanned})
	p.delete(early)
}

// TestSuspendedScannerIsSilent: a suspended Scanner sends nothing. After it is resumed, one message has what was found meanwhile, and
// nothing that was announced before.
func TestSuspendedScannerIsSilent(t *testing.T) {
	p := newTestEnv(t)
	p.scanBefore("vulnerable")
	scanner := aScanner(p.namespace, "all", notifying("team"))
	p.create(scanner)
	p.Eventually(p.sentMessages("all"), eventuallyTimeout).Should(Equal([]string{"team FirstScan"}))
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) })
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.ObservedGeneration).To(Equal(scanner.Generation))
	})
	p.create(
		aPod(p.namespace, "second", running("main", p.unique("vulnerable-second"))),
		aPod(p.namespace, "third", running("main", p.unique("vulnerable-third"))),
	)
	p.Consistently(p.sentMessages("all"), consistentlyDuration).Should(HaveLen(1))
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(false) })
	p.waitForPhases(scanner, phasesOf{
		p.unique("vulnerable"): v1alpha1.PhaseScanned, p.unique("vulnerable-second"): v1alpha1.PhaseScanned, p.unique("vulnerable-third"): v1alpha1.PhaseScanned,
	})
	p.Eventually(p.sentMessages("all"), eventuallyTimeout).Should(Equal([]string{"team FirstScan", "team News vulnerable-second vulnerable-third"}))
	p.Consistently(p.sentMessages("all"), consistentlyDuration).Should(HaveLen(2), "there is no second summary")
}

// TestReceiversChange: an added receiver gets a summary of its own. A receiver that is added again soon continues where it was, with what
// was found meanwhile. The other receivers are not affected.
func TestReceiversChange(t *testing.T) {
	p := newTestEnv(t)
	p.scanBefore("vulnerable")
	scanner := aScanner(p.namespace, "all", notifying("team"))
	p.create(scanner)
	p.Eventually(p.sentMessages("all"), eventuallyTimeout).Should(Equal([]string{"team FirstScan"}))

	p.patchScanner(scanner, notifying("team", "boss"))
	p.Eventually(p.sentMessages("all"), eventuallyTimeout).Should(Equal([]string{"team FirstScan", "boss FirstScan"}))
	p.patchScanner(scanner, notifying("boss"))
	p.create(aPod(p.namespace, "second", running("main", p.unique("vulnerable-second"))))
	p.Eventually(p.sentMessages("all"), eventuallyTimeout).Should(Equal([]string{"team FirstScan", "boss FirstScan", "boss News vulnerable-second"}))
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Receivers).To(HaveLen(1))
		g.Expect(status.Receivers[0].Name).To(Equal("boss"))
	})

	p.patchScanner(scanner, notifying("boss", "team"))
	all := []string{"team FirstScan", "boss FirstScan", "boss News vulnerable-second", "team News vulnerable-second"}
	p.Eventually(p.sentMessages("all"), eventuallyTimeout).Should(Equal(all))
	p.patchScanner(scanner, func(s *v1alpha1.Scanner) { s.Spec.Notifications[0].Slack.WebhookURLSecretRef.Name = "another-channel" })
	p.Consistently(p.sentMessages("all"), consistentlyDuration).Should(Equal(all), "another address for the same receiver is no reason to begin anew")
}

// TestScannersNotifySeparately: two Scanners that select the same pods each send to their own receivers once. A Scanner with a new name begins
// with a summary.
func TestScannersNotifySeparately(t *testing.T) {
	p := newTestEnv(t)
	p.scanBefore("vulnerable")
	one, two := aScanner(p.namespace, "one", notifying("team")), aScanner(p.namespace, "two", notifying("team", "boss"))
	p.create(one, two)
	p.Eventually(p.sentMessages("one"), eventuallyTimeout).Should(Equal([]string{"team FirstScan"}))
	p.Eventually(p.sentMessages("two"), eventuallyTimeout).Should(ConsistOf("team FirstScan", "boss FirstScan"))
	p.delete(one)
	p.create(aScanner(p.namespace, "renamed", notifying("team")), aPod(p.namespace, "second", running("main", p.unique("vulnerable-second"))))
	p.Eventually(p.sentMessages("renamed"), eventuallyTimeout).Should(ContainElement("team FirstScan"))
	p.Eventually(p.sentMessages("two"), eventuallyTimeout).Should(ConsistOf("team FirstScan", "boss FirstScan", "team News vulnerable-second", "boss News vulnerable-second"))
	p.Consistently(p.sentMessages("one"), consistentlyDuration).Should(HaveLen(1), "nobody speaks for a Scanner that has gone")
}

// TestDeselectedImagesAreNotAnnounced: images that a Scanner does not cover any more are not announced, neither when they are deselected nor when they
// are selected again.
func TestDeselectedImagesAreNotAnnounced(t *testing.T) {
	p := newTestEnv(t)
	p.scanBefore("vulnerable")
	scanner := aScanner(p.namespace, "all", notifying("team"))
	p.create(scanner)
	p.Eventually(p.sentMessages("all"), eventuallyTimeout).Should(Equal([]string{"team FirstScan"}))
	for _, change := range []func(*v1alpha1.Scanner){
		selecting("tier", "none"), func(s *v1alpha1.Scanner) { s.Spec.PodSelector = nil },
		excluding("*"), func(s *v1alpha1.Scanner) { s.Spec.Images.Exclude = nil },
		withClair("https://clair.example.com"), func(s *v1alpha1.Scanner) { s.Spec.Backend = v1alpha1.Backend{Type: v1alpha1.BackendGrype} },
	} {
		p.patchScanner(scanner, change)
		p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
			g.Expect(status.ObservedGeneration).To(Equal(scanner.Generation))
			g.Expect(status.Images.Pending).To(BeZero())
		})
	}
	p.Consistently(p.sentMessages("all"), consistentlyDuration).Should(HaveLen(1))
}

// TestPendingMessageSurvivesChange: a message that was not delivered yet when the Scanner is changed is sent after the change is reverted, once.
func TestPendingMessageSurvivesChange(t *testing.T) {
	for name, tt := range map[string]struct {
		change, back func(*v1alpha1.Scanner)
	}{
		"suspended": {
			func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(true) }, func(s *v1alpha1.Scanner) { s.Spec.Suspend = ptr.To(false) },
		},
		"the receiver removed": {
			func(s *v1alpha1.Scanner) { s.Spec.Notifications = nil },
			func(s *v1alpha1.Scanner) { s.Spec.Notifications = []v1alpha1.Receiver{slackReceiver("team")} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNotifyWorld(t, nil)
			w.saveReport(finding.Critical)
			w.receivers.outcomes["slack-team"] = announce.Outcome{Result: announce.RateLimited, RetryAfter: time.Minute}
			w.reconcile()
			_, first := w.reconcileAfter(30 * time.Second)
			if len(first) != 1 {
				t.Fatalf("%d attempts, want 1", len(first))
			}
			delete(w.receivers.outcomes, "slack-team")
			w.updateScanner(tt.change)
			if next, sent := w.reconcileAfter(10 * time.Minute); len(sent) != 0 || next != 0 {
				t.Errorf("meanwhile %d messages are sent, and the next look is in %s; want neither", len(sent), next)
			}
			w.updateScanner(tt.back)
			_, sent := w.reconcileAfter(time.Minute)
			if len(sent) != 1 || sent[0].Message.ID != first[0].Message.ID {
				t.Fatalf("messages %+v, want the one that was on its way", sent)
			}
			if next, sent := w.reconcileAfter(time.Hour); len(sent) != 0 || next != noticeInterval {
				t.Errorf("afterwards %d messages and another look in %s, want nothing more", len(sent), next)
			}
		})
	}
}

// updateScanner updates the Scanner as a user would.
func (w *notifyWorld) updateScanner(change func(*v1alpha1.Scanner)) {
	w.t.Helper()
	var scanner v1alpha1.Scanner
	w.must(w.client.Get(w.t.Context(), requestFor(w.scanner).NamespacedName, &scanner))
	change(&scanner)
	scanner.Generation++
	w.must(w.client.Update(w.t.Context(), &scanner))
}

// TestSuspendedWhileAJobRuns: while the Scanner is suspended, the engine is not called. The result of a Job that ends meanwhile is used
// when the Scanner is resumed.
func TestSuspendedWhileAJobRuns(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "a Job runs", time.Minute), nil)
	if after, _ := u.reconcile(scan); after.Status.Phase != v1alpha1.PhaseCataloging {
		t.Fatalf("the image is %s, want a Job to run", after.Status.Phase)
	}
	scanner.Spec.Suspend = ptr.To(true)
	u.update(scanner)
	u.engine.index = func(backend.Image) (backend.Progress, error) {
		t.Error("the engine is asked to go on")
		return backend.Done, nil
	}
	u.saveReport(web, vulnerability("CVE-2024-0001", finding.Critical))
	after, _ := u.reconcile(scan)
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	if ready.Reason != v1alpha1.ReasonSuspended || meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionReconciling) {
		t.Errorf("conditions %q, want it said that the Scanner is suspended", conditionsOf(after.Status.Conditions))
	}
	if queued, err := u.store.QueueLength(t.Context(), "scripted"); err != nil || queued != 0 {
		t.Errorf("%d images are to be matched, %v; want none", queued, err)
	}
	if got := u.reconcileScanner().Status.Images; got.Total != 1 || got.Scanned+got.Pending != 1 {
		t.Errorf("the Scanner has %+v", got)
	}

	scanner = u.reconcileScanner()
	scanner.Spec.Suspend = ptr.To(false)
	u.update(scanner)
	if after, _ := u.reconcile(scan); after.Status.Phase != v1alpha1.PhaseScanned || after.Status.Findings.Critical != 1 {
		t.Errorf("the image is %s with %+v, want what the Job found", after.Status.Phase, after.Status.Findings)
	}
}

// TestSuspendedIsNotMatched: new data causes no match for a suspended Scanner until it is resumed.
func TestSuspendedIsNotMatched(t *testing.T) {
	scanner := theScanner()
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	u.saveReport(web)
	u.reconcile(scan)
	queued := func() int {
		t.Helper()
		n, err := u.store.QueueLength(t.Context(), "scripted")
		u.must(err)
		return n
	}
	u.must(u.store.SetDataVersion(t.Context(), "scripted", store.DataVersion{Version: "v2"}))
	if got := queued(); got != 1 {
		t.Fatalf("%d images are to be matched with new data, want 1", got)
	}
	for _, want := range []int{0, 1} {
		scanner.Spec.Suspend = ptr.To(want == 0)
		u.update(scanner)
		u.reconcile(scan)
		if got := queued(); got != want {
			t.Errorf("suspended %v: %d images are to be matched, want %d", want == 0, got, want)
		}
	}
}

// TestChangedSettingsWhileAJobRuns: the next call of the engine uses the changed settings of the Scanner.
func TestChangedSettingsWhileAJobRuns(t *testing.T) {
	scanner := theScanner(func(s *v1alpha1.Scanner) { s.Spec.Backend.Grype = &v1alpha1.GrypeBackend{} })
	scan := scanOf(scanner, web)
	u := newUnit(t, scanner, scan, aPod(fixtureNamespace, "a", running("main", web)))
	u.engine.index = fixedResult(backend.Waiting(v1alpha1.ReasonCataloging, "a Job runs", time.Minute), nil)
	u.reconcile(scan)
	scanner.Spec.Backend.Grype.Job.PriorityClassName = "low"
	u.update(scanner)
	after, _ := u.reconcile(scan)
	if len(u.engine.indexCalls) != 2 || u.engine.indexCalls[0].Job.PriorityClassName != "" || u.engine.indexCalls[1].Job.PriorityClassName != "low" {
		t.Errorf("the engine was asked for %+v, want the new settings the second time", u.engine.indexCalls)
	}
	if after.Status.Phase != v1alpha1.PhaseCataloging || after.Status.Attempts != 0 {
		t.Errorf("the image is %s after %d attempts, want the Job to go on", after.Status.Phase, after.Status.Attempts)
	}
}
