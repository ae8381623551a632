package slack

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/notify"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

var update = flag.Bool("update", false, "write the golden files: go test ./notifier/slack -update")

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func openssl() notify.Item {
	return notify.Item{
		ID: "CVE-2023-5363", Severity: finding.Critical, Package: "openssl", Version: "3.0.9-1", FixedIn: "3.0.11-1",
		FixState: finding.FixStateFixed, EPSS: 0.94, KnownExploited: true, URL: "https://nvd.nist.gov/vuln/detail/CVE-2023-5363",
	}
}

func zlib() notify.Item {
	return notify.Item{
		ID: "CVE-2023-45853", Severity: finding.High, Package: "zlib1g", Version: "1:1.2.13", FixState: finding.FixStateWontFix, EPSS: 0.004,
	}
}

func newDigest() notify.Digest {
	return notify.Digest{
		ID: "0123456789abcdef0123456789abcdef", Kind: notify.KindNews, Namespace: "shop", Scanner: "default", CreatedAt: noon,
		Totals: finding.Counts{Critical: 1, High: 2, Fixable: 1, KnownExploited: 1}, Images: 2,
		Sections: []notify.Section{
			{
				Repository: "docker.io/library/nginx", References: []string{"1.25", "1.26"},
				Workloads: []string{"Deployment shop/api", "CronJob shop/backup"}, MoreWorkloads: 3,
				Totals: finding.Counts{Critical: 1, High: 1, Fixable: 1, KnownExploited: 1},
				Items:  []notify.Item{openssl(), zlib()},
			},
			{
				Repository: "ghcr.io/shop/cart", References: []string{"v2"}, Workloads: []string{"Deployment shop/cart"},
				Totals: finding.Counts{High: 1},
				Items:  []notify.Item{{ID: "GHSA-aaaa-bbbb-cccc", Severity: finding.High, Package: "golang.org/x/net", Version: "v0.1.0", FixState: finding.FixStateNotFixed}},
			},
		},
		ReadMore: "kubectl -n shop get imagescans",
	}
}

func firstScan() notify.Digest {
	worst := openssl()
	worst.Repository = "docker.io/library/nginx"
	return notify.Digest{
		ID: "0123456789abcdef0123456789abcdef", Kind: notify.KindFirstScan, Namespace: "shop", Scanner: "default", CreatedAt: noon,
		Totals: finding.Counts{Critical: 4, High: 31, Medium: 70, Low: 12, Unknown: 1, Fixable: 40, KnownExploited: 1}, Images: 6,
		Worst:     []notify.Item{worst},
		Remaining: notify.Remaining{Pending: 1, Failed: map[string]int{"NotPulled": 1, "OOMKilled": 2}, Excluded: 2},
		ReadMore:  "https://scanner.example.com/shop?a=1&b=2",
	}
}

func hostile() notify.Digest {
	d := newDigest()
	d.Sections = d.Sections[:1]
	d.Sections[0].Repository = "evil.io/<!channel>|<https://evil.io|click>&amp;"
	d.Sections[0].Workloads = []string{"Deployment shop/@here\n*bold*\u202egnirts"}
	d.Sections[0].Items = []notify.Item{
		{ID: "CVE-1|<!here>", Severity: finding.High, Package: "<!everyone>", Version: "1&2", FixedIn: "\x00\x1b[31m", URL: "https://evil.io/>|<!channel>"},
		{ID: "CVE-2024-1000", Severity: finding.High, Package: strings.Repeat("&", 500), Version: strings.Repeat("é", 500), URL: "javascript:alert(1)"},
		{ID: "CVE-2024-1001", Severity: finding.Low, Package: "http", Version: "1", URL: "http://plain.example.com/CVE-2024-1001"},
		{ID: "", Severity: finding.Severity(42), Package: "\xff\xfe", URL: "https://user:password@example.com/"},
	}
	return d
}

func firstTime() notify.Digest {
	d := newDigest()
	d.Sections = d.Sections[:1]
	d.Totals = finding.Counts{Critical: 3, High: 40, Fixable: 12}
	d.Sections[0].FirstTime, d.Sections[0].Totals, d.Sections[0].MoreItems = true, d.Totals, 41
	d.MoreSections = 2
	return d
}

// TestRenderGolden compares whole messages. Each golden file is also checked by the Slack stand-in.
func TestRenderGolden(t *testing.T) {
	renewed := firstScan()
	renewed.Kind = notify.KindBaselineRenewed
	engine := firstScan()
	engine.Kind, engine.EngineBefore, engine.Engine = notify.KindEngineChanged, "grype", "clair https://clair.example.com/<!channel>"
	clean := notify.Digest{Kind: notify.KindFirstScan, Namespace: "shop", Scanner: "default", CreatedAt: noon, Images: 2}
	parts := clean
	parts.Remaining.Partly = 2
	for file, d := range map[string]notify.Digest{
		"new": newDigest(), "first-scan": firstScan(), "baseline-renewed": renewed, "engine-changed": engine, "nothing-found": clean,
		"nothing-found-in-parts": parts,
		"new-image":              firstTime(), "hostile": hostile(), "long": long(),
	} {
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

// long is as much as a message of the planner can hold, with names as long as they come.
func long() notify.Digest {
	d := newDigest()
	d.Sections, d.Totals = nil, finding.Counts{High: 8 * 15}
	for i := range 8 {
		s := notify.Section{
			Repository: fmt.Sprintf("registry.example.com/a/rather/long/path/to/an/image-%d", i), References: []string{"2026.05.04-1234567890"},
			Workloads: []string{"Deployment shop/a-workload-with-quite-a-long-name"}, MoreItems: 5, Totals: finding.Counts{High: 15},
		}
		for j := range 10 {
			item := openssl()
			item.ID = fmt.Sprintf("CVE-2024-%d%02d", 100+i, j)
			item.URL = "https://security-tracker.debian.org/tracker/" + item.ID
			item.Package = "a-package-name-that-is-longer-than-most"
			s.Items = append(s.Items, item)
		}
		d.Sections = append(d.Sections, s)
	}
	return d
}

func encode(t interface {
	Helper()
	Fatal(...any)
}, d notify.Digest) []byte {
	t.Helper()
	payload, err := json.Marshal(Render(d))
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// TestLongMessageIsShared: every image of a long message is named with its worst finding, and what is cut is counted.
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
