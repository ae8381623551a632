package slack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// assertAcceptable checks what holds for every message: Slack accepts it, and it stays within maxTotalText.
func assertAcceptable(t interface {
	Helper()
	Errorf(string, ...any)
	Fatal(...any)
}, d announce.Message) {
	t.Helper()
	payload := encode(t, d)
	for _, v := range standin.Check(payload) {
		t.Errorf("Slack would not take the message, or we do not want it: %s %s", v.Error, v.Detail)
	}
	var message struct {
		Text   string
		Blocks []struct {
			Text     *struct{ Text string }
			Elements []struct{ Text string }
		}
	}
	if err := json.Unmarshal(payload, &message); err != nil {
		t.Fatal(err)
	}
	total := len(message.Text)
	for _, b := range message.Blocks {
		if b.Text != nil {
			total += len(b.Text.Text)
		}
		for _, e := range b.Elements {
			total += len(e.Text)
		}
	}
	if total > maxTotalText {
		t.Errorf("all texts together have %d bytes, want at most %d", total, maxTotalText)
	}
}

// TestAnyMessageIsAcceptable: Slack accepts the rendered message for any input, and the message accounts for all findings and notices.
func TestAnyMessageIsAcceptable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyMessage().Draw(t, "digest")
		assertAcceptable(t, d)
		if d.Kind == announce.KindChanges {
			d.Notices = anyNotices(t, "notice")
			assertCounted(t, d)
		}
	})
}

// assertCounted checks that findings and notices that are shown, counted as "and N more" or only counted add up to all that d has.
func assertCounted(t *rapid.T, d announce.Message) {
	want, got := d.Rest.Findings, findingLines(t, d)
	for _, s := range d.Sections {
		want += len(s.Items) + s.MoreItems
	}
	notices := len(d.Notices)
	for line := range strings.Lines(standin.Readable(encode(t, d))) {
		var n int
		switch {
		case scan(line, "And %d more finding", &n):
			got += n
		case scan(line, "and %d more notice", &n):
			notices -= n
		case scan(line, "and %d more namespace", &n):
		case scan(line, "and %d more", &n):
			got += n
		case strings.HasPrefix(line, seeWhy), strings.HasPrefix(line, isPast):
			notices--
		}
	}
	if got != want {
		t.Fatalf("the message accounts for %d findings, the digest has %d", got, want)
	}
	if notices != 0 {
		t.Fatalf("the message lacks %d of %d notices", notices, len(d.Notices))
	}
}

// findingLines counts the lines of findings: only these have a bold ID after a mark.
func findingLines(t interface {
	Helper()
	Fatal(...any)
}, d announce.Message) (n int) {
	var message struct {
		Blocks []struct{ Text *struct{ Text string } }
	}
	if err := json.Unmarshal(encode(t, d), &message); err != nil {
		t.Fatal(err)
	}
	marks := append(slices.Collect(maps.Values(severityMarks)), markExploited, markFixed)
	for _, b := range message.Blocks {
		if b.Text == nil {
			continue
		}
		for line := range strings.Lines(b.Text.Text) {
			if slices.ContainsFunc(marks, func(mark string) bool { return strings.HasPrefix(line, mark+" *") }) {
				n++
			}
		}
	}
	return n
}

// seeWhy and isPast begin a line of each notice of an unknown kind.
const seeWhy, isPast = "To see the reason: ", "notice is over"

func scan(line, format string, into ...any) bool {
	_, err := fmt.Sscanf(line, format, into...)
	return err == nil
}

// anyText draws texts that are likely to break a renderer.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringN(0, 40, 200),
		rapid.SampledFrom([]string{"", " ", "\n", "<!channel>", "<@U1|x>", "&", "&lt;", "a|b", "`", "*", "\u202e", "\u05d0\u05d1 1.0", "\xff", "\x00\x1b[31m", "@here", "<https://a.example/|x>"}),
		rapid.Map(rapid.IntRange(1, 5000), func(n int) string { return strings.Repeat("&<é", n) }),
		rapid.Map(rapid.IntRange(1, 5000), func(n int) string { return strings.Repeat("x", n) }),
	)
}

