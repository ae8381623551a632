package controllers

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// newAlertWorld returns a notifyWorld whose receiver is an Alertmanager.
func newAlertWorld(t *testing.T) *notifyWorld {
	t.Helper()
	return newNotifyWorld(t, func(s *v1alpha1.Scanner) {
		s.Spec.Notifications = []v1alpha1.Receiver{{Name: "alerts", Alertmanager: &v1alpha1.AlertmanagerReceiver{SecretRef: v1alpha1.SecretReference{Name: "alertmanager"}}}}
	})
}

// rescan saves a report by newer data.
func (w *notifyWorld) rescan(severities ...finding.Severity) {
	w.t.Helper()
	w.data++
	w.saveReport(severities...)
}

// alertIDs returns the vulnerabilities of a delivery's alerts.
func alertIDs(d announce.Delivery) (ids []string) {
	for _, alert := range d.Alerts.List {
		ids = append(ids, alert.Vulnerability)
	}
	slices.Sort(ids)
	return ids
}

// TestAlerts: an Alertmanager gets all that is present every five minutes, and nothing that is below the threshold or fixed.
func TestAlerts(t *testing.T) {
	w := newAlertWorld(t)
	w.saveReport(finding.Critical, finding.High, finding.Low)
	next, sent := w.reconcile()
	if len(sent) != 1 || next != 5*time.Minute {
		t.Fatalf("%d deliveries, the next after %s, want 1 and 5m", len(sent), next)
	}
	if want := (announce.ReceiverRef{Type: announce.ReceiverTypeAlertmanager, Namespace: "shop", SecretName: "alertmanager", SecretKey: "address"}); !cmp.Equal(want, sent[0].Receiver) {
		t.Errorf("receiver %+v, want %+v", sent[0].Receiver, want)
	}
	want := &announce.Alerts{EndsAt: notifyNoon.Add(20 * time.Minute), List: []announce.Alert{
		{Namespace: "shop", Workload: "Deployment/web", Image: "docker.io/library/web", Vulnerability: "CVE-2026-0001", Package: "openssl", Version: "1", Severity: finding.Critical, StartsAt: notifyNoon},
		{Namespace: "shop", Workload: "Deployment/web", Image: "docker.io/library/web", Vulnerability: "CVE-2026-0002", Package: "openssl", Version: "1", Severity: finding.High, StartsAt: notifyNoon},
	}}
	if diff := cmp.Diff(want, sent[0].Alerts); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	w.wantEvents("Normal Delivered receiver alerts took a message")
	if _, sent := w.reconcileAfter(4 * time.Minute); len(sent) != 0 {
		t.Errorf("%d deliveries before five minutes have passed, want none", len(sent))
	}
	_, sent = w.reconcileAfter(time.Minute)
	if len(sent) != 1 || !cmp.Equal(want.List, sent[0].Alerts.List) || !sent[0].Alerts.EndsAt.Equal(notifyNoon.Add(25*time.Minute)) {
		t.Errorf("deliveries after five minutes %+v, want the same alerts with a later end", sent)
	}
	// Two versions of the data must lack a finding before its end is proven.
	for _, want := range [][]string{{"CVE-2026-0001", "CVE-2026-0002"}, {"CVE-2026-0001"}} {
		w.rescan(finding.Critical)
		if _, sent = w.reconcileAfter(5 * time.Minute); len(sent) != 1 || !slices.Equal(alertIDs(sent[0]), want) {
			t.Errorf("deliveries %+v, want alerts %q", sent, want)
		}
	}
	if state := w.state("alerts"); state.LastMessage != "1 alert" || state.LastError != nil {
		t.Errorf("state %+v, want 1 alert", state)
	}
}

// TestAlertmanagerAwayForADay: while an Alertmanager is away, one event names the reason. When it is back, it gets exactly what is present.
func TestAlertmanagerAwayForADay(t *testing.T) {
	w := newAlertWorld(t)
	w.saveReport(finding.Critical)
	w.reconcile()
	w.receivers.outcomes["alertmanager"] = announce.Outcome{Result: announce.Temporary, Reason: announce.ReasonNetwork, Message: "no connection to Alertmanager"}
	attempts := 0
	for elapsed := time.Duration(0); elapsed < 24*time.Hour; {
		switch elapsed {
		case 0:
			w.rescan()
		case 5 * time.Minute:
			w.rescan(finding.Low, finding.High)
		}
		next, sent := w.reconcileAfter(5 * time.Minute)
		elapsed += 5 * time.Minute
		if attempts += len(sent); next > 5*time.Minute {
			t.Fatalf("the next attempt after %s, want 5m at most", next)
		}
	}
	if state := w.state("alerts"); attempts < 200 || state.LastError == nil || state.LastError.Reason != announce.ReasonNetwork {
		t.Errorf("%d attempts in a day, state %+v, want one every five minutes, and the reason", attempts, state)
	}
	w.wantEvents("Normal Delivered receiver alerts took a message", "Warning Network receiver alerts: no connection to Alertmanager")
	if len(w.events.Events) != 0 {
		t.Errorf("%d further events, want none", len(w.events.Events))
	}
	delete(w.receivers.outcomes, "alertmanager")
	_, sent := w.reconcileAfter(5 * time.Minute)
	if len(sent) != 1 || !slices.Equal(alertIDs(sent[0]), []string{"CVE-2026-0002"}) {
		t.Errorf("deliveries %+v, want what is present", sent)
	}
	w.wantEvents("Normal Delivered receiver alerts took a message, after it had not")
}

// TestAlertsOfKnownReceiver: findings that a receiver of the same name was notified of before have alerts, too. The clock that is set back delays
// none.
func TestAlertsOfKnownReceiver(t *testing.T) {
	w := newNotifyWorld(t, nil)
	w.saveReport(finding.Critical)
	w.reconcile()
	w.reconcileAfter(time.Minute)
	w.updateScanner(func(s *v1alpha1.Scanner) {
		r := &s.Spec.Notifications[0]
		r.Slack, r.Alertmanager = nil, &v1alpha1.AlertmanagerReceiver{SecretRef: v1alpha1.SecretReference{Name: "alertmanager"}}
	})
	_, sent := w.reconcileAfter(5 * time.Minute)
	if len(sent) != 1 || sent[0].Alerts == nil || !slices.Equal(alertIDs(sent[0]), []string{"CVE-2026-0001"}) {
		t.Errorf("deliveries %+v, want the finding", sent)
	}
	w.reconcileAfter(-24 * time.Hour)
	if _, sent := w.reconcileAfter(5 * time.Minute); len(sent) != 1 {
		t.Errorf("%d deliveries within five minutes after the clock was set back, want 1", len(sent))
	}
}
