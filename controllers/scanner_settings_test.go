package controllers

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestScannerBackendSettingsMismatch: the API server rejects settings of an engine other than the type.
func TestScannerBackendSettingsMismatch(t *testing.T) {
	p := newUnattendedEnv(t)
	err := p.createScanner("mismatch", spec{"backend": spec{"type": "Clair", "clair": spec{"url": "https://clair.example.com"}, "grype": spec{"job": spec{}}}})
	p.Expect(err).To(MatchError(And(ContainSubstring("spec.backend"), ContainSubstring("grype may be set only when type is Grype"))))
}

// TestScannerNameTooLong: the API server rejects a name that is too long for an annotation key.
func TestScannerNameTooLong(t *testing.T) {
	p := newUnattendedEnv(t)
	p.Expect(p.createScanner(repeatToLength("n", 64), with(nil))).To(MatchError(ContainSubstring("metadata.name must be at most 63 characters")))
}

// TestScannerBackendDisabled: the conditions report an engine that this operator runs without.
func TestScannerBackendDisabled(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "disabled", withClair("https://clair.example.com"))
	p.create(scanner)
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(conditionsOf(status.Conditions)).To(ContainElements("BackendAvailable=False BackendDisabled", "Ready=False BackendDisabled", "Stalled=True BackendDisabled"))
	})
}

// TestScannerPodSelectorWrongOperator: the API server accepts the selector. The Scanner's condition reports it until it is corrected.
// Another Scanner of the namespace works all the time.
func TestScannerPodSelectorWrongOperator(t *testing.T) {
	p := newTestEnv(t)
	wrong := aScanner(p.namespace, "wrong", func(s *v1alpha1.Scanner) {
		s.Spec.PodSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like", Values: []string{"w*"}}}}
	})
	right := aScanner(p.namespace, "right")
	p.create(wrong, right, aPod(p.namespace, "a", running("main", web)))
	p.waitForStatus(wrong, func(g Gomega, status v1alpha1.ScannerStatus) {
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		g.Expect(ready).NotTo(BeNil())
		g.Expect(ready.Reason).To(Equal(v1alpha1.ReasonInvalidPodSelector))
		g.Expect(ready.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(ready.Message).To(And(HavePrefix("spec.podSelector: "), ContainSubstring(`"Like" is not a valid label selector operator`)))
		g.Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStalled)).To(BeTrue())
	})
	p.waitForPhases(right, phasesOf{web: v1alpha1.PhaseScanned})
	p.Expect(p.scans(wrong)).To(BeEmpty())
	p.patchScanner(refresh(p, wrong), func(s *v1alpha1.Scanner) { s.Spec.PodSelector = nil })
	p.waitForPhases(wrong, phasesOf{web: v1alpha1.PhaseScanned})
}