func anyURL() *rapid.Generator[string] {
	return rapid.OneOf(anyText(), rapid.Map(anyText(), func(s string) string { return "https://example.com/" + s }),
		rapid.Just("https://nvd.nist.gov/vuln/detail/CVE-2024-1?a=b&c=d"))
}

func anyItem() *rapid.Generator[announce.Item] {
	return rapid.Custom(func(t *rapid.T) announce.Item {
		return announce.Item{
			ID: anyText().Draw(t, "id"), Severity: finding.Severity(rapid.IntRange(-1, 7).Draw(t, "severity")),
			Package: anyText().Draw(t, "package"), Version: anyText().Draw(t, "version"), FixedIn: anyText().Draw(t, "fixed in"),
			FixState: rapid.SampledFrom([]string{finding.FixStateFixed, finding.FixStateWontFix, finding.FixStateNotFixed, ""}).Draw(t, "fix state"),
			EPSS:     rapid.Float64().Draw(t, "epss"), KnownExploited: rapid.Bool().Draw(t, "exploited"),
			URL: anyURL().Draw(t, "url"), Repository: anyText().Draw(t, "repository"),
			Change:         anyChange().Draw(t, "change"),
			SeverityBefore: finding.Severity(rapid.IntRange(-1, 7).Draw(t, "severity before")), ExceptionEnded: rapid.Bool().Draw(t, "exception ended"),
			FirstSeen: anyTime().Draw(t, "first seen"), FixSince: anyTime().Draw(t, "fix since"), ExploitedSince: anyTime().Draw(t, "exploited since"),
		}
	})
}

// itemsOfFewPackages draws items of few packages, in any order.
func itemsOfFewPackages() *rapid.Generator[announce.Item] {
	return rapid.Custom(func(t *rapid.T) announce.Item {
		item := anyItem().Draw(t, "item")
		item.Package, item.Version = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "package"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version")
		return item
	})
}

func anyChange() *rapid.Generator[diff.Change] {
	return rapid.SampledFrom([]diff.Change{
		diff.ChangeNew, diff.ChangeFixAvailable, diff.ChangeEscalated, diff.ChangeRegressed, diff.ChangeFixed, diff.ChangeNewImage, "", "Other",
	})
}

func anyTime() *rapid.Generator[time.Time] {
	return rapid.Map(rapid.Int64Range(-1<<35, 1<<35), func(seconds int64) time.Time {
		if seconds < 0 {
			return time.Time{}
		}
		return time.Unix(seconds, 0)
	})
}

func anyNotice(kind announce.NoticeKind) *rapid.Generator[announce.Notice] {
	return rapid.Custom(func(t *rapid.T) announce.Notice {
		return announce.Notice{
			ID: anyText().Draw(t, "id"), Kind: kind, Since: anyTime().Draw(t, "since"), Until: anyTime().Draw(t, "until"),
			Reason: anyText().Draw(t, "reason"), Name: anyText().Draw(t, "name"), Detail: anyText().Draw(t, "detail"),
			Count: rapid.IntRange(0, 1_000_000).Draw(t, "count"), Examples: rapid.SliceOfN(anyText(), 0, 6).Draw(t, "examples"),
			Over: rapid.Bool().Draw(t, "over"),
		}
	})
}

// anyNotices draws notices of the given kinds.
func anyNotices(t *rapid.T, kinds ...announce.NoticeKind) (notices []announce.Notice) {
	for range rapid.IntRange(0, 12).Draw(t, "notices") {
		notices = append(notices, anyNotice(rapid.SampledFrom(kinds).Draw(t, "kind")).Draw(t, "notice"))
	}
	return notices
}

func anyRest() *rapid.Generator[announce.Rest] {
	return rapid.Custom(func(t *rapid.T) announce.Rest {
		return announce.Rest{
			Images: rapid.IntRange(0, 1000).Draw(t, "images"), Findings: rapid.IntRange(0, 1_000_000).Draw(t, "findings"),
			Repositories: rapid.SliceOfN(anyText(), 0, 12).Draw(t, "repositories"),
		}
	})
}

