// Package alertmanager posts alerts to Prometheus' Alertmanager
// (https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml).
//
// Each post has all alerts of a Scanner, and the time at which they resolve unless they come again. The package knows nothing about Secrets,
// retries, or what is present.
package alertmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// Path is that of the API, below an Alertmanager's address.
const Path = "api/v2/alerts"

// Names of alerts.
const (
	// FindingAlert is the name of an alert about a finding in a workload.
	FindingAlert = "VulnerabilityFound"
	// MoreAlert is the name of the alert that further ones are left out.
	MoreAlert = "VulnerabilitiesNotListed"
	// TestAlert is the name of the alert of a test message.
	TestAlert = "ScannerOperatorTest"
)

// testLife is how long the alert of a test message fires.
const testLife = 5 * time.Minute

// Alert is an alert as Alertmanager takes it.
type Alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     *time.Time        `json:"startsAt,omitempty"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// Poster posts alerts. It is safe for concurrent use.
type Poster struct {
	client *receiver.Client
}

// NewPoster returns a Poster.
func NewPoster(network receiver.Network) *Poster {
	return &Poster{client: receiver.NewClient("Alertmanager", network)}
}

// Post sends the alerts of a delivery, once, within receiver.Timeout. The outcome contains nothing of the address.
func (p *Poster) Post(ctx context.Context, to receiver.Address, d announce.Delivery) announce.Outcome {
	ctx, cancel := context.WithTimeout(ctx, receiver.Timeout)
	defer cancel()
	body, err := json.Marshal(Render(d))
	if err != nil {
		return announce.Outcome{Result: announce.Permanent, Reason: announce.ReasonReceiverRefused, Message: "the alerts cannot be encoded"}
	}
	header := http.Header{"User-Agent": {"scanner-operator"}}
	for name, value := range to.Headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", "application/json")
	answer, none := p.client.Post(ctx, to, header, body)
	if none != nil {
		return *none
	}
	return p.client.Outcome(answer, receiver.Word(answer.Body), adviceFor(answer.Status))
}

// Render returns the alerts of a delivery. Labels identify an alert: they stay the same while the finding is present, and have no version.
func Render(d announce.Delivery) []Alert {
	all := []Alert{} // not null
	if d.Message.Kind == announce.KindTest {
		return append(all, newTestAlert(d.Message))
	}
	if d.Alerts == nil {
		return all
	}
	for _, a := range d.Alerts.Ended {
		all = append(all, newAlert(d.Message, a, d.Message.CreatedAt))
	}
	for _, a := range d.Alerts.List {
		all = append(all, newAlert(d.Message, a, d.Alerts.EndsAt))
	}
	if d.Alerts.More > 0 {
		all = append(all, Alert{
			Labels: labels(d.Message, map[string]string{"alertname": MoreAlert, "namespace": d.Message.Namespace, "severity": "none"}),
			Annotations: annotations(map[string]string{
				"summary":     announce.Pluralize(d.Alerts.More, "further finding") + " without an alert",
				"description": "An alert that a more urgent one has replaced has resolved, and its finding has not ended. All findings: " + d.Message.ReadMore,
			}),
			EndsAt: d.Alerts.EndsAt, GeneratorURL: link(d.Message.ReadMore),
		})
	}
	return all
}

// newTestAlert returns an alert that says that it is a test.
func newTestAlert(m announce.Message) Alert {
	return Alert{
		Labels: labels(m, map[string]string{"alertname": TestAlert, "namespace": m.Namespace, "severity": "none"}),
		Annotations: annotations(map[string]string{
			"summary":     m.Title(),
			"description": fmt.Sprintf("This is a test: alerts arrive. It is not about a finding, and resolves by itself within %s.", testLife),
		}),
		EndsAt: m.CreatedAt.Add(testLife),
	}
}

// newAlert returns an alert that resolves at a time.
func newAlert(m announce.Message, a announce.Alert, endsAt time.Time) Alert {
	alert := Alert{
		Labels: labels(m, map[string]string{
			"alertname": FindingAlert, "namespace": a.Namespace, "workload": a.Workload, "image": a.Image, "vulnerability": a.Vulnerability, "package": a.Package,
			"severity": strings.ToLower(a.Severity.String()),
		}),
		Annotations: annotations(map[string]string{
			"summary":     summary(a),
			"description": description(a), "link": link(a.URL),
		}),
		EndsAt: endsAt, GeneratorURL: link(m.ReadMore),
	}
	if !a.StartsAt.IsZero() {
		alert.StartsAt = &a.StartsAt
	}
	return alert
}

// labels returns the labels with those of the cluster and the Scanner, without empty ones, which count as missing. Without the cluster, alerts of
// two clusters would be one.
func labels(m announce.Message, set map[string]string) map[string]string {
	set["cluster"], set["scanner"] = m.Cluster, m.Scanner
	return annotations(set)
}

func annotations(set map[string]string) map[string]string {
	for name, value := range set {
		if value == "" {
			delete(set, name)
		}
	}
	return set
}

// summary begins with what is known to be exploited: Alertmanager's receivers show little more of an alert.
func summary(a announce.Alert) string {
	text := fmt.Sprintf("%s %s in %s of %s, which %s runs", a.Severity, a.Vulnerability, a.Package, a.Image, a.Workload)
	if a.KnownExploited {
		return "Exploited now: " + text
	}
	return text
}

func description(a announce.Alert) string {
	text := "No fix is known."
	if a.FixedIn != "" {
		text = fmt.Sprintf("Update %s %s to %s.", a.Package, a.Version, a.FixedIn)
	}
	if a.KnownExploited {
		text = "Known to be exploited. " + text
	}
	return text
}

// link returns an address if it may be a link.
func link(address string) string {
	if receiver.IsLink(address) {
		return address
	}
	return ""
}

// adviceFor tells the user what to do about a status.
func adviceFor(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "check the keys username and password, token, or headers of the Secret"
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return "the key address of the Secret must be the address of an Alertmanager, without /api/v2/alerts"
	}
	return ""
}
