package slack

import (
	"fmt"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// unconfirmedBefore returns a message after two unconfirmed ones, with a notice about another receiver.
func unconfirmedBefore() announce.Message {
	d := one(fixAvailable())
	d.Unconfirmed = &announce.Unconfirmed{Count: 2, Since: daysAgo(1), Title: "4 new findings in shop"}
	d.Notices = []announce.Notice{{ID: "DeliveryUnconfirmed/team", Kind: announce.NoticeUnconfirmed, Name: "team", Since: daysAgo(1), Count: 2}}
	return d
}

func daysAgo(n int) time.Time { return noon.AddDate(0, 0, -n) }

// messages returns examples by the name of their golden file: each kind, each change and important combinations.
func messages() map[string]announce.Message {
	renewed, engine := firstScan(), firstScan()
	renewed.Kind = announce.KindBaselineRenewed
	engine.Kind, engine.EngineBefore, engine.Engine = announce.KindEngineChanged, "grype", "clair https://clair.example.com"
	engineRestored := engine
	engineRestored.RestoredFrom = daysAgo(2)
	clean := announce.Message{Kind: announce.KindFirstScan, Namespace: "shop", Scanner: "all", CreatedAt: noon, Images: 2, ReadMore: command}
	parts := clean
	parts.Remaining.Partly = 2
	return map[string]announce.Message{
		"first-scan": firstScan(), "cluster-first-scan": clusterFirstScan(), "namespaces-joined": namespacesJoined(), "nothing-found": clean, "nothing-found-in-parts": parts,
		"baseline-renewed": renewed, "engine-changed": engine, "engine-changed-after-restore": engineRestored, "engine-updated": engineUpdated(), "filter-widened": filterWidened(), "store-restored": storeRestored(),
		"new": newDigest(), "fix-available": one(fixAvailable()), "escalated": one(escalated()), "exploited": one(exploited()),
		"regressed": one(regressed()), "fixed": one(fixed()), "exception-ended": one(exceptionEnded()),
		"new-image": firstTime(), "new-images": newImagesOnly(), "mixed": mixed(),
		"troubles": healthNotices(), "troubles-over": healthNoticesOver(), "exception-expires": exceptionExpires(),
		"unconfirmed": unconfirmedBefore(),
		"web-ui":      withWebUI(mixed()), "web-ui-one": withWebUI(one(escalated())), "web-ui-first-scan": withWebUI(firstScan()), "web-ui-notices": withWebUI(healthNotices()),
		"scheduled-summary": scheduledSummary(), "scheduled-summary-clean": scheduledClean(),
		"cluster-name": inCluster(one(fixAvailable())),
		"hostile":      hostile(), "long": long(),
	}
}

// withWebUI returns the message of an operator whose web UI has an address.
func withWebUI(d announce.Message) announce.Message {
	d.WebUI, d.ReadMore = "https://scanner.example.com", "https://scanner.example.com/vulnerabilities?minSeverity=High&namespace=shop"
	return d
}

// inCluster returns the message of an operator that knows the name of its cluster.
func inCluster(d announce.Message) announce.Message {
	d.Cluster = "prod-eu"
	return d
}

// scheduledSummary returns the weekly summary of a cluster.
func scheduledSummary() announce.Message {
	d := clusterFirstScan()
	d.Kind, d.Cluster, d.Actions, d.MoreActions, d.Worst = announce.KindScheduledSummary, "prod-eu", nil, 0, nil
	for i := range d.Namespaces {
		d.Namespaces[i].Actions = nil
	}
	before := d.Totals
	before.Critical, before.High = before.Critical+3, before.High+9
	d.Trend = &announce.Trend{Since: daysAgo(7), Opened: 31, Fixed: 43, NotProven: 12, Before: &before}
	oldest := exploited()
	oldest.Change, oldest.Repository, oldest.Workloads, oldest.ExploitedSince = "", "docker.io/library/nginx", []string{"Deployment shop/web"}, daysAgo(36)
	d.OldestExploited = &oldest
	return d
}

// scheduledClean returns the first summary of a namespace in which nothing is found.
func scheduledClean() announce.Message {
	return announce.Message{
		Kind: announce.KindScheduledSummary, Namespace: "shop", Scanner: "all", CreatedAt: noon, Images: 2, ReadMore: command,
		Trend: &announce.Trend{Since: daysAgo(1), Fixed: 2},
	}
}

const command = "kubectl scanner findings -n shop"

func openssl() announce.Item {
	return announce.Item{
		Change: diff.ChangeNew, ID: "CVE-2023-5363", Severity: finding.High, SeverityBefore: finding.High,
		Package: "libssl3", Version: "3.0.9-1", FixedIn: "3.0.11-1", FixState: finding.FixStateFixed, EPSS: 0.94, KnownExploited: true,
		URL: "https://nvd.nist.gov/vuln/detail/CVE-2023-5363", FirstSeen: noon, FixSince: daysAgo(4), ExploitedSince: daysAgo(1),
	}
}

func opensslToo() announce.Item {
	item := openssl()
	item.ID, item.EPSS, item.KnownExploited, item.ExploitedSince = "CVE-2024-0727", 0.03, false, time.Time{}
	item.URL = "https://nvd.nist.gov/vuln/detail/CVE-2024-0727"
	return item
}

func opensslCritical() announce.Item {
	item := opensslToo()
	item.ID, item.Severity, item.SeverityBefore, item.EPSS = "CVE-2024-5535", finding.Critical, finding.Critical, 0.05
	item.URL = "https://nvd.nist.gov/vuln/detail/CVE-2024-5535"
	return item
}

func curl() announce.Item {
	return announce.Item{
		Change: diff.ChangeNew, ID: "CVE-2023-38545", Severity: finding.Critical, SeverityBefore: finding.Critical,
		Package: "curl", Version: "7.88.1-10", FixedIn: "7.88.1-10+deb12u4", FixState: finding.FixStateFixed, EPSS: 0.26, FirstSeen: noon,
		URL: "https://nvd.nist.gov/vuln/detail/CVE-2023-38545", FixSince: daysAgo(9),
	}
}

func zlib() announce.Item {
	return announce.Item{
		Change: diff.ChangeNew, ID: "CVE-2023-45853", Severity: finding.Critical, SeverityBefore: finding.Critical,
		Package: "zlib1g", Version: "1:1.2.13", FixState: finding.FixStateWontFix, EPSS: 0.004, FirstSeen: noon,
		URL: "https://nvd.nist.gov/vuln/detail/CVE-2023-45853",
	}
}

func goNet() announce.Item {
	return announce.Item{
		Change: diff.ChangeNew, ID: "GHSA-4374-p667-p6c8", Severity: finding.High, SeverityBefore: finding.High,
		Package: "golang.org/x/net", Version: "v0.15.0", FixState: finding.FixStateNotFixed, FirstSeen: noon,
		URL: "https://github.com/advisories/GHSA-4374-p667-p6c8",
	}
}

func fixAvailable() announce.Item {
	item := openssl()
	item.Change, item.KnownExploited, item.ExploitedSince = diff.ChangeFixAvailable, false, time.Time{}
	item.FirstSeen, item.FixSince = daysAgo(40), daysAgo(1)
	return item
}

func escalated() announce.Item {
	item := goNet()
	item.Change, item.SeverityBefore, item.FirstSeen = diff.ChangeEscalated, finding.Medium, daysAgo(40)
	return item
}

func exploited() announce.Item {
	item := openssl()
	item.Change, item.FirstSeen = diff.ChangeEscalated, daysAgo(40)
	return item
}

func regressed() announce.Item {
	item := zlib()
	item.Change, item.FirstSeen = diff.ChangeRegressed, daysAgo(90)
	return item
}

func fixed() announce.Item {
	return announce.Item{
		Change: diff.ChangeFixed, ID: "CVE-2023-5363", Severity: finding.High, SeverityBefore: finding.High, Package: "libssl3",
		FirstSeen: daysAgo(40),
	}
}

func exceptionEnded() announce.Item {
	item := openssl()
	item.ExceptionEnded, item.FirstSeen = true, daysAgo(40)
	return item
}

func nginx(items ...announce.Item) announce.Section {
	return announce.Section{
		Repository: "docker.io/library/nginx", References: []string{"1.25", "1.26"},
		Workloads: []string{"CronJob shop/backup", "Deployment shop/web"}, MoreWorkloads: 3,
		Totals: totalsOf(items), Items: items,
	}
}

func cart(items ...announce.Item) announce.Section {
	return announce.Section{
		Repository: "ghcr.io/shop/cart", References: []string{"v2"}, Workloads: []string{"Deployment shop/cart"},
		Totals: totalsOf(items), Items: items,
	}
}

// totalsOf counts the items that are not fixed.
func totalsOf(items []announce.Item) (c finding.Counts) {
	for _, item := range items {
		if item.Change == diff.ChangeFixed {
			continue
		}
		c.Add(item.Severity, 1)
		if item.FixedIn != "" {
			c.Fixable++
		}
		if item.KnownExploited {
			c.KnownExploited++
		}
	}
	return c
}

// changesMessage returns a message about changes with these sections.
func changesMessage(sections ...announce.Section) announce.Message {
	d := announce.Message{
		ID: "0123456789abcdef0123456789abcdef", Kind: announce.KindChanges, Namespace: "shop", Scanner: "all", CreatedAt: noon,
		Sections: sections, Images: len(sections), Changes: map[diff.Change]int{}, ReadMore: command,
	}
	var items []announce.Item
	for _, s := range sections {
		items = append(items, s.Items...)
	}
	for _, item := range items {
		d.Changes[item.Change]++
	}
	d.Totals = totalsOf(items)
	return d
}

func one(item announce.Item) announce.Message { return changesMessage(nginx(item)) }

func newDigest() announce.Message {
	return changesMessage(nginx(openssl(), opensslToo(), zlib()), cart(goNet()))
}

func firstScan() announce.Message {
	const nginx, cart = "docker.io/library/nginx", "ghcr.io/shop/cart"
	later := opensslToo()
	later.FixedIn = "3.0.13-1"
	worst := []announce.Item{openssl(), opensslCritical(), later, curl(), zlib(), goNet()}
	for i, repository := range []string{nginx, nginx, nginx, cart, nginx, cart} {
		worst[i].Change, worst[i].Repository = "", repository
	}
	actions := []announce.UpdateAction{
		{
			Repository: nginx, References: []string{"1.25", "1.26"}, Workloads: []string{"CronJob shop/backup", "Deployment shop/web"}, MoreWorkloads: 3,
			Package: "libssl3", Versions: []string{"3.0.9-1"}, Fixes: []announce.Fix{{Version: "3.0.11-1", Findings: 4}, {Version: "3.0.13-1", Findings: 1}},
			Ends: finding.Counts{Critical: 1, High: 4, Fixable: 5, KnownExploited: 1}, Items: 3,
		},
		{
			Repository: cart, References: []string{"v2"}, Workloads: []string{"Deployment shop/cart"},
			Package: "curl", Versions: []string{"7.88.1-10"}, Fixes: []announce.Fix{{Version: "7.88.1-10+deb12u4", Findings: 1}},
			Ends: finding.Counts{Critical: 1, Fixable: 1}, Items: 1,
		},
	}
	return announce.Message{
		ID: "0123456789abcdef0123456789abcdef", Kind: announce.KindFirstScan, Namespace: "shop", Scanner: "all", CreatedAt: noon,
		Totals: finding.Counts{Critical: 4, High: 31, Medium: 70, Low: 12, Unknown: 1, Fixable: 40, KnownExploited: 1}, Images: 6,
		Actions: actions, MoreActions: 12, Worst: worst, Suppressed: 7,
		Remaining: announce.Remaining{Pending: 1, Failed: map[string]int{"NotPulled": 1, "OOMKilled": 2}, Excluded: 2},
		ReadMore:  command,
	}
}

// clusterFirstScan returns the first summary of a ClusterScanner.
func clusterFirstScan() announce.Message {
	d := firstScan()
	d.ScannerKind, d.Namespace, d.Scanner, d.Images, d.MoreActions = announce.ClusterScannerKind, "", "platform", 64, 140
	shop := announce.NamespaceSummary{Namespace: "shop", Totals: d.Totals, Images: 6, Actions: d.Actions}
	blog := announce.NamespaceSummary{Namespace: "blog", Totals: finding.Counts{High: 3, Medium: 9, Fixable: 2}, Images: 2}
	d.Namespaces, d.MoreNamespaces = []announce.NamespaceSummary{shop, blog}, 37
	d.Totals = finding.Counts{Critical: 9, High: 121, Medium: 570, Low: 112, Unknown: 4, Fixable: 340, KnownExploited: 1}
	for i, item := range d.Worst {
		if item.FixedIn == "" {
			d.Worst[i].Workloads = []string{map[string]string{"docker.io/library/nginx": "Deployment shop/web", "ghcr.io/shop/cart": "Deployment shop/cart"}[item.Repository]}
		}
	}
	d.Suppressed, d.ReadMore = 0, "kubectl scanner findings -A"
	return d
}

// namespacesJoined returns a ClusterScanner's message about namespaces that joined, with a new finding elsewhere.
func namespacesJoined() announce.Message {
	d, summary := changesMessage(nginx(openssl())), clusterFirstScan()
	d.ScannerKind, d.Namespace, d.Scanner, d.ReadMore = summary.ScannerKind, "", summary.Scanner, summary.ReadMore
	d.Sections[0].Workloads, d.Sections[0].MoreWorkloads = []string{"Deployment bank/gateway"}, 0
	d.JoinedNamespaces, d.MoreJoinedNamespaces = summary.Namespaces, 3
	d.Totals = finding.Counts{Critical: 4, High: 36, Medium: 81, Low: 12, Unknown: 1, Fixable: 44, KnownExploited: 2}
	return d
}

func engineUpdated() announce.Message {
	d := firstScan()
	d.Kind, d.EngineBefore, d.Engine, d.NotAnnounced = announce.KindEngineUpdated, "grype 0.98.0", "grype 0.99.1", 6
	d.Remaining, d.Suppressed, d.MoreActions = announce.Remaining{}, 0, 0
	d.Actions[0].Ends = finding.Counts{Critical: 1, High: 2, Fixable: 3, KnownExploited: 1}
	d.Actions[0].Fixes[0].Findings = 2
	return d
}

func filterWidened() announce.Message {
	d := engineUpdated()
	d.Kind, d.Engine, d.EngineBefore, d.NotAnnounced = announce.KindFilterWidened, "", "", 70
	for i := range d.Worst {
		d.Worst[i].Severity, d.Worst[i].KnownExploited, d.Worst[i].EPSS = finding.Medium, false, 0
	}
	d.Actions[0].Ends, d.Actions[1].Ends, d.MoreActions = finding.Counts{Medium: 3, Fixable: 3}, finding.Counts{Medium: 1, Fixable: 1}, 21
	return d
}

func storeRestored() announce.Message {
	d := engineUpdated()
	d.Kind, d.Engine, d.EngineBefore, d.RestoredFrom = announce.KindStoreRestored, "", "", daysAgo(2)
	return d
}

func firstTime() announce.Message {
	s := nginx(openssl(), opensslCritical(), opensslToo(), zlib())
	s.FirstTime, s.Totals, s.MoreItems = true, finding.Counts{Critical: 3, High: 41, Fixable: 12, KnownExploited: 1}, 40
	s.Actions = []announce.UpdateAction{{
		Repository: s.Repository, References: s.References, Workloads: s.Workloads, MoreWorkloads: s.MoreWorkloads, Package: "libssl3", Versions: []string{"3.0.9-1"},
		Fixes: []announce.Fix{{Version: "3.0.11-1", Findings: 5}}, Ends: finding.Counts{Critical: 1, High: 4, Fixable: 5, KnownExploited: 1}, Items: 3,
	}}
	d := changesMessage(s)
	d.Totals, d.Changes[diff.ChangeNew], d.ReadMore = s.Totals, 44, "https://scanner.example.com/shop?a=1&b=2"
	return d
}

func newImagesOnly() announce.Message {
	d := changesMessage()
	d.NewImages, d.MoreNewImages = []string{"docker.io/library/postgres", "ghcr.io/shop/mail"}, 2
	return d
}

// mixed returns a message with all kinds of content.
func mixed() announce.Message {
	back := zlib()
	back.Change, back.FirstSeen = diff.ChangeRegressed, daysAgo(90)
	d := changesMessage(nginx(exploited(), opensslToo(), back, fixedOther()), cart(escalated()))
	d.Rest = announce.Rest{Images: 4, Findings: 23, Repositories: []string{"ghcr.io/shop/mail", "ghcr.io/shop/pay"}}
	d.Totals = finding.Counts{Critical: 5, High: 19, Fixable: 12, KnownExploited: 1}
	d.Changes[diff.ChangeNew] += 20
	d.Changes[diff.ChangeFixed] += 3
	d.NewImages = []string{"docker.io/library/postgres"}
	d.Notices = []announce.Notice{imagesFailed()}
	return d
}

func fixedOther() announce.Item {
	item := fixed()
	item.ID, item.Package = "CVE-2022-37434", "zlib1g"
	return item
}

func imagesFailed() announce.Notice {
	return announce.Notice{
		ID: "ImagesFailed/OOMKilled", Kind: announce.NoticeImagesFailed, Since: daysAgo(1), Reason: "OOMKilled", Count: 2,
		Examples: []string{"ghcr.io/shop/ml:v7", "ghcr.io/shop/search:v3"},
	}
}

func healthNotices() announce.Message {
	d := changesMessage()
	d.Notices = []announce.Notice{
		{ID: "ScansFailing", Kind: announce.NoticeScansFailing, Since: daysAgo(1), Reason: "NoVulnerabilityData", Detail: "The vulnerability database cannot be downloaded: no route to host"},
		{ID: "DataOutdated", Kind: announce.NoticeDataOutdated, Since: daysAgo(2), Detail: "The database was built on 2026-04-27: newer data cannot be downloaded: no route to host"},
		{ID: "DataAnomaly", Kind: announce.NoticeDataAnomaly, Since: noon, Count: 312, Detail: "312 of 840 findings are gone"},
		imagesFailed(),
	}
	return d
}

func healthNoticesOver() announce.Message {
	d := healthNotices()
	for i := range d.Notices {
		d.Notices[i].Over = true
	}
	return d
}

func exceptionExpires() announce.Message {
	d := changesMessage()
	d.Notices = []announce.Notice{
		{ID: "a", Kind: announce.NoticeExceptionExpires, Name: "shop/openssl-not-reachable", Until: noon.AddDate(0, 0, 7), Count: 2, Detail: "The server verifies no client certificates"},
		{ID: "b", Kind: announce.NoticeExceptionExpires, Name: "kernel-headers", Until: noon.AddDate(0, 0, 3), Count: 1},
	}
	return d
}

func hostile() announce.Message {
	d := changesMessage(nginx(
		announce.Item{Change: diff.ChangeNew, ID: "CVE-1|<!here>", Severity: finding.High, Package: "<!everyone>", Version: "1&2", FixedIn: "\x00\x1b[31m", URL: "https://evil.io/>|<!channel>"},
		announce.Item{Change: diff.ChangeNew, ID: "CVE-2024-1000", Severity: finding.High, Package: strings.Repeat("&", 500), Version: strings.Repeat("é", 500), URL: "javascript:alert(1)"},
		announce.Item{Change: diff.ChangeNew, ID: "CVE-2024-1001", Severity: finding.Low, Package: "http", Version: "1", URL: "http://plain.example.com/CVE-2024-1001"},
		announce.Item{Change: diff.ChangeNew, ID: "", Severity: finding.Severity(42), Package: "\xff\xfe", URL: "https://user:password@example.com/"},
	))
	d.Sections[0].Repository = "evil.io/<!channel>|<https://evil.io|click>&amp;"
	d.Sections[0].Workloads = []string{"Deployment shop/@here\n*bold*\u202egnirts"}
	d.Rest = announce.Rest{Images: 1, Findings: 1, Repositories: []string{"<!channel>"}}
	d.NewImages = []string{"<@U1|x>"}
	d.Notices = []announce.Notice{{
		Kind: announce.NoticeExceptionExpires, Name: "`<!channel>`/`rm -rf /`", Detail: "<!here>\n" + strings.Repeat("x", 100_000), Examples: []string{"<https://evil.io|x>"},
	}}
	return d
}

// long returns the longest message that the planner composes, with long names.
func long() announce.Message {
	var sections []announce.Section
	for i := range 8 {
		s := announce.Section{
			Repository: fmt.Sprintf("registry.example.com/a/rather/long/path/to/an/image-%d", i), References: []string{"2026.05.04-1234567890"},
			Workloads: []string{"Deployment shop/a-workload-with-quite-a-long-name"}, MoreItems: 5,
		}
		for j := range 10 {
			item := openssl()
			item.ID = fmt.Sprintf("CVE-2024-%d%02d", 100+i, j)
			item.URL = "https://security-tracker.debian.org/tracker/" + item.ID
			item.Package = fmt.Sprintf("a-package-name-that-is-longer-than-most-%d", j/2)
			s.Items = append(s.Items, item)
		}
		sections = append(sections, s)
	}
	d := changesMessage(sections...)
	d.Changes[diff.ChangeNew] += 8 * 5
	return d
}