func anyCounts() *rapid.Generator[finding.Counts] {
	n := rapid.IntRange(0, 1<<40)
	return rapid.Custom(func(t *rapid.T) finding.Counts {
		return finding.Counts{Critical: n.Draw(t, "critical"), High: n.Draw(t, "high"), Unknown: n.Draw(t, "unknown"), Fixable: n.Draw(t, "fixable")}
	})
}

func anySection() *rapid.Generator[announce.Section] {
	return rapid.Custom(func(t *rapid.T) announce.Section {
		return announce.Section{
			Repository: anyText().Draw(t, "repository"), References: rapid.SliceOfN(anyText(), 0, 6).Draw(t, "references"),
			Workloads: rapid.SliceOfN(anyText(), 0, 12).Draw(t, "workloads"), MoreWorkloads: rapid.IntRange(0, 1000).Draw(t, "more workloads"),
			FirstTime: rapid.Bool().Draw(t, "first time"), Totals: anyCounts().Draw(t, "totals"),
			Actions: rapid.SliceOfN(anyAction(), 0, 6).Draw(t, "actions"), WorkloadNamespaces: rapid.IntRange(0, 1000).Draw(t, "workload namespaces"),
			Items: rapid.SliceOfN(rapid.OneOf(anyItem(), itemsOfFewPackages()), 0, 12).Draw(t, "items"), MoreItems: rapid.IntRange(0, 1_000_000).Draw(t, "more items"),
		}
	})
}

func anyAction() *rapid.Generator[announce.UpdateAction] {
	return rapid.Custom(func(t *rapid.T) announce.UpdateAction {
		return announce.UpdateAction{
			Repository: anyText().Draw(t, "repository"), References: rapid.SliceOfN(anyText(), 0, 6).Draw(t, "references"),
			Workloads: rapid.SliceOfN(anyText(), 0, 12).Draw(t, "workloads"), MoreWorkloads: rapid.IntRange(0, 1000).Draw(t, "more workloads"),
			WorkloadNamespaces: rapid.IntRange(0, 1000).Draw(t, "namespaces"), Package: anyText().Draw(t, "package"),
			Versions: rapid.SliceOfN(anyText(), 0, 5).Draw(t, "versions"), MoreVersions: rapid.IntRange(0, 1000).Draw(t, "more versions"),
			Fixes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) announce.Fix {
				return announce.Fix{Version: anyText().Draw(t, "version"), Findings: rapid.IntRange(0, 1_000_000).Draw(t, "findings")}
			}), 0, 4).Draw(t, "fixes"),
			Ends: anyCounts().Draw(t, "ends"), AtLeast: rapid.Bool().Draw(t, "at least"), Items: rapid.IntRange(-1, 5).Draw(t, "items"),
		}
	})
}

func anyNamespace() *rapid.Generator[announce.NamespaceSummary] {
	return rapid.Custom(func(t *rapid.T) announce.NamespaceSummary {
		return announce.NamespaceSummary{
			Namespace: anyText().Draw(t, "namespace"), Totals: anyCounts().Draw(t, "totals"), Images: rapid.IntRange(0, 1000).Draw(t, "images"),
			Actions: rapid.SliceOfN(anyAction(), 0, 5).Draw(t, "actions"),
		}
	})
}

