package slack

import (
	"fmt"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/notify"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// unconfirmedBefore returns a message after two unconfirmed ones, with a notice about another receiver.
func unconfirmedBefore() notify.Message {
	d := one(fixAvailable())
	d.Unconfirmed = &notify.Unconfirmed{Count: 2, Since: daysAgo(1), Title: "4 new findings in shop"}
	d.Notices = []notify.Notice{{ID: "DeliveryUnconfirmed/team", Kind: notify.NoticeUnconfirmed, Name: "team", Since: daysAgo(1), Count: 2}}
	return d
}

func daysAgo(n int) time.Time { return noon.AddDate(0, 0, -n) }

// messages returns examples by the name of their golden file: each kind, each change and important combinations.
func messages() map[string]notify.Message {
	renewed, engine := firstScan(), firstScan()
	renewed.Kind = notify.KindBaselineRenewed
	engine.Kind, engine.EngineBefore, engine.Engine = notify.KindEngineChanged, "grype", "clair https://clair.example.com"
	engineRestored := engine
	engineRestored.RestoredFrom = daysAgo(2)
	clean := notify.Message{Kind: notify.KindFirstScan, Namespace: "shop", Scanner: "all", CreatedAt: noon, Images: 2, ReadMore: command}
	parts := clean
	parts.Remaining.Partly = 2
	return map[string]notify.Message{
		"first-scan": firstScan(), "nothing-found": clean, "nothing-found-in-parts": parts,
		"baseline-renewed": renewed, "engine-changed": engine, "engine-changed-after-restore": engineRestored, "engine-updated": engineUpdated(), "filter-widened": filterWidened(), "store-restored": storeRestored(),
		"new": newDigest(), "fix-available": one(fixAvailable()), "escalated": one(escalated()), "exploited": one(exploited()),
		"regressed": one(regressed()), "fixed": one(fixed()), "exception-ended": one(exceptionEnded()),
		"new-image": firstTime(), "new-images": newImagesOnly(), "mixed": mixed(),
		"troubles": healthNotices(), "troubles-over": healthNoticesOver(), "exception-expires": exceptionExpires(),
		"unconfirmed": unconfirmedBefore(),
		"hostile":     hostile(), "long": long(),
	}
}

const command = "kubectl get imagescans -n shop"

func openssl() notify.Item {
	return notify.Item{
		Change: store.ChangeNew, ID: "CVE-2023-5363", Severity: finding.High, SeverityBefore: finding.High,
		Package: "libssl3", Version: "3.0.9-1", FixedIn: "3.0.11-1", FixState: finding.FixStateFixed, EPSS: 0.94, KnownExploited: true,
		URL: "https://nvd.nist.gov/vuln/detail/CVE-2023-5363", FirstSeen: noon, FixSince: daysAgo(4), ExploitedSince: daysAgo(1),
	}
}

func opensslToo() notify.Item {
	item := openssl()
	item.ID, item.EPSS, item.KnownExploited, item.ExploitedSince = "CVE-2024-0727", 0.03, false, time.Time{}
	item.URL = "https://nvd.nist.gov/vuln/detail/CVE-2024-0727"
	return item
}

func zlib() notify.Item {
	return notify.Item{
		Change: store.ChangeNew, ID: "CVE-2023-45853", Severity: finding.Critical, SeverityBefore: finding.Critical,
		Package: "zlib1g", Version: "1:1.2.13", FixState: finding.FixStateWontFix, EPSS: 0.004, FirstSeen: noon,
		URL: "https://nvd.nist.gov/vuln/detail/CVE-2023-45853",
	}
}

func goNet() notify.Item {
	return notify.Item{
		Change: store.ChangeNew, ID: "GHSA-4374-p667-p6c8", Severity: finding.High, SeverityBefore: finding.High,
		Package: "golang.org/x/net", Version: "v0.15.0", FixState: finding.FixStateNotFixed, FirstSeen: noon,
		URL: "https://github.com/advisories/GHSA-4374-p667-p6c8",
	}
}

func fixAvailable() notify.Item {
	item := openssl()
	item.Change, item.KnownExploited, item.ExploitedSince = store.ChangeFixAvailable, false, time.Time{}
	item.FirstSeen, item.FixSince = daysAgo(40), daysAgo(1)
	return item
}

func escalated() notify.Item {
	item := goNet()
	item.Change, item.SeverityBefore, item.FirstSeen = store.ChangeEscalated, finding.Medium, daysAgo(40)
	return item
}

func exploited() notify.Item {
	item := openssl()
	item.Change, item.FirstSeen = store.ChangeEscalated, daysAgo(40)
	return item
}

func regressed() notify.Item {
	item := zlib()
	item.Change, item.FirstSeen = store.ChangeRegressed, daysAgo(90)
	return item
}

func fixed() notify.Item {
	return notify.Item{
		Change: store.ChangeFixed, ID: "CVE-2023-5363", Severity: finding.High, SeverityBefore: finding.High, Package: "libssl3",
		FirstSeen: daysAgo(40),
	}
}

func exceptionEnded() notify.Item {
	item := openssl()
	item.ExceptionEnded, item.FirstSeen = true, daysAgo(40)
	return item
}

func nginx(items ...notify.Item) notify.Section {
	return notify.Section{
		Repository: "docker.io/library/nginx", References: []string{"1.25", "1.26"},
		Workloads: []string{"Deployment shop/web", "CronJob shop/backup"}, MoreWorkloads: 3,
		Totals: totalsOf(items), Items: items,
	}
}

func cart(items ...notify.Item) notify.Section {
	return notify.Section{
		Repository: "ghcr.io/shop/cart", References: []string{"v2"}, Workloads: []string{"Deployment shop/cart"},
		Totals: totalsOf(items), Items: items,
	}
}

// totalsOf counts the items that are not fixed.
func totalsOf(items []notify.Item) (c finding.Counts) {
	for _, item := range items {
		if item.Change == store.ChangeFixed {
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
func changesMessage(sections ...notify.Section) notify.Message {
	d := notify.Message{
		ID: "0123456789abcdef0123456789abcdef", Kind: notify.KindChanges, Namespace: "shop", Scanner: "all", CreatedAt: noon,
		Sections: sections, Images: len(sections), Changes: map[store.Change]int{}, ReadMore: command,
	}
	var items []notify.Item
	for _, s := range sections {
		items = append(items, s.Items...)
	}
	for _, item := range items {
		d.Changes[item.Change]++
	}
	d.Totals = totalsOf(items)
	return d
}

func one(item notify.Item) notify.Message { return changesMessage(nginx(item)) }

func newDigest() notify.Message {
	return changesMessage(nginx(openssl(), opensslToo(), zlib()), cart(goNet()))
}

func firstScan() notify.Message {
	var worst []notify.Item
	for i, item := range []notify.Item{openssl(), zlib(), goNet()} {
		item.Change, item.Repository = "", []string{"docker.io/library/nginx", "docker.io/library/nginx", "ghcr.io/shop/cart"}[i]
		worst = append(worst, item)
	}
	return notify.Message{
		ID: "0123456789abcdef0123456789abcdef", Kind: notify.KindFirstScan, Namespace: "shop", Scanner: "all", CreatedAt: noon,
		Totals: finding.Counts{Critical: 4, High: 31, Medium: 70, Low: 12, Unknown: 1, Fixable: 40, KnownExploited: 1}, Images: 6,
		Worst: worst, Suppressed: 7,
		Remaining: notify.Remaining{Pending: 1, Failed: map[string]int{"NotPulled": 1, "OOMKilled": 2}, Excluded: 2},
		ReadMore:  "https://scanner.example.com/shop?a=1&b=2",
	}
}

func engineUpdated() notify.Message {
	d := firstScan()
	d.Kind, d.EngineBefore, d.Engine, d.NotAnnounced = notify.KindEngineUpdated, "grype 0.98.0", "grype 0.99.1", 5
	d.Remaining, d.Suppressed = notify.Remaining{}, 0
	return d
}

func filterWidened() notify.Message {
	d := engineUpdated()
	d.Kind, d.Engine, d.EngineBefore, d.NotAnnounced = notify.KindFilterWidened, "", "", 70
	for i := range d.Worst {
		d.Worst[i].Severity, d.Worst[i].KnownExploited = finding.Medium, false
	}
	return d
}

func storeRestored() notify.Message {
	d := engineUpdated()
	d.Kind, d.Engine, d.EngineBefore, d.RestoredFrom = notify.KindStoreRestored, "", "", daysAgo(2)
	return d
}

func firstTime() notify.Message {
	s := nginx(openssl(), opensslToo(), zlib())
	s.FirstTime, s.Totals, s.MoreItems = true, finding.Counts{Critical: 3, High: 41, Fixable: 12, KnownExploited: 1}, 41
	d := changesMessage(s)
	d.Totals, d.Changes[store.ChangeNew], d.ReadMore = s.Totals, 44, "https://scanner.example.com/shop"
	return d
}

func newImagesOnly() notify.Message {
	d := changesMessage()
	d.NewImages, d.MoreNewImages = []string{"docker.io/library/postgres", "ghcr.io/shop/mail"}, 2
	return d
}

// mixed returns a message with all kinds of content.
func mixed() notify.Message {
	back := zlib()
	back.Change, back.FirstSeen = store.ChangeRegressed, daysAgo(90)
	d := changesMessage(nginx(exploited(), opensslToo(), back, fixedOther()), cart(escalated()))
	d.Rest = notify.Rest{Images: 4, Findings: 23, Repositories: []string{"ghcr.io/shop/mail", "ghcr.io/shop/pay"}}
	d.Totals = finding.Counts{Critical: 5, High: 19, Fixable: 12, KnownExploited: 1}
	d.Changes[store.ChangeNew] += 20
	d.Changes[store.ChangeFixed] += 3
	d.NewImages = []string{"docker.io/library/postgres"}
	d.Notices = []notify.Notice{imagesFailed()}
	return d
}

func fixedOther() notify.Item {
	item := fixed()
	item.ID, item.Package = "CVE-2022-37434", "zlib1g"
	return item
}

func imagesFailed() notify.Notice {
	return notify.Notice{
		ID: "ImagesFailed/OOMKilled", Kind: notify.NoticeImagesFailed, Since: daysAgo(1), Reason: "OOMKilled", Count: 2,
		Examples: []string{"ghcr.io/shop/ml:v7", "ghcr.io/shop/search:v3"},
	}
}

func healthNotices() notify.Message {
	d := changesMessage()
	d.Notices = []notify.Notice{
		{ID: "ScansFailing", Kind: notify.NoticeScansFailing, Since: daysAgo(1), Reason: "NoVulnerabilityData", Detail: "The vulnerability database cannot be downloaded: no route to host"},
		{ID: "DataOutdated", Kind: notify.NoticeDataOutdated, Since: daysAgo(2), Detail: "The database was built on 2026-04-27: newer data cannot be downloaded: no route to host"},
		{ID: "DataAnomaly", Kind: notify.NoticeDataAnomaly, Since: noon, Count: 312, Detail: "312 of 840 findings are gone"},
		imagesFailed(),
	}
	return d
}

func healthNoticesOver() notify.Message {
	d := healthNotices()
	for i := range d.Notices {
		d.Notices[i].Over = true
	}
	return d
}

func exceptionExpires() notify.Message {
	d := changesMessage()
	d.Notices = []notify.Notice{
		{ID: "a", Kind: notify.NoticeExceptionExpires, Name: "shop/openssl-not-reachable", Until: noon.AddDate(0, 0, 7), Count: 2, Detail: "The server verifies no client certificates"},
		{ID: "b", Kind: notify.NoticeExceptionExpires, Name: "kernel-headers", Until: noon.AddDate(0, 0, 3), Count: 1},
	}
	return d
}

func hostile() notify.Message {
	d := changesMessage(nginx(
		notify.Item{Change: store.ChangeNew, ID: "CVE-1|<!here>", Severity: finding.High, Package: "<!everyone>", Version: "1&2", FixedIn: "\x00\x1b[31m", URL: "https://evil.io/>|<!channel>"},
		notify.Item{Change: store.ChangeNew, ID: "CVE-2024-1000", Severity: finding.High, Package: strings.Repeat("&", 500), Version: strings.Repeat("é", 500), URL: "javascript:alert(1)"},
		notify.Item{Change: store.ChangeNew, ID: "CVE-2024-1001", Severity: finding.Low, Package: "http", Version: "1", URL: "http://plain.example.com/CVE-2024-1001"},
		notify.Item{Change: store.ChangeNew, ID: "", Severity: finding.Severity(42), Package: "\xff\xfe", URL: "https://user:password@example.com/"},
	))
	d.Sections[0].Repository = "evil.io/<!channel>|<https://evil.io|click>&amp;"
	d.Sections[0].Workloads = []string{"Deployment shop/@here\n*bold*\u202egnirts"}
	d.Rest = notify.Rest{Images: 1, Findings: 1, Repositories: []string{"<!channel>"}}
	d.NewImages = []string{"<@U1|x>"}
	d.Notices = []notify.Notice{{
		Kind: notify.NoticeExceptionExpires, Name: "`<!channel>`/`rm -rf /`", Detail: "<!here>\n" + strings.Repeat("x", 100_000), Examples: []string{"<https://evil.io|x>"},
	}}
	return d
}

// long returns the longest message that the planner composes, with long names.
func long() notify.Message {
	var sections []notify.Section
	for i := range 8 {
		s := notify.Section{
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
	d.Changes[store.ChangeNew] += 8 * 5
	return d
}
