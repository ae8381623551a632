// Package messagetest makes messages from random input, for the tests of what renders them. Only tests import it.
package messagetest

import (
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Names of each message.
const (
	ID        = "5c0ddbf1a5f84a7f9c1de0f3b2a6c7d8"
	Namespace = "shop"
	Scanner   = "default"
	Cluster   = "blue"
)

// kinds are those of messages with a content of their own.
var kinds = []announce.Kind{
	announce.KindChanges, announce.KindFirstScan, announce.KindScheduledSummary, announce.KindEngineUpdated, announce.KindStoreRestored,
}

// Of returns a message whose names, versions and explanations are all text, as an image or a failure may have it, and whose addresses are all address.
// The number decides about the kind and about how much there is of everything.
func Of(text, address string, number uint8) announce.Message {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	n := int(number)
	item := announce.Item{
		Change: diff.ChangeEscalated, ID: text, Severity: finding.Critical, SeverityBefore: finding.High, Package: text, Version: text, FixedIn: text, URL: address,
		FixState: finding.FixStateFixed, KnownExploited: n%2 == 1, FirstSeen: noon, Repository: text, Workloads: []string{text}, MoreWorkloads: n,
	}
	counts := finding.Counts{Critical: n + 1, Fixable: n, KnownExploited: n % 2}
	update := announce.UpdateAction{
		Repository: text, References: []string{text}, Workloads: []string{text}, Package: text, Versions: []string{text}, Fixes: []announce.Fix{{Version: text, Findings: 1}},
		Ends: counts, Items: 1,
	}
	updates, items := slices.Repeat([]announce.UpdateAction{update}, n%7), slices.Repeat([]announce.Item{item}, n%7+1)
	section := announce.Section{
		Repository: text, References: []string{text}, Workloads: []string{text}, Totals: counts, Actions: updates, Items: items, MoreItems: n, FirstTime: n%3 == 0,
	}
	notice := announce.Notice{ID: text, Kind: announce.NoticeImagesFailed, Since: noon, Reason: text, Name: text, Detail: text, Count: n, Examples: []string{text}}
	namespace := announce.NamespaceSummary{Namespace: text, Totals: counts, Images: n, Actions: updates[:min(len(updates), 3)]}
	m := announce.Message{
		ID: ID, Kind: kinds[n%len(kinds)], Namespace: Namespace, Scanner: Scanner, Cluster: Cluster, CreatedAt: noon, Engine: text, EngineBefore: text, RestoredFrom: noon,
		Totals: counts, Images: n, NewImages: []string{text}, Notices: []announce.Notice{notice}, ReadMore: address, WebUI: address,
		Unconfirmed: &announce.Unconfirmed{Count: 1, Since: noon, Title: text}, Remaining: announce.Remaining{Pending: n, Failed: map[string]int{text: n}},
	}
	if m.Kind == announce.KindChanges {
		m.Changes, m.Sections = map[diff.Change]int{diff.ChangeEscalated: n + 1}, slices.Repeat([]announce.Section{section}, n%8+1)
		m.Rest = announce.Rest{Images: n, Findings: n, Repositories: []string{text}}
		return m
	}
	m.Actions, m.Worst, m.NotAnnounced, m.Suppressed = updates, items, n, n
	m.Trend, m.OldestExploited = &announce.Trend{Since: noon, Opened: n, Fixed: n, NotProven: n, Before: &counts}, &item
	if n%2 == 0 {
		m.ScannerKind, m.Namespace = announce.ClusterScannerKind, ""
		m.OnlyNamespaces, m.Namespaces = []string{text}, []announce.NamespaceSummary{namespace, namespace}
	}
	return m
}

// Seeds are texts that mean something to one of the formats.
var Seeds = []string{
	"openssl", "", "<https://evil.example.com/|x>", "`code` *bold* _x_ ~y~", "[x](https://evil.example.com/)", "<at>everyone</at> @here", "<script>alert(1)</script>",
	"x\r\nBcc: evil@example.com\r\n\r\n", "{{.Title}} ${x}", "\"quoted\" 'x' \\", "&lt;b&gt;&amp;amp;", "\u202eevil\u2066", "\xff\xfe", "a\x00b\x1b[31m", "=?utf-8?q?x?=", ".\r\n.\r\n",
}
