package announce

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
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
