package slack

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

var update = flag.Bool("update", false, "write the golden files: go test ./notifier/slack -update")

// TestRenderGolden compares whole messages with golden files. The Slack stand-in checks each message too.
func TestRenderGolden(t *testing.T) {
	golden, err := filepath.Glob(filepath.Join("testdata", "*.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range golden {
		if _, known := messages()[strings.TrimSuffix(filepath.Base(path), ".golden.json")]; !known {
			t.Errorf("%s is the golden file of no message: delete it", path)
		}
	}
	for file, d := range messages() {
		t.Run(file, func(t *testing.T) {
			payload := encode(t, d)
			if violations := standin.Check(payload); len(violations) > 0 {
				t.Errorf("Slack would not take the message: %+v", violations)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, payload, "", "  "); err != nil {
				t.Fatal(err)
			}
			pretty.WriteString("\n")
			path := filepath.Join("testdata", file+".golden.json")
			if *update {
				if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), pretty.String()); diff != "" {
				t.Errorf("the message has changed (-want +got); if that is right, run go test ./notifier/slack -update\n%s", diff)
			}
		})
	}
}

// TestExploitedComesFirst: what is known to be exploited stands in the first block and begins the text of a push message, with a fix and without one.
func TestExploitedComesFirst(t *testing.T) {
	noFix := goNet()
	noFix.KnownExploited = true
	for id, d := range map[string]announce.Message{
		"GHSA-4374-p667-p6c8": changesMessage(nginx(opensslCritical(), curl()), cart(noFix)),
		"CVE-2023-5363":       changesMessage(nginx(curl(), zlib()), cart(openssl())),
	} {
		m := Render(d)
		if want := "Exploited now: " + id + " in ghcr.io/shop/cart (Deployment cart): "; !strings.HasPrefix(m.Text, want) {
			t.Errorf("the text is %q, want it to begin with %q", m.Text, want)
		}
		text := standin.Readable(encode(t, d))
		if exploited, other := strings.LastIndex(text, id), strings.Index(text, "CVE-2023-38545"); exploited > other {
			t.Errorf("%s is not the first finding:\n%s", id, text)
		}
	}
}

// TestTitleLinks: a title links to the page that it is about. Without an https address, it is a header.
func TestTitleLinks(t *testing.T) {
	const base = "https://scanner.example.com"
	inTheCluster, noHTTPS, hostile := withWebUI(healthNotices()), withWebUI(mixed()), withWebUI(one(escalated()))
	inTheCluster.ScannerKind, inTheCluster.Namespace = announce.ClusterScannerKind, ""
	noHTTPS.WebUI, noHTTPS.ReadMore = "http://scanner.example.com", "http://scanner.example.com/vulnerabilities"
	hostile.Sections[0].Items[0].ID = "x|../../*"
	several := withWebUI(mixed())
	several.Sections = slices.Clone(several.Sections)
	for i := range several.Sections {
		items := slices.Clone(several.Sections[i].Items)
		for j := range items {
			items[j].KnownExploited = false
		}
		several.Sections[i].Items = items
	}
	for name, tt := range map[string]struct {
		message announce.Message
		want    string
	}{
		"several, one named":  {withWebUI(mixed()), base + "/vulnerabilities/CVE-2023-5363?namespace=shop"},
		"several":             {several, base + "/vulnerabilities?minSeverity=High&namespace=shop"},
		"one vulnerability":   {withWebUI(one(escalated())), base + "/vulnerabilities/GHSA-4374-p667-p6c8?namespace=shop"},
		"notices":             {withWebUI(healthNotices()), base + "/namespaces/shop/scanners/all"},
		"of a ClusterScanner": {inTheCluster, base + "/clusterscanners/all"},
		"no HTTPS":            {noHTTPS, ""},
		"hostile":             {hostile, base + "/vulnerabilities/x%7C..%2F..%2F%2A?namespace=shop"},
		"no web UI":           {mixed(), ""},
	} {
		if got := titlePage(tt.message); got != tt.want {
			t.Errorf("%s: the title links to %q, want %q", name, got, tt.want)
		}
		header := strings.Contains(string(encode(t, tt.message)), `"type":"header"`)
		if wantHeader := tt.want == "" || name == "hostile"; header != wantHeader {
			t.Errorf("%s: a header is there: %t, want %t", name, header, wantHeader)
		}
	}
}