func anyMessage() *rapid.Generator[announce.Message] {
	return rapid.Custom(func(t *rapid.T) announce.Message {
		return announce.Message{
			ID: anyText().Draw(t, "id"), Kind: rapid.SampledFrom([]announce.Kind{
				announce.KindChanges, announce.KindFirstScan, announce.KindBaselineRenewed, announce.KindEngineChanged, announce.KindEngineUpdated, announce.KindFilterWidened, announce.KindStoreRestored, "Other",
			}).Draw(t, "kind"),
			Engine: anyText().Draw(t, "engine"), EngineBefore: anyText().Draw(t, "engine before"), RestoredFrom: noon,
			Namespace: anyText().Draw(t, "namespace"), Scanner: anyText().Draw(t, "scanner"), CreatedAt: time.Unix(rapid.Int64Range(0, 1<<35).Draw(t, "time"), 0),
			Totals: anyCounts().Draw(t, "totals"), Images: rapid.IntRange(0, 1000).Draw(t, "images"),
			Sections: rapid.SliceOfN(anySection(), 0, 60).Draw(t, "sections"), Rest: anyRest().Draw(t, "rest"),
			Changes:   rapid.MapOfN(anyChange(), rapid.IntRange(0, 1_000_000), 0, 8).Draw(t, "changes"),
			NewImages: rapid.SliceOfN(anyText(), 0, 12).Draw(t, "new images"), MoreNewImages: rapid.IntRange(0, 1000).Draw(t, "more new images"),
			Notices: anyNotices(t, "notice", announce.NoticeScansFailing, announce.NoticeDataOutdated, announce.NoticeDataAnomaly, announce.NoticeImagesFailed,
				announce.NoticeUnconfirmed, announce.NoticeExceptionExpires),
			Unconfirmed: rapid.Ptr(rapid.Custom(func(t *rapid.T) announce.Unconfirmed {
				return announce.Unconfirmed{
					Count: rapid.IntRange(0, 1000).Draw(t, "unconfirmed"), Title: anyText().Draw(t, "title"),
					Since: time.Unix(rapid.Int64Range(0, 1<<35).Draw(t, "unconfirmed since"), 0),
				}
			}), true).Draw(t, "unconfirmed messages"),
			Suppressed: rapid.IntRange(0, 1000).Draw(t, "suppressed"), NotAnnounced: rapid.IntRange(0, 1000).Draw(t, "not announced"),
			ScannerKind: rapid.SampledFrom([]string{"", announce.ClusterScannerKind}).Draw(t, "scanner kind"),
			Actions:     rapid.SliceOfN(anyAction(), 0, 30).Draw(t, "actions"), MoreActions: rapid.IntRange(0, 1000).Draw(t, "more actions"),
			Namespaces: rapid.SliceOfN(anyNamespace(), 0, 12).Draw(t, "namespaces"), MoreNamespaces: rapid.IntRange(0, 1000).Draw(t, "more namespaces"),
			OnlyNamespaces: rapid.SliceOfN(anyText(), 0, 5).Draw(t, "only namespaces"), MoreOnlyNamespaces: rapid.IntRange(0, 1000).Draw(t, "more only namespaces"),
			JoinedNamespaces: rapid.SliceOfN(anyNamespace(), 0, 12).Draw(t, "joined namespaces"), MoreJoinedNamespaces: rapid.IntRange(-9, 1000).Draw(t, "more joined namespaces"),
			Worst: rapid.SliceOfN(anyItem(), 0, 8).Draw(t, "worst"),
			Remaining: announce.Remaining{
				Pending: rapid.IntRange(0, 9).Draw(t, "pending"), Excluded: rapid.IntRange(0, 9).Draw(t, "excluded"),
				Failed: rapid.MapOfN(anyText(), rapid.IntRange(0, 9), 0, 30).Draw(t, "failed"),
			},
			ReadMore: anyURL().Draw(t, "read more"), WebUI: anyURL().Draw(t, "web UI"),
		}
	})
}

// TestHugeTexts: texts of 100 kB in any field do not break the limits.
func TestHugeTexts(t *testing.T) {
	for _, huge := range []string{strings.Repeat("<", 100_000), strings.Repeat("\u05d0\xff ", 25_000), strings.Repeat("\n", 100_000)} {
		item := announce.Item{Change: diff.ChangeEscalated, ID: huge, Package: huge, Version: huge, FixedIn: huge, FixState: huge, URL: huge, Repository: huge}
		section := announce.Section{Repository: huge, References: []string{huge}, Workloads: []string{huge}, Items: []announce.Item{item, item}}
		update := announce.UpdateAction{
			Repository: huge, References: []string{huge, huge}, Workloads: []string{huge, huge}, Package: huge, Versions: []string{huge, huge},
			Fixes: []announce.Fix{{Version: huge, Findings: 1}, {Version: huge}}, Ends: finding.Counts{High: 2}, Items: 1,
		}
		section.Actions = []announce.UpdateAction{update, update}
		namespace := announce.NamespaceSummary{Namespace: huge, Actions: section.Actions}
		notice := announce.Notice{Kind: announce.NoticeImagesFailed, Reason: huge, Detail: huge, Name: huge, Examples: []string{huge}}
		for _, kind := range []announce.Kind{announce.KindChanges, announce.KindEngineUpdated} {
			assertAcceptable(t, announce.Message{
				Kind: kind, Namespace: huge, Scanner: huge, Engine: huge, EngineBefore: huge, RestoredFrom: noon, ReadMore: huge, Sections: []announce.Section{section, section},
				Actions: section.Actions, Namespaces: []announce.NamespaceSummary{namespace}, OnlyNamespaces: []string{huge, huge}, JoinedNamespaces: []announce.NamespaceSummary{namespace},
				Worst: []announce.Item{item}, Rest: announce.Rest{Images: 1, Findings: 1, Repositories: []string{huge}}, NewImages: []string{huge},
				Notices: []announce.Notice{notice, notice}, Unconfirmed: &announce.Unconfirmed{Count: 1, Title: huge}, Remaining: announce.Remaining{Failed: map[string]int{huge: 1}},
			})
		}
	}
}

