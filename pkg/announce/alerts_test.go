package announce

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// alertSender stands for an Alertmanager: it keeps the last delivery, and answers with an outcome.
type alertSender struct {
	last    *Alerts
	outcome Outcome
}

func (a *alertSender) Send(_ context.Context, d Delivery) Outcome {
	a.last = d.Alerts
	if a.outcome.Result == "" {
		return Outcome{Result: Delivered}
	}
	return a.outcome
}

// alerts returns what an Alertmanager gets now; nil if nothing is due.
func (s *scenario) alerts(sender *alertSender) *Alerts {
	s.t.Helper()
	s.settings.Address.Type = ReceiverTypeAlertmanager
	sender.last = nil
	d := Dispatcher{Store: s.store, Sender: sender, Random: s.random, Now: func() time.Time { return s.now }}
	result, err := d.Dispatch(context.Background(), scannerUID, s.settings, s.coverage)
	s.must(err)
	s.last = result
	return sender.last
}

// firing returns "namespace vulnerability severity" of the alerts that an Alertmanager gets five minutes later.
func (s *scenario) firing() (all []string) {
	s.t.Helper()
	s.pass(alertInterval)
	for _, a := range s.alerts(&alertSender{}).List {
		all = append(all, fmt.Sprintf("%s %s %s", a.Namespace, a.Vulnerability, a.Severity))
	}
	slices.Sort(all)
	return all
}

// TestWorstAlertFiresInAnyRepository: of more findings than are read, the worst fire, whatever their images are called.
func TestWorstAlertFiresInAnyRepository(t *testing.T) {
	s := newScenario(t)
	for i := range 60 {
		name := fmt.Sprintf("registry.example.com/app-%02d", i)
		s.image(name, image.Scanned)
		s.addFindings(name, finding.High, 1, 100)
	}
	const last = "registry.example.com/web"
	s.addFindings(last, finding.Critical, 9000, 1, func(f *finding.Finding) { f.KnownExploited = true })
	alerts := s.alerts(&alertSender{})
	if len(alerts.List) != maxAlerts || alerts.List[0].Image != last || alerts.More != 6001-maxAlerts {
		t.Errorf("%d alerts and %d more, the first is about %s of %s; want %d, the first about the exploited one of %s",
			len(alerts.List), alerts.More, alerts.List[0].Vulnerability, alerts.List[0].Image, maxAlerts, last)
	}
}

// TestMoreAlertsThanFire: what is not more urgent starts no further alert, and what is more urgent ends none until there are twice as many.
func TestMoreAlertsThanFire(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.High, 1000, maxAlerts)
	sender := &alertSender{}
	s.alerts(sender)
	after := func(what string, fire, more, ended int) {
		t.Helper()
		s.pass(alertInterval)
		alerts := s.alerts(sender)
		if len(alerts.List) != fire || alerts.More != more || len(alerts.Ended) != ended {
			t.Errorf("%s: %d alerts, %d more, %d end; want %d, %d more, %d end", what, len(alerts.List), alerts.More, len(alerts.Ended), fire, more, ended)
		}
	}
	after("nothing has changed", maxAlerts, 0, 0)
	s.data++
	s.addFindings("web", finding.High, 1, 1, func(f *finding.Finding) { f.EPSS = 0.09 })
	after("a finding of equal urgency", maxAlerts, 1, 0)
	s.image("web", image.Failed)
	s.findings["web"] = s.findings["web"][maxAlerts:]
	s.report("web")
	after("the ends of those that fired are not proven", maxAlerts, 1, 0)
	s.data++
	s.addFindings("db", finding.Critical, 5000, 2)
	after("two findings that are more urgent", maxAlerts+2, 1, 0)
	s.addFindings("db", finding.Critical, 6000, maxAlerts)
	after("more findings that are more urgent than can start", 2*maxAlerts, 3, 0)
	s.addFindings("cache", finding.Critical, 9000, 3, func(f *finding.Finding) { f.KnownExploited = true })
	after("three findings that are still more urgent", 2*maxAlerts, 6, 0)
}