// TestItems: the text of an item depends on its change.
func TestItems(t *testing.T) {
	noFix, unseen := goNet(), fixAvailable()
	noFix.FixState = finding.FixStateUnknown
	unseen.FixSince, unseen.FirstSeen = time.Time{}, time.Time{}
	fixAgain := exceptionEnded()
	fixAgain.Change = diff.ChangeRegressed
	const update, noFixYet, workloads = "Update libssl3 3.0.9-1 → 3.0.11-1 in nginx:1.25, 1.26", "No fix yet in nginx:1.25, 1.26", " (CronJob backup, Deployment web and 3 more)"
	for name, tt := range map[string]struct {
		item announce.Item
		want string
	}{
		"new":                       {opensslToo(), update + workloads + ": ends 1 High · fix known since 2026-04-30\n🔶 CVE-2024-0727 High · EPSS 3 %"},
		"known exploited":           {openssl(), update + workloads + ": ends 1 known exploited (1 High) · fix known since 2026-04-30\n🚨 CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 %"},
		"will not be fixed":         {zlib(), noFixYet + workloads + "\n🟥 CVE-2023-45853 Critical in zlib1g 1:1.2.13 · will not be fixed"},
		"no fix":                    {goNet(), noFixYet + workloads + "\n🔶 GHSA-4374-p667-p6c8 High in golang.org/x/net v0.15.0"},
		"nothing known of a fix":    {noFix, noFixYet + workloads + "\n🔶 GHSA-4374-p667-p6c8 High in golang.org/x/net v0.15.0"},
		"fix available":             {fixAvailable(), update + workloads + ": ends 1 High\n🔶 CVE-2023-5363 High · EPSS 94 % · fix available since 2026-05-03 · first seen 2026-03-25"},
		"fix available, no dates":   {unseen, update + workloads + ": ends 1 High\n🔶 CVE-2023-5363 High · EPSS 94 % · fix available"},
		"more severe":               {escalated(), noFixYet + workloads + "\n🔶 GHSA-4374-p667-p6c8 High in golang.org/x/net v0.15.0 · was Medium · first seen 2026-03-25"},
		"known exploited now":       {exploited(), "\n🚨 CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · first seen 2026-03-25"},
		"back":                      {regressed(), "\n🟥 CVE-2023-45853 Critical in zlib1g 1:1.2.13 · will not be fixed · is back · first seen 2026-02-03"},
		"fixed":                     {fixed(), "Fixed in nginx:1.25, 1.26" + workloads + "\n✅ CVE-2023-5363 High in libssl3 · first seen 2026-03-25"},
		"exception ended":           {exceptionEnded(), "\n🚨 CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · exception ended · first seen 2026-03-25"},
		"back, and exception ended": {fixAgain, "\n🚨 CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · is back · exception ended · first seen 2026-03-25"},
	} {
		text := standin.Readable(encode(t, one(tt.item)))
		if !strings.Contains(text, tt.want+"\n") {
			t.Errorf("%s: the message is\n%s\nand lacks\n%s", name, text, tt.want)
		}
	}
}

// TestUpdates: findings that one update ends stand together. An update names the versions that it needs, and how many findings each ends.
func TestUpdates(t *testing.T) {
	other := opensslToo()
	other.FixedIn, other.FixSince = "3.0.13-1", time.Time{}
	without := opensslToo()
	without.ID, without.FixedIn, without.FixState = "CVE-2024-5535", "", finding.FixStateNotFixed
	elsewhere := opensslToo()
	elsewhere.Version = "1.1.1"
	either := openssl()
	either.FixedIn = "3.0.11-1, 3.1.3-1"
	for name, tt := range map[string]struct {
		items []announce.Item
		want  string
	}{
		"one fix": {[]announce.Item{openssl(), opensslToo()}, `
Update libssl3 3.0.9-1 → 3.0.11-1 in ghcr.io/shop/cart:v2 (Deployment cart): ends 1 known exploited among 2 High · fix known since 2026-04-30
🚨 CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 %
🔶 CVE-2024-0727 High · EPSS 3 %
`},
		"two fixes, and none": {[]announce.Item{openssl(), other, without}, `
Update libssl3 3.0.9-1 → 3.0.11-1 (3.0.13-1 for 1 finding) in ghcr.io/shop/cart:v2 (Deployment cart): ends 1 known exploited among 2 High
🚨 CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · fix known since 2026-04-30
🔶 CVE-2024-0727 High · EPSS 3 % · → 3.0.13-1
No fix yet in ghcr.io/shop/cart:v2
🔶 CVE-2024-5535 High in libssl3 3.0.9-1 · EPSS 3 %
`},
		"either of two versions": {[]announce.Item{either}, `
Update libssl3 3.0.9-1 → 3.0.11-1 or 3.1.3-1 in ghcr.io/shop/cart:v2 (Deployment cart): ends 1 known exploited (1 High) · fix known since 2026-04-30
`},
		"fixed last": {[]announce.Item{fixedOther(), fixed(), zlib()}, `
No fix yet in ghcr.io/shop/cart:v2 (Deployment cart)
🟥 CVE-2023-45853 Critical in zlib1g 1:1.2.13 · will not be fixed
Fixed in ghcr.io/shop/cart:v2
✅ CVE-2022-37434 High in zlib1g · first seen 2026-03-25
✅ CVE-2023-5363 High in libssl3 · first seen 2026-03-25
`},
		"two installed versions": {[]announce.Item{openssl(), elsewhere}, `
Update libssl3 3.0.9-1, 1.1.1 → 3.0.11-1 in ghcr.io/shop/cart:v2 (Deployment cart): ends 1 known exploited among 2 High · fix known since 2026-04-30
`},
	} {
		if text := standin.Readable(encode(t, changesMessage(cart(tt.items...)))); !strings.Contains(text, tt.want) {
			t.Errorf("%s: the message is\n%s\nand lacks\n%s", name, text, tt.want)
		}
	}
}

