package teams

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/notifier/slack"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

var update = flag.Bool("update", false, "write the golden file: go test ./notifier/teams -update")

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// message is a message with a link, an update, a command and a notice.
func message() announce.Message {
	return announce.Message{
		ID: "1", Kind: announce.KindChanges, Namespace: "shop", Scanner: "default", CreatedAt: noon, ReadMore: "kubectl get imagescans",
		Totals: finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1}, Changes: map[diff.Change]int{diff.ChangeNew: 1}, Images: 1,
		Sections: []announce.Section{{
			Repository: "registry.example.com/shop/web", References: []string{"1.4"}, Workloads: []string{"Deployment shop/web"},
			Totals: finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1},
			Actions: []announce.UpdateAction{{
				Repository: "registry.example.com/shop/web", Workloads: []string{"Deployment shop/web"}, Package: "lib<b>", Versions: []string{"3.0.11-1"},
				Fixes: []announce.Fix{{Version: "3.0.13-1", Findings: 1}}, Ends: finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1}, Items: 1,
			}},
			Items: []announce.Item{{
				Change: diff.ChangeNew, ID: "CVE-2026-0001", Severity: finding.Critical, SeverityBefore: finding.Critical, Package: "lib<b>", Version: "3.0.11-1",
				FixedIn: "3.0.13-1", KnownExploited: true, URL: "https://security-tracker.debian.org/tracker/CVE-2026-0001?a=b&c=d",
			}},
		}},
		Notices: []announce.Notice{{ID: "data", Kind: announce.NoticeDataOutdated, Since: noon}},
	}
}

// TestCard compares a whole card with a golden file.
func TestCard(t *testing.T) {
	const golden = "testdata/card.golden.json"
	text, err := Render(message())
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	pretty.WriteString("\n")
	if *update {
		if err := os.WriteFile(golden, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), pretty.String()); diff != "" {
		t.Errorf("the card has changed (-want +got); if that is right, run go test ./notifier/teams -update\n%s", diff)
	}
}

// teamsLimit is the size in bytes that Teams takes.
const teamsLimit = 28 << 10

// cardOf returns the card of a request.
func cardOf(t *testing.T, body []byte) string {
	t.Helper()
	var sent struct {
		Attachments []struct{ Content json.RawMessage }
	}
	if err := json.Unmarshal(body, &sent); err != nil || len(sent.Attachments) != 1 {
		t.Fatalf("error %v, %d cards", err, len(sent.Attachments))
	}
	return string(sent.Attachments[0].Content)
}