// TestLargeAlerts: the notifier takes the alerts of a receiver, whatever names images contain. What does not fit is counted.
func TestLargeAlerts(t *testing.T) {
	for name, long := range map[string]string{"plain": strings.Repeat("x", 250), "escaped": strings.Repeat("<", 250)} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			inAll := func(f *finding.Finding) {
				f.Package.Name, f.Package.Version, f.FixVersions = long, long, []string{long}
			}
			sender := &alertSender{}
			for _, severity := range []finding.Severity{finding.High, finding.Critical} {
				s.data++
				s.addFindings(fmt.Sprint(severity, long)[:250], severity, int(severity)*1000, maxAlerts, inAll)
				s.pass(alertInterval)
				alerts := s.alerts(sender)
				encoded, err := json.Marshal(Delivery{Alerts: alerts})
				s.must(err)
				if len(encoded) > MaxDeliveryBytes || len(alerts.List) == 0 || alerts.List[0].Severity != severity {
					t.Errorf("%d alerts, %d ended, in %d bytes; want the worst first and at most %d bytes", len(alerts.List), len(alerts.Ended), len(encoded), MaxDeliveryBytes)
				}
			}
		})
	}
}

// TestAlertBelowTheWorst: an alert fires while its finding is present, also if others become so many and so much worse that its finding is not read with
// them. It has the finding's present severity then, and ends with the finding.
func TestAlertBelowTheWorst(t *testing.T) {
	for name, worse := range map[string]func(*finding.Finding){
		"more urgent":     func(f *finding.Finding) { f.Severity = finding.Critical },
		"equally urgent":  func(f *finding.Finding) { f.EPSS = 0.09 },
		"known exploited": func(f *finding.Finding) { f.KnownExploited = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.addFindings("web", finding.High, 9000, 2)
			sender := &alertSender{}
			s.alerts(sender)
			mine := func(alerts *Alerts) (severities []finding.Severity) {
				for _, a := range alerts.List {
					if a.Image == "web" {
						severities = append(severities, a.Severity)
					}
				}
				return severities
			}
			s.data++
			s.addFindings("db", finding.High, 1, maxAlertFindings, worse)
			s.pass(alertInterval)
			alerts := s.alerts(sender)
			if got := mine(alerts); len(got) != 2 || len(alerts.Ended) != 0 || len(alerts.List)+alerts.More != maxAlertFindings+2 {
				t.Fatalf("%d alerts of web, %d alerts and %d more, %d end; want 2, %d in all, no end", len(got), len(alerts.List), alerts.More, len(alerts.Ended), maxAlertFindings+2)
			}
			s.data++
			s.findings["web"][0].Severity = finding.Medium
			s.settings.Filter.MinSeverity = finding.Medium
			s.report("web")
			s.pass(alertInterval)
			alerts = s.alerts(sender)
			if got := mine(alerts); !slices.Equal(got, []finding.Severity{finding.High, finding.Medium}) || len(alerts.Ended) != 1 {
				t.Errorf("alerts of web %v, %d end; want High and Medium, and the end of one that was High", got, len(alerts.Ended))
			}
			for range 2 {
				s.data++
				s.pass(24 * time.Hour)
				s.findings["web"] = s.findings["web"][:1]
				s.report("web")
			}
			s.pass(alertInterval)
			if alerts = s.alerts(sender); len(mine(alerts)) != 1 || len(alerts.Ended) != 1 || alerts.Ended[0].Image != "web" {
				t.Errorf("alerts of web %v, %d end; want one, and the end of what is fixed", mine(alerts), len(alerts.Ended))
			}
		})
	}
}

