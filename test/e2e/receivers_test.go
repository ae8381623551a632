package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/receiverstandin/standin"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// A webhook, Teams and a mail server get the first summary and each change exactly once, with the same title; the stand-in verifies the webhook's
// signature, and the mail server takes mails only over STARTTLS and with a password. Alertmanager gets what is present. When a pod has gone, its
// alerts are not renewed.
func TestReceivers(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "receivers")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "web", Image: env.Reference(images.Web)}))
	must(t, env.MakeSecrets(t.Context(), ns, map[string]map[string]string{
		"webhook": {"address": scenario.ReceiverURL(ns, standin.WebhookPath), "token": standin.Token},
		"teams":   {"address": scenario.ReceiverURL(ns, standin.TeamsPath)},
		"smtp":    {"username": standin.User, "password": standin.Token},
		"alerts":  {"address": scenario.ReceiverURL(ns, standin.AlertmanagerPath), "username": standin.User, "password": standin.Token},
	}))
	must(t, env.ApplyText(t.Context(), receiversScanner(ns, "")))
	must(t, env.WaitForCoverage(t.Context(), ns, 1, 0))
	waitForMessages(t, ns, 1)

	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	got := waitForMessages(t, ns, 2)
	if change := got.Events[1]; change.Kind != "Changes" || !slices.Equal(change.Repositories, []string{repository(images.API)}) {
		t.Errorf("the second event is %+v, want the changes of %s", change, images.API)
	}

	must(t, env.ApplyText(t.Context(), receiversScanner(ns, "alerts")))
	both := waitForAlerts(t, ns, func(ends map[string]time.Time) bool { return len(ends) == 2 })
	_, err := env.Kubectl(t.Context(), "--namespace", ns, "delete", "pod", "api")
	must(t, err)
	waitFor(t, "the image to run no longer", func(ctx context.Context) error {
		scanner, err := env.Scanner(ctx, ns)
		if err == nil && scanner.Status.Images.Scanned != 1 {
			err = fmt.Errorf("the Scanner has %+v", scanner.Status.Images)
		}
		return err
	})
	// Alerts are sent every five minutes, and to a receiver with a new name at once.
	must(t, env.ApplyText(t.Context(), receiversScanner(ns, "alerts-now")))
	one := waitForAlerts(t, ns, func(ends map[string]time.Time) bool { return ends["Pod/web"].After(both["Pod/web"]) })
	if was, is := both["Pod/api"], one["Pod/api"]; !is.Equal(was) || time.Until(is) > 20*time.Minute {
		t.Errorf("the alerts of the pod that has gone end at %s, want %s as before it went", is, was)
	}

	// Nothing came in the meantime, and nothing was refused before it came.
	if is := waitForMessages(t, ns, 2); len(is.Refused) > 0 {
		t.Errorf("the stand-in has refused %q", is.Refused)
	}
}

// receiversScanner returns the YAML of a Scanner with a receiver of each type except Slack. The name of Alertmanager's may be empty: then there is none.
func receiversScanner(ns, alerts string) string {
	const times = ", groupWait: 1s, groupInterval: 2s}"
	lines := []string{
		"{name: hook, webhook: {secretRef: {name: webhook}}" + times,
		"{name: channel, teams: {secretRef: {name: teams}}" + times,
		fmt.Sprintf("{name: team, email: {server: %s, from: scanner@example.com, to: [%s@example.com], secretRef: {name: smtp}}%s", scenario.ReceiverHost, ns, times),
	}
	if alerts != "" {
		lines = append(lines, "{name: "+alerts+", alertmanager: {secretRef: {name: alerts}}}")
	}
	return scannerWith(ns, "notifications", lines...)
}

// scannerWith returns the YAML of a Scanner with a list in its spec.
func scannerWith(ns, field string, lines ...string) string {
	return fmt.Sprintf(`apiVersion: scanner-operator.io/v1alpha1
kind: Scanner
metadata: {name: %s, namespace: %s}
spec:
  backend: {type: Grype}
  %s:
  - %s
`, scenario.ScannerName, ns, field, strings.Join(lines, "\n  - "))
}