// TestLongNames: names that differ only at their end, as those of images in one registry do, stay different wherever a message has them.
func TestLongNames(t *testing.T) {
	prefix := "registry.example.com/" + strings.Repeat("a-team-with-a-long-name/", 9)
	m := announce.Message{
		Kind: announce.KindChanges, Namespace: "shop", Scanner: "default", NewImages: []string{prefix + "new-1", prefix + "new-2"},
		Totals: finding.Counts{High: 2}, Changes: map[diff.Change]int{diff.ChangeNew: 2}, Rest: announce.Rest{Images: 2, Findings: 2, Repositories: []string{prefix + "rest-1", prefix + "rest-2"}},
		Notices: []announce.Notice{{Kind: announce.NoticeImagesFailed, Count: 2, Examples: []string{prefix + "failed-1", prefix + "failed-2"}}},
	}
	for _, name := range []string{"listed-1", "listed-2"} {
		m.Sections = append(m.Sections, announce.Section{
			Repository: prefix + name, Workloads: []string{"Deployment " + strings.Repeat("n", 63) + "/" + strings.Repeat("w", 55) + name}, Totals: finding.Counts{High: 1},
			Items: []announce.Item{{Change: diff.ChangeNew, ID: "CVE-2026-1", Severity: finding.High, Package: "github.com/" + strings.Repeat("path/", 20) + "of-" + name}},
		})
	}
	text := standin.Readable(encode(t, m))
	for _, want := range []string{"new-1", "new-2", "rest-1", "rest-2", "failed-1", "failed-2", "name/listed-1", "name/listed-2", "wlisted-1", "wlisted-2", "of-listed-1", "of-listed-2", "registry.example.com/"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

// TestDirection: no name changes the direction of the text next to it.
func TestDirection(t *testing.T) {
	for given, want := range map[string]string{
		"open\u202essl":              "openssl",
		"\u2067a\u2069":              "a",
		"\u05d0\u05d1":               "\u2068\u05d0\u05d1\u2069",
		"a \u0627":                   "\u2068a \u0627\u2069",
		strings.Repeat("\u05d0", 90): "\u2068" + strings.Repeat("\u05d0", 17) + "…" + strings.Repeat("\u05d0", 18) + "\u2069",
	} {
		if got := escapedName(given, maxPackage); got != want || len(got) > maxPackage {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}

// FuzzRender renders messages decoded from any JSON, as they arrive at the notifier.
func FuzzRender(f *testing.F) {
	for _, d := range messages() {
		seed, err := json.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d announce.Message
		if json.Unmarshal(data, &d) != nil || !plausible(d) {
			return
		}
		assertAcceptable(t, d)
	})
}

// plausible reports whether the sums of the numbers in d fit into an int.
func plausible(d announce.Message) bool {
	if d.Rest.Findings < 0 || d.Rest.Findings > 1<<40 || d.Rest.Images < 0 || d.Rest.Images > 1<<40 {
		return false
	}
	for _, s := range d.Sections {
		if s.MoreItems < 0 || s.MoreItems > 1<<40 {
			return false
		}
	}
	return true
}
