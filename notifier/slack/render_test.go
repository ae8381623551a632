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

// TestItems: the text of an item depends on its change.
func TestItems(t *testing.T) {
	noFix, unseen := goNet(), fixAvailable()
	noFix.FixState = finding.FixStateUnknown
	unseen.FixSince, unseen.FirstSeen = time.Time{}, time.Time{}
	fixAgain := exceptionEnded()
	fixAgain.Change = diff.ChangeRegressed
	for name, tt := range map[string]struct {
		item announce.Item
		want string
	}{
		"new":                       {opensslToo(), "libssl3 3.0.9-1 → 3.0.11-1 (fix known since 2026-04-30)\n• CVE-2024-0727 High · EPSS 3 %"},
		"known exploited":           {openssl(), "libssl3 3.0.9-1 → 3.0.11-1 (fix known since 2026-04-30)\n• CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 %"},
		"will not be fixed":         {zlib(), "zlib1g 1:1.2.13 · will not be fixed\n• CVE-2023-45853 Critical"},
		"no fix":                    {goNet(), "golang.org/x/net v0.15.0 · no fix yet\n• GHSA-4374-p667-p6c8 High"},
		"nothing known of a fix":    {noFix, "golang.org/x/net v0.15.0\n• GHSA-4374-p667-p6c8 High"},
		"fix available":             {fixAvailable(), "libssl3 3.0.9-1 → 3.0.11-1\n• CVE-2023-5363 High · EPSS 94 % · fix available since 2026-05-03 · first seen 2026-03-25"},
		"fix available, no dates":   {unseen, "libssl3 3.0.9-1 → 3.0.11-1\n• CVE-2023-5363 High · EPSS 94 % · fix available"},
		"more severe":               {escalated(), "golang.org/x/net v0.15.0 · no fix yet\n• GHSA-4374-p667-p6c8 High · was Medium · first seen 2026-03-25"},
		"known exploited now":       {exploited(), "libssl3 3.0.9-1 → 3.0.11-1 (fix known since 2026-04-30)\n• CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · first seen 2026-03-25"},
		"back":                      {regressed(), "zlib1g 1:1.2.13 · will not be fixed\n• CVE-2023-45853 Critical · is back · first seen 2026-02-03"},
		"fixed":                     {fixed(), "Fixed\n• CVE-2023-5363 High in libssl3 · first seen 2026-03-25"},
		"exception ended":           {exceptionEnded(), "libssl3 3.0.9-1 → 3.0.11-1 (fix known since 2026-04-30)\n• CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · exception ended · first seen 2026-03-25"},
		"back, and exception ended": {fixAgain, "libssl3 3.0.9-1 → 3.0.11-1 (fix known since 2026-04-30)\n• CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · is back · exception ended · first seen 2026-03-25"},
	} {
		text := standin.Readable(encode(t, one(tt.item)))
		if !strings.Contains(text, "3 more\n\n"+tt.want+"\n") {
			t.Errorf("%s: the message is\n%s\nand lacks\n%s", name, text, tt.want)
		}
	}
}

// TestPackages: findings in one package stand together, and share the fix if it is the same for all.
func TestPackages(t *testing.T) {
	other := opensslToo()
	other.FixedIn, other.FixSince = "3.0.13-1", time.Time{}
	without := opensslToo()
	without.ID, without.FixedIn, without.FixState = "CVE-2024-5535", "", finding.FixStateNotFixed
	elsewhere := opensslToo()
	elsewhere.Version = "1.1.1"
	for name, tt := range map[string]struct {
		items []announce.Item
		want  string
	}{
		"one fix": {[]announce.Item{openssl(), opensslToo()}, `
libssl3 3.0.9-1 → 3.0.11-1 (fix known since 2026-04-30)
• CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 %
• CVE-2024-0727 High · EPSS 3 %
`},
		"three fixes": {[]announce.Item{openssl(), other, without}, `
libssl3 3.0.9-1
• CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 % · → 3.0.11-1 (fix known since 2026-04-30)
• CVE-2024-0727 High · EPSS 3 % · → 3.0.13-1
• CVE-2024-5535 High · EPSS 3 % · no fix yet
`},
		"fixed": {[]announce.Item{zlib(), fixedOther(), fixed()}, `
zlib1g 1:1.2.13 · will not be fixed
• CVE-2023-45853 Critical

Fixed
• CVE-2022-37434 High in zlib1g · first seen 2026-03-25
• CVE-2023-5363 High in libssl3 · first seen 2026-03-25
`},
		"two versions": {[]announce.Item{openssl(), elsewhere}, `
libssl3 3.0.9-1 → 3.0.11-1 (fix known since 2026-04-30)
• CVE-2023-5363 High · known exploited since 2026-05-03 · EPSS 94 %

libssl3 1.1.1 → 3.0.11-1 (fix known since 2026-04-30)
• CVE-2024-0727 High · EPSS 3 %
`},
	} {
		if text := standin.Readable(encode(t, changesMessage(cart(tt.items...)))); !strings.Contains(text, tt.want) {
			t.Errorf("%s: the message is\n%s\nand lacks\n%s", name, text, tt.want)
		}
	}
}

// TestMoreIsALink: the count of items that are not shown links to them.
func TestMoreIsALink(t *testing.T) {
	d := firstTime()
	if payload := string(encode(t, d)); !strings.Contains(payload, `\u003chttps://scanner.example.com/shop|and 41 more\u003e`) {
		t.Errorf("no link at what is only counted:\n%s", payload)
	}
	d.ReadMore = command
	if text := standin.Readable(encode(t, d)); !strings.Contains(text, "\nand 41 more\n") || !strings.Contains(text, "All findings: `"+command+"`") {
		t.Errorf("want what is only counted, and the command, in\n%s", text)
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
	shown := strings.Count(text, "• ")
	if shown < 40 {
		t.Errorf("only %d findings shown, want at least 40", shown)
	}
	counted := 0
	for line := range strings.Lines(text) {
		var n int
		if _, err := fmt.Sscanf(line, "and %d more", &n); err == nil {
			counted += n
		}
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
		"`kubectl -n shop describe scanner all`", "`kubectl -n shop get imagescans`",
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
