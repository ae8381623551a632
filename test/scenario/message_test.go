package scenario

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

var now = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// read renders a digest as the notifier does, and parses the result.
func read(t *testing.T, d announce.Message) Message {
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

func TestReadMessageOfChanges(t *testing.T) {
	got := read(t, announce.Message{
		Kind: announce.KindChanges, Namespace: "shop", Scanner: "scanner", Totals: finding.Counts{Critical: 1, High: 3},
		Changes: map[diff.Change]int{diff.ChangeNew: 4, diff.ChangeFixed: 1},
		Sections: []announce.Section{
			{Repository: "registry:5000/shop/web", References: []string{"1.0"}, Workloads: []string{"Deployment shop/web"}, Items: []announce.Item{
				{Change: diff.ChangeNew, ID: "CVE-2023-5363", Severity: finding.Critical, Package: "openssl", Version: "3.0.9-1", FixedIn: "3.0.11", URL: "https://example.org/x"},
				{Change: diff.ChangeNew, ID: "CVE-2023-5678", Severity: finding.High, Package: "openssl", Version: "3.0.9-1", FixedIn: "3.0.13", FixSince: now},
				{Change: diff.ChangeNew, ID: "CVE-2023-4911", Severity: finding.High, Package: "libc6", Version: "2.36-9", FixedIn: "2.36-9+deb12u3", FixSince: now, KnownExploited: true, EPSS: 0.5},
			}},
			{Repository: "shop/api", Items: []announce.Item{
				{Change: diff.ChangeNew, ID: "GHSA-aaaa-bbbb-cccc", Severity: finding.High, Package: "golang.org/x/net", FixState: finding.FixStateNotFixed},
				{Change: diff.ChangeFixed, ID: "CVE-2021-38561", Severity: finding.High, Package: "golang.org/x/text"},
			}},
		},
	})
	added, web := v1alpha1.ChangeNew, "registry:5000/shop/web"
	want := []Line{
		{Repository: web, ID: "CVE-2023-4911", Severity: "High", Package: "libc6", Version: "2.36-9", FixedIn: "2.36-9+deb12u3", Change: added},
		{Repository: web, ID: "CVE-2023-5363", Severity: "Critical", Package: "openssl", Version: "3.0.9-1", FixedIn: "3.0.11", Change: added},
		{Repository: web, ID: "CVE-2023-5678", Severity: "High", Package: "openssl", Version: "3.0.9-1", FixedIn: "3.0.13", Change: added},
		{Repository: "shop/api", ID: "GHSA-aaaa-bbbb-cccc", Severity: "High", Package: "golang.org/x/net", Change: added},
		{Repository: "shop/api", ID: "CVE-2021-38561", Severity: "High", Package: "golang.org/x/text", Change: v1alpha1.ChangeFixed},
	}
	if diff := cmp.Diff(want, got.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if got.Summary || got.Findings != 4 || len(got.Notices) > 0 {
		t.Errorf("want news with 4 findings in its headline and no notice, got %+v", got)
	}
}

// Each change is recognised.
func TestReadMessageOfOneChange(t *testing.T) {
	item := announce.Item{ID: "CVE-1", Severity: finding.High, SeverityBefore: finding.High, Package: "openssl", Version: "1", FirstSeen: now}
	line := Line{Repository: "shop/web", ID: "CVE-1", Severity: "High", Package: "openssl", Version: "1"}
	with := func(change func(*announce.Item, *Line)) (announce.Item, Line) {
		i, l := item, line
		change(&i, &l)
		return i, l
	}
	for name, change := range map[string]func(*announce.Item, *Line){
		"new": func(i *announce.Item, l *Line) { i.Change, l.Change = diff.ChangeNew, v1alpha1.ChangeNew },
		"an exception has ended": func(i *announce.Item, l *Line) {
			i.Change, l.Change, i.ExceptionEnded, l.ExceptionEnded = diff.ChangeNew, v1alpha1.ChangeNew, true, true
		},
		"a fix is available": func(i *announce.Item, l *Line) {
			i.Change, l.Change, i.FixSince, i.FixedIn, l.FixedIn = diff.ChangeFixAvailable, v1alpha1.ChangeFixAvailable, now, "2", "2"
		},
		"exploited": func(i *announce.Item, l *Line) {
			i.Change, l.Change, i.KnownExploited = diff.ChangeEscalated, v1alpha1.ChangeEscalated, true
		},
		"more severe": func(i *announce.Item, l *Line) {
			i.Change, l.Change, i.SeverityBefore = diff.ChangeEscalated, v1alpha1.ChangeEscalated, finding.Low
		},
		"back": func(i *announce.Item, l *Line) { i.Change, l.Change = diff.ChangeRegressed, v1alpha1.ChangeRegressed },
		"fixed": func(i *announce.Item, l *Line) {
			i.Change, l.Change, l.Version = diff.ChangeFixed, v1alpha1.ChangeFixed, ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			item, want := with(change)
			got := read(t, announce.Message{
				Kind: announce.KindChanges, Namespace: "shop", Scanner: "scanner", Totals: finding.Counts{High: 1}, Changes: map[diff.Change]int{item.Change: 1},
				Sections: []announce.Section{{Repository: "shop/web", Items: []announce.Item{item}}},
			})
			if diff := cmp.Diff([]Line{want}, got.Lines); diff != "" || got.Findings != 1 || got.Summary {
				t.Errorf("want news of one finding, got %d of summary=%v in %q; lines (-want +got):\n%s", got.Findings, got.Summary, got.Headline, diff)
			}
		})
	}
}

func TestReadMessageOfASummary(t *testing.T) {
	got := read(t, announce.Message{
		Kind: announce.KindFirstScan, Namespace: "shop", Scanner: "scanner", Totals: finding.Counts{High: 7}, Images: 3,
		Worst: []announce.Item{
			{ID: "CVE-2023-4911", Severity: finding.High, Package: "libc6", Version: "2.36-9", FixedIn: "2.36-9+deb12u3", KnownExploited: true, Repository: "shop/web"},
			{ID: "CVE-2023-38545", Severity: finding.High, Package: "curl", Version: "7.88.1-10", FixState: finding.FixStateNotFixed, Repository: "shop/web"},
		},
	})
	want := []Line{
		{Repository: "shop/web", ID: "CVE-2023-4911", Severity: "High", Package: "libc6", Version: "2.36-9", FixedIn: "2.36-9+deb12u3"},
		{Repository: "shop/web", ID: "CVE-2023-38545", Severity: "High", Package: "curl", Version: "7.88.1-10"},
	}
	if diff := cmp.Diff(want, got.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if !got.Summary || got.Findings != 7 || got.Headline != "Exploited now: CVE-2023-4911 in shop/web: update libc6 to 2.36-9+deb12u3 · First scan of shop" {
		t.Errorf("want a summary of 7 findings, got summary=%v with %d: %q", got.Summary, got.Findings, got.Headline)
	}
}

// Each kind of summary is recognised, and its findings are not changes.
func TestReadMessageOfEachSummary(t *testing.T) {
	for _, kind := range []announce.Kind{
		announce.KindFirstScan, announce.KindBaselineRenewed, announce.KindEngineChanged, announce.KindEngineUpdated, announce.KindFilterWidened, announce.KindStoreRestored,
	} {
		got := read(t, announce.Message{
			Kind: kind, Namespace: "shop", Scanner: "scanner", Totals: finding.Counts{High: 1}, Images: 1, NotAnnounced: 1,
			Worst: []announce.Item{{ID: "CVE-1", Severity: finding.High, Package: "curl", Version: "1", FixState: finding.FixStateNotFixed, Repository: "shop/web"}},
		})
		want := []Line{{Repository: "shop/web", ID: "CVE-1", Severity: "High", Package: "curl", Version: "1"}}
		if diff := cmp.Diff(want, got.Lines); diff != "" || !got.Summary {
			t.Errorf("%s: want a summary, got summary=%v in %q; lines (-want +got):\n%s", kind, got.Summary, got.Headline, diff)
		}
	}
}

func TestReadMessageOfANotice(t *testing.T) {
	got := read(t, announce.Message{
		Kind: announce.KindChanges, Namespace: "shop", Scanner: "scanner",
		Notices: []announce.Notice{{ID: "x", Kind: announce.NoticeExceptionExpires, Name: "shop/accepted", Until: now, Count: 2}},
	})
	want := []string{"Exception shop/accepted expires on 2026-11-22 10:00 UTC"}
	if diff := cmp.Diff(want, got.Notices); diff != "" || len(got.Lines) > 0 || got.Summary {
		t.Errorf("want one notice and nothing else, got %+v; notices (-want +got):\n%s", got, diff)
	}
}