// TestAlertsFireUntilTheirEndIsProven: what is not known is not resolved.
func TestAlertsFireUntilTheirEndIsProven(t *testing.T) {
	app := func(reference string) store.Workload {
		return store.Workload{Namespace: "shop", Kind: "Deployment", Name: "app", Container: "c", Repository: "web", Reference: reference}
	}
	rollOut := func(s *scenario, state image.State) {
		s.setUsed("next web", app("web:2.0"))
		s.must(s.store.SetUsage(t.Context(), store.ImageUsage{Scanner: scannerUID, Namespace: "shop", Key: keyOf("web"), Engine: grype}))
		s.coverage.Images = []Image{{Key: "next", Repositories: []string{"web"}, State: state, Current: true}}
	}
	changeEngine := func(s *scenario) {
		s.settings.Filter.Engine = "clair"
		s.must(s.store.SetUsage(t.Context(), store.ImageUsage{Scanner: scannerUID, Namespace: "shop", Key: keyOf("web"), Engine: "clair", Workloads: []store.Workload{app("web:1.0")}}))
		s.coverage.Images[0].State = image.Pending
	}
	newData := func(s *scenario) { s.data++; s.pass(24 * time.Hour) }
	const many = 60
	for name, test := range map[string]struct {
		change func(*scenario)
		fire   int
	}{
		"nothing happens":                  {func(*scenario) {}, many},
		"one version of the data lacks it": {func(s *scenario) { newData(s); s.findings["web"] = s.findings["web"][:many-1]; s.report("web") }, many},
		"two versions of the data lack it": {func(s *scenario) {
			s.findings["web"] = s.findings["web"][:many-1]
			newData(s)
			s.report("web")
			newData(s)
			s.report("web")
		}, many - 1},
		"the data has an anomaly": {func(s *scenario) { newData(s); s.removeFindings("web") }, many},
		"the data has an anomaly that another version confirms": {func(s *scenario) {
			newData(s)
			s.removeFindings("web")
			newData(s)
			s.report("web")
		}, many},
		"the engine is changed and has no result":               {changeEngine, many},
		"the settings name another engine before the images do": {func(s *scenario) { s.settings.Filter.Engine = "clair" }, many},
		"another engine lacks them": {func(s *scenario) {
			changeEngine(s)
			s.removeFindings("web")
			s.coverage.Images[0].State = image.Scanned
		}, many},
		"another engine has lacked them for two weeks": {func(s *scenario) {
			changeEngine(s)
			s.removeFindings("web")
			s.coverage.Images[0].State = image.Scanned
			s.firing()
			s.pass(earlierEngineLife)
		}, 0},
		"a rollout to an image that fails": {func(s *scenario) { rollOut(s, image.Failed) }, many},
		"a rollout to an image that is only partly covered": {func(s *scenario) {
			rollOut(s, image.Scanned)
			s.report("next web")
			s.coverage.Images[0].Gap = evidence.AnyPackages
		}, many},
		"a rollout while one version of the data lacks it": {func(s *scenario) {
			newData(s)
			s.findings["web"] = s.findings["web"][:many-1]
			s.report("web")
			s.findings["next web"] = s.findings["web"]
			s.replaceImage("web", "next web")
		}, many},
		"a rollout while one version of the data lacks it, and another version": {func(s *scenario) {
			newData(s)
			s.findings["web"] = s.findings["web"][:many-1]
			s.report("web")
			s.findings["next web"] = s.findings["web"]
			s.replaceImage("web", "next web")
			newData(s)
			s.report("next web")
		}, many - 1},
		"a rollout that fixes all": {func(s *scenario) { rollOut(s, image.Scanned); s.report("next web") }, 0},
		"an exception that begins while an image is unknown": {func(s *scenario) {
			rollOut(s, image.Failed)
			s.settings.Filter.Exceptions = exception.NewSet([]exception.Exception{{UID: "x", Namespace: "shop", Name: "accepted", Status: "not_affected", Vulnerabilities: []string{"CVE-2026-0001"}}}, s.now)
		}, many - 1},
		"an exception": {func(s *scenario) {
			s.settings.Filter.Exceptions = exception.NewSet([]exception.Exception{{UID: "x", Namespace: "shop", Name: "accepted", Status: "not_affected", Vulnerabilities: []string{"CVE-2026-0001"}}}, s.now)
		}, many - 1},
		"another filter while an image is unknown": {func(s *scenario) { rollOut(s, image.Failed); s.settings.Filter.OnlyKnownExploited = true }, 0},
		"nothing runs the image": {func(s *scenario) {
			s.must(s.store.ReleaseImage(t.Context(), store.ScannerImage{Scanner: scannerUID, Namespace: "shop", Key: keyOf("web")}, false))
			s.coverage.Images = nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.addFindings("web", finding.Critical, 1, many)
			if got := s.firing(); len(got) != many {
				t.Fatalf("%d alerts fire, want %d", len(got), many)
			}
			test.change(s)
			for range 2 {
				if got := s.firing(); len(got) != test.fire {
					t.Errorf("%d alerts fire, want %d", len(got), test.fire)
				}
			}
		})
	}
}

// TestAlertOfAnAnnouncedSource: an image on which the source has not reported proves nothing.
func TestAlertOfAnAnnouncedSource(t *testing.T) {
	s := newScenario(t)
	s.image("web", image.Scanned)
	s.must(s.store.SetAnnouncedSources(t.Context(), scannerUID, []string{"trivy-ci"}))
	s.external("web", 1, "CVE-2026-0500")
	want := []string{"shop CVE-2026-0500 Critical"}
	if got := s.firing(); !slices.Equal(got, want) {
		t.Fatalf("alerts %v, want %v", got, want)
	}
	s.replaceImage("web", "next web")
	if got := s.firing(); !slices.Equal(got, want) {
		t.Errorf("alerts %v before the source has reported on the new image, want %v", got, want)
	}
	s.external("next web", 1)
	if got := s.firing(); len(got) != 0 {
		t.Errorf("alerts %v after the source has reported on the new image, want none", got)
	}
}

