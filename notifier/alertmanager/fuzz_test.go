package alertmanager

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/notifier/internal/messagetest"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// FuzzAlerts: whatever names an image contains, Alertmanager takes each alert: it has a name, no empty label, and links of https only. Another version, fix
// or address makes no other alert of it, and another package does.
func FuzzAlerts(f *testing.F) {
	for i, text := range messagetest.Seeds {
		f.Add(text, "https://nvd.nist.gov/vuln/detail/CVE-2026-0001?a=b&c=d", uint8(i))
	}
	f.Add("openssl", "javascript:alert(1)//https://example.com/", uint8(0))
	f.Add("openssl", "https://user:password@example.com/", uint8(0))
	names := []string{"alertname", "image", "namespace", "package", "scanner", "cluster", "severity", "vulnerability", "workload"}
	f.Fuzz(func(t *testing.T, text, address string, more uint8) {
		alert := announce.Alert{
			Namespace: messagetest.Namespace, Workload: text, Image: text, Vulnerability: text, Package: text, Version: text, FixedIn: text, URL: address,
			Severity: finding.Critical, KnownExploited: more%2 == 1,
		}
		newer, other := alert, alert
		newer.Version, newer.FixedIn, newer.URL, other.Package = text+"1", "", "", text+"1"
		endsAt := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
		m := messagetest.Of(text, address, 0)
		body, err := json.Marshal(Render(announce.Delivery{Message: m, Alerts: &announce.Alerts{List: []announce.Alert{alert, newer, other}, More: int(more), EndsAt: endsAt}}))
		var alerts []Alert
		if err != nil || json.Unmarshal(body, &alerts) != nil || len(alerts) != 3+min(int(more), 1) {
			t.Fatalf("%q becomes %q: %v", text, body, err)
		}
		for _, a := range alerts {
			if a.Labels["alertname"] == "" || a.Labels["severity"] == "" || a.Annotations["summary"] == "" || !a.EndsAt.Equal(endsAt) {
				t.Errorf("%q becomes the alert %+v", text, a)
			}
			for name, value := range a.Labels {
				if value == "" || !slices.Contains(names, name) {
					t.Errorf("%q becomes an alert with the label %s=%q", text, name, value)
				}
			}
			for _, link := range []string{a.GeneratorURL, a.Annotations["link"]} {
				if u, err := url.Parse(link); link != "" && (err != nil || u.Scheme != "https" || link != address) {
					t.Errorf("%q becomes a link to %q", address, link)
				}
			}
		}
		if diff := cmp.Diff(alerts[0].Labels, alerts[1].Labels); diff != "" {
			t.Errorf("%q is another alert with another version (-before +after):\n%s", text, diff)
		}
		if maps.Equal(alerts[0].Labels, alerts[2].Labels) {
			t.Errorf("%q is the same alert as with another package: %q", text, alerts[0].Labels)
		}
	})
}