// waitForMessages waits until the webhook, Teams and the mail server have a number of messages, and fails the test unless they have the same ones.
func waitForMessages(t *testing.T, ns string, count int) standin.State {
	t.Helper()
	var got standin.State
	waitFor(t, fmt.Sprintf("%d messages to each receiver", count), func(ctx context.Context) (err error) {
		if got, err = env.Received(ctx, ns); err == nil && min(len(got.Events), len(got.Cards), len(got.Mails)) < count {
			err = fmt.Errorf("the receivers have %+v", got)
		}
		return err
	})
	var events, mails []string
	for _, event := range got.Events {
		events = append(events, event.ID+" "+event.Title)
	}
	for i, mail := range got.Mails {
		id, _, _ := strings.Cut(strings.TrimPrefix(mail.MessageID, "<"), "@")
		mails = append(mails, mail.Subject)
		if slices.ContainsFunc(got.Mails[:i], func(earlier standin.Mail) bool { return earlier.MessageID == mail.MessageID }) {
			t.Errorf("mail %s came twice", id)
		}
	}
	titles := make([]string, len(events))
	for i, event := range events {
		_, titles[i], _ = strings.Cut(event, " ")
	}
	if len(titles) != count {
		t.Errorf("the webhook has %d events, want %d: %q", len(titles), count, events)
	}
	if diff := cmp.Diff(titles, mails); diff != "" {
		t.Errorf("subjects of the mails (-titles of the events +got):\n%s", diff)
	}
	if diff := cmp.Diff(titles, got.Cards); diff != "" {
		t.Errorf("titles of the cards (-titles of the events +got):\n%s", diff)
	}
	return got
}

// waitForAlerts waits until the alerts of a namespace's workloads end as they should, and returns when those of each workload end.
func waitForAlerts(t *testing.T, ns string, isRight func(ends map[string]time.Time) bool) map[string]time.Time {
	t.Helper()
	var ends map[string]time.Time
	waitFor(t, "the alerts", func(ctx context.Context) error {
		got, err := env.Received(ctx, ns)
		if err != nil {
			return err
		}
		ends = map[string]time.Time{}
		for _, alert := range got.Alerts {
			if workload := alert.Labels["workload"]; workload != "" {
				ends[workload] = alert.EndsAt
			}
		}
		if !isRight(ends) {
			return fmt.Errorf("the alerts of the workloads end at %v", ends)
		}
		return nil
	})
	return ends
}

// A webhook that redirects to an address inside the cluster, and one at a host that is not allowed, get nothing else, and the Scanner says why.
func TestRefusedReceivers(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "refused")
	must(t, env.RunPods(t.Context(), ns, scenario.Pod{Name: "api", Image: env.Reference(images.API)}))
	must(t, env.MakeSecrets(t.Context(), ns, map[string]map[string]string{
		"redirect": {"address": scenario.ReceiverURL(ns, standin.RedirectPath)},
		"stranger": {"address": "https://vulnerability-database." + scenario.InfraNamespace + ".svc/"},
	}))
	must(t, env.ApplyText(t.Context(), scannerWith(ns, "notifications",
		"{name: redirect, webhook: {secretRef: {name: redirect}}, groupWait: 1s}", "{name: stranger, webhook: {secretRef: {name: stranger}}, groupWait: 1s}")))
	reasons := map[string]string{
		"redirect": "redirects are not followed: put the final URL into the Secret",
		"stranger": "holds a URL of a host that the notifier may not post to",
	}
	waitFor(t, "the reasons in the Scanner's status", func(ctx context.Context) error {
		scanner, err := env.Scanner(ctx, ns)
		if err != nil {
			return err
		}
		delivered := meta.FindStatusCondition(scanner.Status.Conditions, v1alpha1.ConditionNotificationsDelivered)
		if delivered == nil || delivered.Reason != "DeliveryFailed" {
			return fmt.Errorf("the Scanner's condition is %+v", delivered)
		}
		for _, receiver := range scanner.Status.Receivers {
			if !strings.Contains(receiver.LastError, reasons[receiver.Name]) {
				return fmt.Errorf("expected the last error of the receiver %s to say %q, it is %q", receiver.Name, reasons[receiver.Name], receiver.LastError)
			}
		}
		if len(scanner.Status.Receivers) != len(reasons) {
			return fmt.Errorf("the Scanner has the receivers %+v", scanner.Status.Receivers)
		}
		return nil
	})
	got, err := env.Received(t.Context(), ns)
	must(t, err)
	if got.Followed > 0 {
		t.Error("the redirect was followed")
	}
}