// TestScannerExcludeGlobMalformed: every text is a valid glob, in which only "*" and "?" are special. A glob that is malformed in another
// syntax excludes only what it matches literally, and breaks nothing.
func TestScannerExcludeGlobMalformed(t *testing.T) {
	p := newTestEnv(t)
	scanner := aScanner(p.namespace, "globs", excluding("[", "[a-", "{a,b", `\`, "(", "!*nothing", "**[z-a]**", "https://*/x"))
	p.create(scanner, aPod(p.namespace, "a", running("main", web)))
	p.waitForPhases(scanner, phasesOf{web: v1alpha1.PhaseScanned})
	p.waitForStatus(scanner, func(g Gomega, status v1alpha1.ScannerStatus) {
		g.Expect(status.Images).To(Equal(v1alpha1.ImageCounts{Total: 1, Scanned: 1}))
	})
}

// TestScannerClairNotContactedYet: a Scanner whose Clair was unavailable when the manager ended stays so until the new manager has contacted
// Clair, although the store has vulnerability data. Otherwise receivers would get a message that scans succeed again.
func TestScannerClairNotContactedYet(t *testing.T) {
	const url = "http://clair.example.com"
	outage := metav1.Condition{
		Type: v1alpha1.ConditionBackendAvailable, Status: metav1.ConditionFalse, Reason: backend.ReasonClairUnavailable, Message: "no answer",
		ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(noon.Add(-24 * time.Hour).UTC()),
	}
	scanner := theScanner(func(s *v1alpha1.Scanner) {
		s.Spec.Backend = v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: &v1alpha1.ClairBackend{URL: url}}
		s.Status.Conditions = []metav1.Condition{outage}
	})
	u := newUnit(t, scanner)
	settings := config.Default()
	settings.Clair.Instances = []config.ClairInstance{{URL: url}}
	// Nothing runs these engines, so no request is sent.
	engines := clair.NewEngines(clair.Options{Store: u.store, Config: settings, Clock: clocktesting.NewFakeClock(noon), Log: logr.Discard()})
	u.scanners.Backends = backend.Choosers{v1alpha1.BackendClair: engines.For}
	u.must(u.store.SetDataVersion(t.Context(), engines.For(scanner).Engine(), store.DataVersion{Version: "v1", Built: noon, Tool: clair.Tool}))
	after := u.reconcileScanner()
	got := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionBackendAvailable)
	if !got.LastTransitionTime.Equal(&outage.LastTransitionTime) || got.Status != outage.Status || got.Reason != outage.Reason || got.Message != outage.Message {
		t.Errorf("BackendAvailable is %+v, want it unchanged: %+v", got, outage)
	}
	notifications := &NotificationReconciler{
		Client: u.client, Store: u.store, Backends: u.scanners.Backends, Clock: u.clock, Exceptions: u.exceptions, Inventory: u.inventory,
		Thresholds: health.Thresholds{ScansFailing: 6 * time.Hour, ImagesFailed: time.Hour},
	}
	scope, err := notifications.newScope(t.Context(), after)
	u.must(err)
	if notices := scope.coverage.Notices; len(notices) != 1 || notices[0].Kind != announce.NoticeScansFailing || notices[0].Reason != backend.ReasonClairUnavailable {
		t.Errorf("the notices are %+v, want that no scan succeeds", notices)
	}
}

// TestScannerClairSettings: invalid Clair settings that the API server cannot detect are reported in the condition, with the field and the
// remedy, and no request is sent.
func TestScannerClairSettings(t *testing.T) {
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(server.Close)
	for name, tt := range map[string]struct {
		settings v1alpha1.ClairBackend
		reason   string
		message  []string
	}{
		"another Clair": {v1alpha1.ClairBackend{URL: "https://elsewhere.example.com"}, backend.ReasonClairNotAllowed, []string{"spec.backend.clair.url", "clair.instances", server.URL}},
		"a password":    {v1alpha1.ClairBackend{URL: "https://user:hunter2@clair.example.com"}, backend.ReasonClairSettings, []string{"spec.backend.clair.url"}},
		"a query":       {v1alpha1.ClairBackend{URL: server.URL + "?a=b"}, backend.ReasonClairSettings, []string{"spec.backend.clair.url"}},
		"no host":       {v1alpha1.ClairBackend{URL: "https://"}, backend.ReasonClairSettings, []string{"spec.backend.clair.url"}},
	} {
		t.Run(name, func(t *testing.T) {
			scanner := theScanner(func(s *v1alpha1.Scanner) {
				s.Spec.Backend = v1alpha1.Backend{Type: v1alpha1.BackendClair, Clair: &tt.settings}
			})
			u := newUnit(t, scanner)
			settings := config.Default()
			settings.Clair.Instances = []config.ClairInstance{{URL: server.URL}}
			engines := clair.NewEngines(clair.Options{Store: u.store, Config: settings, Clock: clocktesting.NewFakeClock(noon), Log: logr.Discard()})
			u.scanners.Backends = backend.Choosers{v1alpha1.BackendClair: engines.For}
			after := u.reconcileScanner()
			condition := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionBackendAvailable)
			if condition.Status != metav1.ConditionFalse || condition.Reason != tt.reason {
				t.Errorf("BackendAvailable is %s %s: %s; want False %s", condition.Status, condition.Reason, condition.Message, tt.reason)
			}
			for _, want := range tt.message {
				if !strings.Contains(condition.Message, want) {
					t.Errorf("the message %q does not say %q", condition.Message, want)
				}
			}
			if strings.Contains(condition.Message, "hunter2") || after.Status.VulnerabilityData != nil || len(after.Finalizers) > 0 {
				t.Errorf("message %q, data %v, finalizers %q", condition.Message, after.Status.VulnerabilityData, after.Finalizers)
			}
		})
	}
	if asked {
		t.Error("somebody was asked")
	}
}