// TestCounts: a known exploited finding is counted under its severity, and the text does not read as if it were another one. A count and its
// word are on the same line.
func TestCounts(t *testing.T) {
	for want, c := range map[string]finding.Counts{
		"":                               {},
		"2_Critical, 3_High":             {Critical: 2, High: 3},
		"1_known exploited (1_High)":     {High: 1, KnownExploited: 1},
		"2_known exploited (2_High)":     {High: 2, KnownExploited: 2},
		"1_known exploited among 2_High": {High: 2, KnownExploited: 1},
	} {
		if got := strings.ReplaceAll(countsText(c), noBreak, "_"); got != want {
			t.Errorf("%+v: got %q, want %q", c, got, want)
		}
	}
	const want = "🚨_1_known exploited · 🟥_2_Critical · 1_with_a_fix"
	if got := strings.ReplaceAll(markedTotals(finding.Counts{Critical: 2, Fixable: 1, KnownExploited: 1}), noBreak, "_"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUpdateOfManyVersions: an update counts what its message does not list: findings, versions and workloads.
func TestUpdateOfManyVersions(t *testing.T) {
	s := nginx(openssl())
	s.MoreItems, s.Totals = 19, finding.Counts{High: 20, Fixable: 20, KnownExploited: 1}
	s.Actions = []announce.UpdateAction{{
		Repository: s.Repository, References: []string{"sha256:" + strings.Repeat("a", 64)}, Workloads: []string{"Deployment blog/web"}, WorkloadNamespaces: 3,
		MoreWorkloads: 4, Package: "linux-libc-dev", Versions: []string{"6.1.1"}, MoreVersions: 1,
		Fixes: []announce.Fix{{Version: "6.1.2", Findings: 9}, {Version: "6.1.3", Findings: 4}}, Ends: finding.Counts{High: 20, Fixable: 20}, AtLeast: true, Items: 1,
	}}
	text := standin.Readable(encode(t, changesMessage(s)))
	for _, want := range []string{
		"Update linux-libc-dev 6.1.1 and 1 more → 6.1.2 (6.1.3 for 4 findings, other versions for 7 findings) in nginx@sha256:aaaaaaaaaaaa" +
			" (Deployment blog/web and 4 more in 3 namespaces): ends at least 20 High",
		"\nand 19 more\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

// TestOrderOfUpdates: the most urgent update of all images comes first: known exploited, then by severity, then by number.
func TestOrderOfUpdates(t *testing.T) {
	d := changesMessage(nginx(opensslToo()), cart(curl()), nginx(openssl()))
	d.Sections[2].Repository = "ghcr.io/shop/pay"
	for i := range d.Sections {
		for j := range d.Sections[i].Actions {
			d.Sections[i].Actions[j].Repository = d.Sections[i].Repository
		}
	}
	var got []string
	for line := range strings.Lines(standin.Readable(encode(t, d))) {
		if before, _, found := strings.Cut(line, " ("); found && strings.HasPrefix(line, "Update ") {
			got = append(got, before)
		}
	}
	want := []string{
		"Update libssl3 3.0.9-1 → 3.0.11-1 in ghcr.io/shop/pay:1.25, 1.26", "Update curl 7.88.1-10 → 7.88.1-10+deb12u4 in ghcr.io/shop/cart:v2",
		"Update libssl3 3.0.9-1 → 3.0.11-1 in nginx:1.25, 1.26",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}

// TestFamiliarNames: only the names of Docker Hub's images are shortened, as docker does.
func TestFamiliarNames(t *testing.T) {
	for name, want := range map[string]string{
		"docker.io/library/nginx": "nginx", "docker.io/bitnami/redis": "bitnami/redis", "ghcr.io/shop/cart": "ghcr.io/shop/cart",
		"docker.io/library/": "library/", "docker.io/": "docker.io/", "": "",
	} {
		if got := announce.FamiliarName(name); got != want {
			t.Errorf("%s is shown as %q, want %q", name, got, want)
		}
	}
}

// TestCluster: the message of a ClusterScanner names the namespaces with the most urgent findings, and those that joined.
func TestCluster(t *testing.T) {
	d := clusterFirstScan()
	text := standin.Readable(encode(t, d))
	for _, want := range []string{
		"Exploited now: CVE-2023-5363 in nginx (Deployment shop/web and 4 more): update libssl3 to 3.0.11-1 · First scan of the cluster\n", "ClusterScanner platform · 2026-05-04 12:00 UTC",
		"(CronJob shop/backup, Deployment shop/web and 3 more)",
		"Namespaces with the most urgent findings\nshop · 6 images\n🚨 1 known exploited · 🟥 4 Critical",
		"• Update libssl3 3.0.9-1 → 3.0.11-1 (3.0.13-1 for 1 finding) in nginx (CronJob backup, Deployment web and 3 more): ends 1 known exploited among 1 Critical, 4 High",
		"and 37 more namespaces\n", "of nginx (Deployment shop/web) · will not be fixed", "`kubectl get imagescans -A -o wide`",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	d.Cluster = "prod-eu"
	if text, want := standin.Readable(encode(t, d)), "ClusterScanner platform · cluster prod-eu · 2026-05-04 12:00 UTC"; !strings.Contains(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
	d = healthNotices()
	d.ScannerKind, d.Namespace, d.Scanner = announce.ClusterScannerKind, "", "platform"
	text = standin.Readable(encode(t, d))
	for _, want := range []string{"`kubectl describe clusterscanner platform`", "`kubectl get imagescans -A -o wide`"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	joined := changesMessage()
	joined.ScannerKind, joined.Namespace, joined.JoinedNamespaces = announce.ClusterScannerKind, "", clusterFirstScan().Namespaces[1:]
	if text := standin.Readable(encode(t, joined)); !strings.Contains(text, "First scan of these namespaces\nblog · 2 images\n🔶 3 High") {
		t.Errorf("want the namespace that joined in\n%s", text)
	}
	text = standin.Readable(encode(t, namespacesJoined()))
	for _, want := range []string{
		"update libssl3 to 3.0.11-1, and 1 more exploited · the cluster\n", "First scan of these namespaces\n", "\n🚨 2 known exploited · 🟥 4 Critical", "\n\nblog · 2 images\n", "\nand 3 more namespaces\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

// TestLimitedToNamespaces: a message to a team's channel names the team's namespaces, and its commands need no permission in others.
func TestLimitedToNamespaces(t *testing.T) {
	d := clusterFirstScan()
	d.OnlyNamespaces = []string{"shop"}
	one := standin.Readable(encode(t, d))
	d.OnlyNamespaces, d.MoreOnlyNamespaces = []string{"blog", "shop", "shop-test"}, 4
	several := standin.Readable(encode(t, d))
	for text, want := range map[string][]string{
		one: {" · First scan of shop\n", "ClusterScanner platform · namespace shop · ", "`kubectl -n shop get imagescans -o wide`"},
		several: {
			" · First scan of 7 namespaces\n", " · namespaces blog, shop, shop-test and 4 more · ",
			"`for n in blog shop shop-test; do kubectl -n $n get imagescans -o wide; done`", "The commands are for the first 3 of 7 namespaces.",
		},
	} {
		for _, want := range want {
			if !strings.Contains(text, want) {
				t.Errorf("want %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "imagescans -A") || strings.Contains(text, "the cluster:") {
			t.Errorf("a message about some namespaces speaks about the cluster:\n%s", text)
		}
	}
}

// TestMoreIsALink: the count of items that are not shown links to them.
func TestMoreIsALink(t *testing.T) {
	d := firstTime()
	if payload := string(encode(t, d)); !strings.Contains(payload, `\u003chttps://scanner.example.com/shop?a=1\u0026amp;b=2|and 31 more\u003e`) {
		t.Errorf("no link at what is only counted:\n%s", payload)
	}
	d.ReadMore = command
	text := standin.Readable(encode(t, d))
	for _, want := range []string{"\nand 31 more\n", "The worst finding of each image: `kubectl -n shop get imagescans -o wide`\nAll findings: `" + command + "`"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	// A message of an earlier version.
	d.ReadMore = "kubectl get imagescans -n shop"
	if text := standin.Readable(encode(t, d)); !strings.Contains(text, "repeats them.\nAll findings: `kubectl get imagescans -n shop`") {
		t.Errorf("want one command in\n%s", text)
	}
}

func encode(t interface {
	Helper()
	Fatal(...any)
}, d announce.Message) []byte {
	t.Helper()
	payload, err := json.Marshal(Render(d))
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// TestLongMessageIsShared: a long message shows the worst finding of each image and counts what it leaves out.
func TestLongMessageIsShared(t *testing.T) {
	text := standin.Readable(encode(t, long()))
	shown, counted := findingLines(t, long()), 0
	for line := range strings.Lines(text) {
		var n int
		if scan(line, "and %d more", &n) || scan(line, "And %d more finding", &n) {
			counted += n
		}
	}
	if shown < 25 {
		t.Errorf("only %d findings shown, want at least 25", shown)
	}
	if shown+counted != 8*15 {
		t.Errorf("%d findings shown and %d counted, want %d together", shown, counted, 8*15)
	}
	for i := range 8 {
		if worst := fmt.Sprintf("CVE-2024-%d00", 100+i); !strings.Contains(text, worst) {
			t.Errorf("image %d is without its worst finding %s", i, worst)
		}
	}
}

// TestHealthNotices: each notice states the problem, its consequence and how to investigate it, or that it is over.
func TestHealthNotices(t *testing.T) {
	begin, over := standin.Readable(encode(t, healthNotices())), standin.Readable(encode(t, healthNoticesOver()))
	for _, want := range []string{
		"No scan has succeeded since 2026-05-03\nThe vulnerability database cannot be downloaded: no route to host\n",
		"The vulnerability data is out of date since 2026-05-02\nThe database was built on 2026-04-27",
		"The vulnerability data looks wrong: one version of it lost too many findings\n312 of 840 findings are gone\nUntil they are back, for at most 14 days, no finding",
		"2 images cannot be scanned: OOMKilled\nghcr.io/shop/ml:v7, ghcr.io/shop/search:v3\n",
		"`kubectl -n shop describe scanner all`", "`kubectl -n shop get imagescans -o wide`",
	} {
		if !strings.Contains(begin, want) {
			t.Errorf("the notices lack %q:\n%s", want, begin)
		}
	}
	for _, want := range []string{
		"Scans succeed again", "The vulnerability data is up to date again", "The quarantine of the vulnerability data is over", "No image fails any more with OOMKilled",
	} {
		if !strings.Contains(over, want) {
			t.Errorf("the notices lack %q:\n%s", want, over)
		}
	}
	expires := standin.Readable(encode(t, exceptionExpires()))
	for _, want := range []string{
		"Exception shop/openssl-not-reachable expires on 2026-05-11 12:00 UTC\nThe server verifies no client certificates\nThen the 2 findings that it suppresses are announced again. To extend the exception, " +
			"change its spec.expirationTime: `kubectl -n shop edit vulnerabilityexception openssl-not-reachable`",
		"Exception kernel-headers expires on 2026-05-07 12:00 UTC\nThen the finding that it suppresses is announced again.",
		"`kubectl edit clustervulnerabilityexception kernel-headers`",
	} {
		if !strings.Contains(expires, want) {
			t.Errorf("the notices lack %q:\n%s", want, expires)
		}
	}
}

// TestManyNotices: notices that do not fit are counted.
func TestManyNotices(t *testing.T) {
	d := changesMessage()
	d.Notices = slices.Repeat([]announce.Notice{imagesFailed()}, 20)
	text := standin.Readable(encode(t, d))
	if shown := strings.Count(text, "cannot be scanned: OOMKilled"); shown != maxNotices-1 {
		t.Errorf("%d notices are shown, want %d", shown, maxNotices-1)
	}
	if !strings.Contains(text, "and 13 more notices: `kubectl -n shop describe scanner all`") {
		t.Errorf("the other notices are not counted:\n%s", text)
	}
}
