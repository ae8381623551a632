package announce

import (
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestTitles: a title states in plain words what the message announces.
func TestTitles(t *testing.T) {
	announced := func(items ...Item) Message {
		d := Message{Kind: KindChanges, Sections: []Section{{Items: items}}, Changes: map[diff.Change]int{}}
		for _, i := range items {
			d.Changes[i.Change]++
		}
		return d
	}
	item := func(change diff.Change, id string) Item { return Item{Change: change, ID: id} }
	ended := Item{Change: diff.ChangeNew, ID: "CVE-1", ExceptionEnded: true}
	counted := announced(item(diff.ChangeNew, "CVE-1"))
	counted.Sections[0].MoreItems, counted.Changes[diff.ChangeNew] = 3, 4
	rest := announced(item(diff.ChangeFixed, "CVE-1"))
	rest.Rest, rest.Changes[diff.ChangeFixed] = Rest{Images: 1, Findings: 1}, 2
	many := Message{Kind: KindChanges, Changes: map[diff.Change]int{
		diff.ChangeNew: 2, diff.ChangeFixAvailable: 2, diff.ChangeEscalated: 1, diff.ChangeRegressed: 1, diff.ChangeFixed: 12,
	}}
	notices := Message{Kind: KindChanges, Notices: []Notice{{Kind: NoticeImagesFailed, Count: 3}, {Kind: NoticeDataOutdated}, {Kind: "Other"}}}
	cluster := func(d Message) Message {
		d.ScannerKind = ClusterScannerKind
		return d
	}
	joining := func(d Message) Message {
		d.Totals, d.JoinedNamespaces = finding.Counts{High: 3}, []NamespaceSummary{{Namespace: "blog"}}
		return cluster(d)
	}
	only := func(d Message, more int, names ...string) Message {
		d.ScannerKind, d.OnlyNamespaces, d.MoreOnlyNamespaces = ClusterScannerKind, names, more
		return d
	}
	in := func(name string, d Message) Message {
		d.Cluster = name
		return d
	}
	exploited := func(fixedIn string, more int, workloads ...string) Message {
		d := announced(item(diff.ChangeNew, "CVE-1"), Item{Change: diff.ChangeNew, ID: "CVE-2", KnownExploited: true, Severity: finding.High, Package: "libssl3", FixedIn: fixedIn})
		d.Sections[0].Repository, d.Sections[0].Workloads, d.Sections[0].MoreWorkloads = "docker.io/library/nginx", workloads, more
		d.Totals = finding.Counts{High: 2, KnownExploited: 1}
		return d
	}
	several := exploited("3.0.11-1", 0)
	several.Totals.KnownExploited = 3
	onlyCounted := announced(item(diff.ChangeNew, "CVE-1"), item(diff.ChangeNew, "CVE-2"))
	onlyCounted.Totals = finding.Counts{High: 9, KnownExploited: 2}
	longName := exploited("1", 0, "Deployment shop/web")
	longName.Sections[0].Repository = "registry.example.com/a/rather/long/path/to/an/image-1"
	over := announced(Item{Change: diff.ChangeFixed, ID: "CVE-1", KnownExploited: true})
	for want, d := range map[string]Message{
		"Exploited now: CVE-2 in nginx (Deployment web and 4 more): update libssl3 to 3.0.11-1 · shop": exploited("3.0.11-1", 3, "CronJob shop/backup", "Deployment shop/web"),
		"Exploited now: CVE-2 in nginx (Job once): update libssl3 to 18.1 or 20.1 · shop":              exploited("18.1, 20.1", 0, "Job shop/once"),
		"Exploited now: CVE-2 in nginx: no fix yet · prod-eu/shop":                                     in("prod-eu", exploited("", 0)),
		"Exploited now: CVE-2 in nginx: update libssl3 to 3.0.11-1, and 2 more exploited · shop":       several,
		"Exploited now: CVE-2 in …/image-1 (Deployment web): update libssl3 to 1 · shop":               longName,
		"Exploited now: 2 findings · 2 new findings in shop":                                           onlyCounted,
		"Fixed: CVE-1 in shop": over,
		"Exploited now: 1 finding · First scan of shop: 3 findings in 2 images": {Kind: KindFirstScan, Totals: finding.Counts{High: 3, KnownExploited: 1}, Images: 2},
		"New: CVE-1 in prod-eu/shop":                                                       in("prod-eu", announced(item(diff.ChangeNew, "CVE-1"))),
		"First scan of prod-eu/shop: 1 finding in 2 images":                                in("prod-eu", Message{Kind: KindFirstScan, Totals: finding.Counts{High: 1}, Images: 2}),
		"First scan of cluster prod-eu: 1 finding in 2 images":                             in("prod-eu", cluster(Message{Kind: KindFirstScan, Totals: finding.Counts{High: 1}, Images: 2})),
		"New: CVE-1 in prod-eu/bank":                                                       in("prod-eu", only(announced(item(diff.ChangeNew, "CVE-1")), 0, "bank")),
		"New: CVE-1 in 7 namespaces of prod-eu":                                            in("prod-eu", only(announced(item(diff.ChangeNew, "CVE-1")), 4, "a", "b", "c")),
		"Scanner all in prod-eu/shop: no scan succeeds":                                    in("prod-eu", Message{Kind: KindChanges, Notices: []Notice{{Kind: NoticeScansFailing}}}),
		"ClusterScanner prod-eu/all: no scan succeeds":                                     in("prod-eu", cluster(Message{Kind: KindChanges, Notices: []Notice{{Kind: NoticeScansFailing}}})),
		"First scan of namespace prod-eu/blog: 3 findings":                                 in("prod-eu", joining(Message{Kind: KindChanges})),
		"First scan of 2 namespaces of prod-eu: 0 findings":                                in("prod-eu", cluster(Message{Kind: KindChanges, JoinedNamespaces: make([]NamespaceSummary, 2)})),
		"New: CVE-1 in shop":                                                               announced(item(diff.ChangeNew, "CVE-1")),
		"Fix available: CVE-1 in shop":                                                     announced(item(diff.ChangeFixAvailable, "CVE-1"), item(diff.ChangeFixAvailable, "CVE-1")),
		"More urgent: CVE-1 in shop":                                                       announced(item(diff.ChangeEscalated, "CVE-1")),
		"Back again: CVE-1 in shop":                                                        announced(item(diff.ChangeRegressed, "CVE-1")),
		"Exception ended: CVE-1 in shop":                                                   announced(ended),
		"2 new findings in shop":                                                           announced(item(diff.ChangeNew, "CVE-1"), item(diff.ChangeNew, "CVE-2")),
		"1 new finding, 1 fix available in shop":                                           announced(item(diff.ChangeNew, "CVE-1"), item(diff.ChangeFixAvailable, "CVE-1")),
		"2 findings back again, 1 fixed in shop":                                           announced(item(diff.ChangeRegressed, "CVE-1"), item(diff.ChangeRegressed, "CVE-2"), item(diff.ChangeFixed, "CVE-1")),
		"4 new findings in shop":                                                           counted,
		"2 findings fixed in shop":                                                         rest,
		"2 new findings, 2 fixes available, 1 more urgent, 1 back again, 12 fixed in shop": many,
		"3 new findings in shop":                                                           {Kind: KindChanges, Totals: finding.Counts{High: 3}},
		"3 new images in shop":                                                             {Kind: KindChanges, NewImages: []string{"a"}, MoreNewImages: 2},
		"Nothing new in shop":                                                              {Kind: KindChanges},
		"Scanner all in shop: 3 images cannot be scanned, and 2 more notices":              notices,
		"Scanner all in shop: no scan succeeds":                                            {Kind: KindChanges, Notices: []Notice{{Kind: NoticeScansFailing}}},
		"Scanner all in shop: scans succeed again":                                         {Kind: KindChanges, Notices: []Notice{{Kind: NoticeScansFailing, Over: true}}},
		"Summary of shop: 1 finding in 2 images":                                           {Kind: KindScheduledSummary, Totals: finding.Counts{High: 1}, Images: 2},
		"Summary of cluster prod-eu: 1 finding in 2 images, 4 opened, 2 ended": in("prod-eu", cluster(Message{
			Kind: KindScheduledSummary, Totals: finding.Counts{High: 1}, Images: 2, Trend: &Trend{Opened: 4, Fixed: 2},
		})),
		"Summary of shop: 1 finding in 2 images, 0 opened, 3 ended, 2 of them not proven": {
			Kind: KindScheduledSummary, Totals: finding.Counts{High: 1}, Images: 2, Trend: &Trend{Fixed: 3, NotProven: 2},
		},
		"First scan of shop: 1 finding in 2 images":                      {Kind: KindFirstScan, Totals: finding.Counts{High: 1}, Images: 2},
		"Baseline renewed for shop: 2 findings in 1 image":               {Kind: KindBaselineRenewed, Totals: finding.Counts{Low: 2}, Images: 1},
		"Engine changed for shop: 0 findings in 1 image":                 {Kind: KindEngineChanged, Images: 1},
		"Engine updated for shop: it finds 5 more":                       {Kind: KindEngineUpdated, NotAnnounced: 5},
		"Restored from a backup for shop: 2 findings since then":         {Kind: KindStoreRestored, NotAnnounced: 2},
		"Wider filter for shop: 1 finding not announced before":          {Kind: KindFilterWidened, NotAnnounced: 1},
		"2 new findings in the cluster":                                  cluster(announced(item(diff.ChangeNew, "CVE-1"), item(diff.ChangeNew, "CVE-2"))),
		"First scan of the cluster: 1 finding in 2 images":               cluster(Message{Kind: KindFirstScan, Totals: finding.Counts{High: 1}, Images: 2}),
		"First scan of shop: 1 finding in 64 images":                     only(Message{Kind: KindFirstScan, Totals: finding.Counts{High: 1}, Images: 64}, 0, "shop"),
		"New: CVE-1 in bank":                                             only(announced(item(diff.ChangeNew, "CVE-1")), 0, "bank"),
		"New: CVE-1 in 7 namespaces":                                     only(announced(item(diff.ChangeNew, "CVE-1")), 4, "a", "b", "c"),
		"Test message for prod-eu/shop":                                  in("prod-eu", Message{Kind: KindTest, Namespace: "shop"}),
		"Test message for the cluster":                                   cluster(Message{Kind: KindTest}),
		"ClusterScanner all: no scan succeeds":                           cluster(Message{Kind: KindChanges, Notices: []Notice{{Kind: NoticeScansFailing}}}),
		"First scan of namespace blog: 3 findings":                       cluster(Message{Kind: KindChanges, Totals: finding.Counts{High: 3}, JoinedNamespaces: []NamespaceSummary{{Namespace: "blog"}}}),
		"First scan of 40 namespaces: 3 findings":                        cluster(Message{Kind: KindChanges, Totals: finding.Counts{High: 3}, JoinedNamespaces: make([]NamespaceSummary, 5), MoreJoinedNamespaces: 35}),
		"1 new image in the cluster, and first scan of namespace blog":   joining(Message{Kind: KindChanges, NewImages: []string{"a"}, Changes: map[diff.Change]int{diff.ChangeNewImage: 1}}),
		"1 new finding in the cluster, and first scan of namespace blog": joining(announced(item(diff.ChangeNew, "CVE-1"))),
		"First scan of 2 namespaces: 3 findings":                         cluster(Message{Kind: KindChanges, Totals: finding.Counts{High: 3}, JoinedNamespaces: make([]NamespaceSummary, 2)}),
	} {
		d.Scanner = "all"
		if d.ScannerKind == "" {
			d.Namespace = "shop"
		}
		if got := d.Title(); got != want {
			t.Errorf("title %q, want %q", got, want)
		}
	}
	// Messages of every kind begin with what is exploited, wherever they list it, and say why they come, however long the names are.
	for _, kind := range []Kind{KindFirstScan, KindBaselineRenewed, KindEngineChanged, KindEngineUpdated, KindFilterWidened, KindStoreRestored, KindScheduledSummary} {
		worse := Item{ID: "CVE-1", Severity: finding.Critical}
		known := Item{ID: "CVE-2", Severity: finding.High, Package: "libssl3", FixedIn: "3.0.11-1", KnownExploited: true, Repository: "docker.io/library/nginx"}
		m := Message{
			Kind: kind, Namespace: "shop", Totals: finding.Counts{Critical: 1, High: 1, KnownExploited: 1}, Worst: []Item{worse, known}, NotAnnounced: 2,
			Actions: []UpdateAction{{Items: 1}, {Items: 1, Repository: "docker.io/library/nginx", Workloads: []string{"Deployment shop/web"}}},
		}
		head, rest := m.occasion()
		if got, want := m.Title(), "Exploited now: CVE-2 in nginx (Deployment web): update libssl3 to 3.0.11-1 · "+head; got != want {
			t.Errorf("%s: title %q, want %q", kind, got, want)
		}
		long := strings.Repeat("é\"x", 60)
		m.Worst[1].ID, m.Worst[1].Package, m.Actions[1].Repository, m.Actions[1].Workloads = strings.Repeat("x", 60), long, long, []string{long}
		if got := m.Title(); !strings.HasPrefix(got, "Exploited now: xxx") || !strings.HasSuffix(got, " · "+head) || len(got) > 150 {
			t.Errorf("%s, long names: title %q of %d bytes", kind, got, len(got))
		}
		m.Worst, m.Actions = m.Worst[:1], nil
		if got, want := m.Title(), "Exploited now: 1 finding · "+head+rest; got != want {
			t.Errorf("%s, only counted: title %q, want %q", kind, got, want)
		}
	}
	long := announced(item(diff.ChangeNew, strings.Repeat("x", 100_000)))
	if got := long.Title(); len(got) > 200 {
		t.Errorf("a title of %d bytes", len(got))
	}
}
