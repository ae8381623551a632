package email

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

var update = flag.Bool("update", false, "write the golden file: go test ./notifier/email -update")

// message is a message with a link, an update, a command and a notice.
func message() announce.Message {
	counts := finding.Counts{Critical: 1, High: 1, Fixable: 1, KnownExploited: 1}
	return announce.Message{
		ID: "5c0ddbf1a5f84a7f9c1de0f3b2a6c7d8", Kind: announce.KindChanges, Namespace: "shop", Scanner: "default",
		CreatedAt: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), ReadMore: "kubectl get imagescans", Totals: counts,
		Changes: map[diff.Change]int{diff.ChangeNew: 2}, Images: 1,
		Sections: []announce.Section{{
			Repository: "registry.example.com/shop/web", References: []string{"1.4"}, Workloads: []string{"Deployment shop/web"}, Totals: counts,
			Actions: []announce.UpdateAction{{
				Repository: "registry.example.com/shop/web", References: []string{"1.4"}, Workloads: []string{"Deployment shop/web"}, Package: "lib<b>", Versions: []string{"3.0.11-1"},
				Fixes: []announce.Fix{{Version: "3.0.13-1", Findings: 1}}, Ends: finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1}, Items: 1,
			}},
			Items: []announce.Item{{
				Change: diff.ChangeNew, ID: "CVE-2026-0001", Severity: finding.Critical, SeverityBefore: finding.Critical, Package: "lib<b>", Version: "3.0.11-1",
				FixedIn: "3.0.13-1", KnownExploited: true, URL: "https://security-tracker.debian.org/tracker/CVE-2026-0001?a=b&c=d",
			}, {
				Change: diff.ChangeNew, ID: "CVE-2026-0002", Severity: finding.High, SeverityBefore: finding.High, Package: "zlib1g", Version: "1.3",
				URL: "https://security-tracker.debian.org/tracker/CVE-2026-0002",
			}},
		}},
		Notices: []announce.Notice{{ID: "data", Kind: announce.NoticeDataOutdated, Since: time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)}},
	}
}

// TestMail compares a whole mail with a golden file.
func TestMail(t *testing.T) {
	const golden = "testdata/mail.golden.eml"
	raw, err := Render(message(), announce.MailRef{From: "scanner@example.com", To: []string{"team@example.com", "lead@example.org"}})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(raw)); diff != "" {
		t.Errorf("the mail has changed (-want +got); if that is right, run go test ./notifier/email -update\n%s", diff)
	}
}

// TestConversation: mail programs show the mails of one Scanner together, and each mail is one of its own.
func TestConversation(t *testing.T) {
	headers := func(change func(*announce.Message)) string {
		m := message()
		change(&m)
		raw, err := Render(m, announce.MailRef{From: "scanner@example.com", To: []string{"team@example.com"}})
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "References: ") || strings.HasPrefix(line, "In-Reply-To: ") {
				kept = append(kept, line)
			}
		}
		if len(kept) != 2 {
			t.Fatalf("headers %q, want two", kept)
		}
		return strings.Join(kept, "")
	}
	first := headers(func(*announce.Message) {})
	if later := headers(func(m *announce.Message) { m.ID = strings.Repeat("0", 32) }); later != first {
		t.Errorf("a later mail of the same Scanner has the headers\n%s, want\n%s", later, first)
	}
	for name, change := range map[string]func(*announce.Message){
		"another Scanner":  func(m *announce.Message) { m.Scanner = "other" },
		"of another team":  func(m *announce.Message) { m.Namespace = "bank" },
		"a ClusterScanner": func(m *announce.Message) { m.ScannerKind, m.Namespace = announce.ClusterScannerKind, "" },
	} {
		if other := headers(change); other == first {
			t.Errorf("%s has the same headers", name)
		}
	}
}