// TestAlertThatTheEngineHasLonger: a source that has reported on neither of two new images still knows the finding, although the engine has it in the first.
func TestAlertThatTheEngineHasLonger(t *testing.T) {
	for _, severity := range []finding.Severity{finding.Critical, finding.High} {
		s := newScenario(t)
		s.must(s.store.SetAnnouncedSources(t.Context(), scannerUID, []string{"trivy-ci"}))
		has := func(image string, severity finding.Severity) {
			s.findings[image] = []finding.Finding{npmFinding("CVE-2026-0500", severity)}
		}
		has("web", finding.Critical)
		has("next web", severity)
		s.image("web", image.Scanned)
		s.external("web", 1, "CVE-2026-0500")
		s.firing()
		s.replaceImage("web", "next web")
		want := []string{"shop CVE-2026-0500 " + severity.String()}
		for range 2 {
			if got := s.firing(); !slices.Equal(got, want) {
				t.Fatalf("alerts %v while the engine has the finding in the new image, want %v", got, want)
			}
		}
		s.replaceImage("web", "third web")
		if got := s.firing(); !slices.Equal(got, want) {
			t.Errorf("alerts %v before the source has reported on the third image, want %v", got, want)
		}
		s.external("third web", 1)
		if got := s.firing(); len(got) != 0 {
			t.Errorf("alerts %v after the source has reported on the third image, want none", got)
		}
	}
}

// TestAlertWhoseSeverityChanges: the old alert ends in the request in which the new one starts.
func TestAlertWhoseSeverityChanges(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.High, 1, 1)
	s.firing()
	s.data++
	s.addFindings("web", finding.Critical, 1, 1)
	s.pass(alertInterval)
	sender := &alertSender{}
	alerts := s.alerts(sender)
	if len(alerts.List) != 1 || alerts.List[0].Severity != finding.Critical || len(alerts.Ended) != 1 || alerts.Ended[0].Severity != finding.High {
		t.Errorf("alerts %+v, want one that is Critical, and the end of the one that was High", alerts)
	}
	s.pass(alertInterval)
	if alerts := s.alerts(sender); len(alerts.Ended) != 0 {
		t.Errorf("%d alerts end once more", len(alerts.Ended))
	}
}

// TestAlertsWithoutAnAnswer: an Alertmanager that has not answered may have the alerts. They end with a proof too.
func TestAlertsWithoutAnAnswer(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.Critical, 1, 60)
	sender := &alertSender{outcome: Outcome{Result: UnknownOutcome, Reason: ReasonAnswerLost}}
	s.alerts(sender)
	sender.outcome = Outcome{}
	lose := func(what string, fire, end int) {
		t.Helper()
		s.data++
		s.pass(24 * time.Hour)
		s.findings["web"] = s.findings["web"][:59]
		s.report("web")
		if alerts := s.alerts(sender); len(alerts.List) != fire || len(alerts.Ended) != end {
			t.Errorf("%s: %d alerts fire, %d end; want %d and %d", what, len(alerts.List), len(alerts.Ended), fire, end)
		}
	}
	lose("one version of the data lacks a finding", 60, 0)
	lose("two versions lack it", 59, 1)
}

// TestThrottledAlerts: the wait that an Alertmanager asks for does not outlive its alerts.
func TestThrottledAlerts(t *testing.T) {
	s := newScenario(t)
	s.addFindings("web", finding.Critical, 1, 1)
	sender := &alertSender{}
	end := s.alerts(sender).EndsAt
	sender.outcome = Outcome{Result: RateLimited, RetryAfter: time.Hour}
	attempts := 0
	for s.now = s.last.Next; s.now.Before(end); s.now = s.last.Next {
		if s.alerts(sender) != nil {
			attempts++
		}
	}
	if attempts < 3 || attempts > 10 {
		t.Errorf("%d attempts before the alerts end, want some", attempts)
	}
	sender.outcome = Outcome{Result: RateLimited, RetryAfter: time.Minute}
	if s.alerts(sender); s.last.Next.Sub(s.now) != time.Minute {
		t.Errorf("the next attempt is in %s, want the minute that Alertmanager asks for", s.last.Next.Sub(s.now))
	}
}
