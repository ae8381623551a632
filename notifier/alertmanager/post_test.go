package alertmanager

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestRender: labels identify an alert, and what can change while it fires is in annotations. What is no https address is no link.
func TestRender(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	end := noon.Add(20 * time.Minute)
	d := announce.Delivery{
		Message: announce.Message{CreatedAt: noon, Cluster: "prod-eu", Namespace: "shop", Scanner: "default", ReadMore: "kubectl get imagescans"},
		Alerts: &announce.Alerts{EndsAt: end, More: 2, Ended: []announce.Alert{{Workload: "Job/y", Image: "y", Vulnerability: "GHSA-2", Package: "p", Severity: finding.Low}}, List: []announce.Alert{
			{
				Namespace: "shop", Workload: "Deployment/web", Image: "registry.example.com/shop/web", Vulnerability: "CVE-2026-0001", Package: "openssl", Version: "3.0.11-1",
				FixedIn: "3.0.13-1", Severity: finding.Critical, KnownExploited: true, URL: "https://example.com/CVE-2026-0001", StartsAt: noon,
			},
			{Namespace: "shop", Workload: "CronJob/x", Image: "x", Vulnerability: "GHSA-1", Severity: finding.Unknown, URL: "javascript:alert(1)"},
		}},
	}
	want := []Alert{
		{
			Labels: map[string]string{
				"alertname": "VulnerabilityFound", "workload": "Job/y", "image": "y", "vulnerability": "GHSA-2", "package": "p", "severity": "low", "cluster": "prod-eu", "scanner": "default",
			},
			Annotations: map[string]string{"summary": "Low GHSA-2 in p of y, which Job/y runs", "description": "No fix is known."},
			EndsAt:      noon,
		},
		{
			Labels: map[string]string{
				"alertname": "VulnerabilityFound", "namespace": "shop", "workload": "Deployment/web", "image": "registry.example.com/shop/web", "vulnerability": "CVE-2026-0001",
				"package": "openssl", "severity": "critical", "cluster": "prod-eu", "scanner": "default",
			},
			Annotations: map[string]string{
				"summary":     "Exploited now: Critical CVE-2026-0001 in openssl of registry.example.com/shop/web, which Deployment/web runs",
				"description": "Known to be exploited. Update openssl 3.0.11-1 to 3.0.13-1.", "link": "https://example.com/CVE-2026-0001",
			},
			StartsAt: &noon, EndsAt: end,
		},
		{
			Labels: map[string]string{
				"alertname": "VulnerabilityFound", "namespace": "shop", "workload": "CronJob/x", "image": "x", "vulnerability": "GHSA-1", "severity": "unknown",
				"cluster": "prod-eu", "scanner": "default",
			},
			Annotations: map[string]string{"summary": "Unknown GHSA-1 in  of x, which CronJob/x runs", "description": "No fix is known."},
			EndsAt:      end,
		},
		{
			Labels:      map[string]string{"alertname": "VulnerabilitiesNotListed", "namespace": "shop", "severity": "none", "cluster": "prod-eu", "scanner": "default"},
			Annotations: map[string]string{"summary": "2 further findings without an alert", "description": "An alert that a more urgent one has replaced has resolved, and its finding has not ended. All findings: kubectl get imagescans"},
			EndsAt:      end,
		},
	}
	if diff := cmp.Diff(want, Render(d)); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

// TestNoAlerts: Alertmanager takes an empty list, and not null.
func TestNoAlerts(t *testing.T) {
	for _, d := range []announce.Delivery{{}, {Alerts: &announce.Alerts{}}} {
		if text, err := json.Marshal(Render(d)); string(text) != "[]" {
			t.Errorf("%s, error %v, want []", text, err)
		}
	}
}