// quoted returns a card as the Workflow hands it to Teams.
func quoted(t *testing.T, card string) []byte {
	t.Helper()
	text, err := json.Marshal(card)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// escaped returns the card of a request as the Workflow hands it to Teams.
func escaped(t *testing.T, body []byte) []byte {
	t.Helper()
	return quoted(t, cardOf(t, body))
}

// TestLargeCards: a card with much to announce is within the limit of Teams, of which it uses most.
func TestLargeCards(t *testing.T) {
	for _, size := range [][2]int{{2, 4}, {2, 10}, {4, 8}, {6, 10}, {8, 4}, {8, 6}, {8, 10}} {
		body, err := Render(large(size[0], size[1]))
		if err != nil {
			t.Fatal(err)
		}
		n := len(escaped(t, body))
		if n > teamsLimit || size[0]*size[1] >= 60 && n < teamsLimit*7/10 {
			t.Errorf("%d images of %d findings: Teams gets %d bytes, want at most %d, and not much less", size[0], size[1], n, teamsLimit)
		}
	}
}

// TestLargeCardsInASCII: Workflows may escape everything that is not ASCII, which their encoder decides. Such a card is within the limit, too.
func TestLargeCardsInASCII(t *testing.T) {
	for name, text := range map[string]string{"emoji": "🚨", "accents": "é", "quotes": "\"\\", "letters of three bytes": "字"} {
		m := large(8, 10)
		for i := range m.Sections {
			m.Sections[i].Repository = fmt.Sprintf("%d%s", i, strings.Repeat(text, 250))
			for j := range m.Sections[i].Items {
				m.Sections[i].Items[j].Package = fmt.Sprintf("%d%s", j, strings.Repeat(text, 40))
			}
		}
		body, err := Render(m)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(quoted(t, inASCII(cardOf(t, body)))); n > teamsLimit || n < teamsLimit/2 {
			t.Errorf("%s: Teams gets %d bytes, want at most %d, and not much less", name, n, teamsLimit)
		}
		if strings.Contains(string(body), "too long to be shown") {
			t.Errorf("%s: the card has no finding", name)
		}
	}
}

// inASCII returns JSON in ASCII, as many encoders write it.
func inASCII(text string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		if unit < utf8.RuneSelf {
			b.WriteByte(byte(unit))
		} else {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.String()
}

// large is a message of a number of images, each with a number of findings with links.
func large(sections, findings int) announce.Message {
	m := message()
	m.Notices, m.Sections, m.Images, m.Totals = nil, nil, sections, finding.Counts{High: sections * findings, Fixable: sections * findings}
	for s := range sections {
		section := announce.Section{
			Repository: fmt.Sprintf("registry.example.com/shop/service-%d", s), References: []string{"1.4"}, Workloads: []string{fmt.Sprintf("Deployment shop/service-%d", s)},
			Totals: finding.Counts{High: findings, Fixable: findings},
		}
		for f := range findings {
			id := fmt.Sprintf("CVE-2026-%d%03d", s+1, f)
			section.Items = append(section.Items, announce.Item{
				Change: diff.ChangeNew, ID: id, Severity: finding.High, SeverityBefore: finding.High, Package: "libssl3", Version: "3.0.11-1~deb12u1", EPSS: 0.12,
				FixedIn: "3.0.13-1~deb12u1", FixState: finding.FixStateFixed, URL: "https://security-tracker.debian.org/tracker/" + id, FirstSeen: noon,
			})
		}
		m.Sections = append(m.Sections, section)
	}
	return m
}

// TestLongCards: a card stays within the limit of Teams, and counts what it leaves out. A card without room for anything says so.
func TestLongCards(t *testing.T) {
	m := message()
	section := m.Sections[0]
	for range 9 {
		item := section.Items[0]
		section.Items, section.Actions[0].Items = append(section.Items, item), section.Actions[0].Items+1
	}
	section.Actions[0].Ends, section.Totals = finding.Counts{Critical: 10, Fixable: 10}, finding.Counts{Critical: 10, Fixable: 10}
	m.Sections = []announce.Section{section, section, section, section, section, section, section, section}
	for name, tt := range map[string]struct {
		change func(*announce.Message)
		want   string
	}{
		"many findings": {func(*announce.Message) {}, "more"},
		"long notices": {func(m *announce.Message) {
			notice := announce.Notice{Kind: announce.NoticeImagesFailed, Detail: strings.Repeat("\"<", 350), Examples: []string{strings.Repeat("<", 300)}}
			m.Notices = []announce.Notice{notice, notice, notice, notice, notice, notice, notice, notice}
			namespace := announce.NamespaceSummary{Namespace: strings.Repeat("<", 60), Actions: section.Actions}
			m.JoinedNamespaces = []announce.NamespaceSummary{namespace, namespace, namespace, namespace, namespace}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			long := m
			tt.change(&long)
			text, err := Render(long)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(escaped(t, text)); n > teamsLimit || !strings.Contains(string(text), tt.want) {
				t.Errorf("a card of %d bytes, want at most %d and %q in it:\n%s", n, teamsLimit, tt.want, text)
			}
		})
	}
	text, err := json.Marshal(payloadOf(slack.RenderTitle(m)))
	if err != nil || !strings.Contains(string(text), "too long to be shown") || len(escaped(t, text)) > teamsLimit/4 {
		t.Errorf("error %v, the shortest card is %s", err, text)
	}
}
