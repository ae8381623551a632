package report

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// TestFindingsOfTwoEngines: a finding that several Scanners of a namespace have is listed once for each image, with the engines.
func TestFindingsOfTwoEngines(t *testing.T) {
	vulnerable := func(id string, severity finding.Severity) finding.Finding {
		return finding.Finding{ID: id, Severity: severity, Package: finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb"}}
	}
	of := func(namespace, engine, dataVersion string, findings ...finding.Finding) Image {
		return Image{Namespace: namespace, References: []string{"web:1"}, Digest: "sha256:" + strings.Repeat("a", 64), Engine: engine, DataVersion: dataVersion, Findings: findings}
	}
	var out bytes.Buffer
	err := WriteTable(&out, []Image{
		of("blog", "grype", "v1", vulnerable("CVE-1", finding.Low)),
		of("shop", "grype", "v1", vulnerable("CVE-1", finding.Low), vulnerable("CVE-2", finding.Low)),
		of("shop", "clair", "v1", vulnerable("CVE-1", finding.High), vulnerable("CVE-3", finding.Medium)),
		of("shop", "grype", "v1", vulnerable("CVE-1", finding.Low)),
		of("shop", "other", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"NAMESPACE", "IMAGE", "VULNERABILITY", "SEVERITY", "PACKAGE", "INSTALLED", "FIXED", "IN", "EXPLOITED", "ENGINES"},
		{"blog", "web:1", "CVE-1", "Low", "openssl", "3.0.1", "grype"},
		{"shop", "web:1", "(no", "result", "yet)", "other"},
		{"shop", "web:1", "CVE-1", "High", "openssl", "3.0.1", "clair,", "grype"},
		{"shop", "web:1", "CVE-3", "Medium", "openssl", "3.0.1", "clair"},
		{"shop", "web:1", "CVE-2", "Low", "openssl", "3.0.1", "grype"},
	}
	var got [][]string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Fields(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestControlCharactersAreEscaped: a terminal shows control characters in the names of packages and images, and does not obey them.
func TestControlCharactersAreEscaped(t *testing.T) {
	hostile := "1\x1b[2J\x1b]0;owned\x07\r\nshop\tweb\u009b31m\u202e\x9b\U000e0041"
	images := []Image{{
		Namespace: "shop", References: []string{"web" + hostile}, Engine: "grype", DataVersion: "v1",
		Findings: []finding.Finding{{ID: "CVE-1" + hostile, Package: finding.Package{Name: "openssl", Version: hostile}, FixVersions: []string{hostile}}},
	}}
	for name, print := range map[string]func(io.Writer, []Image) error{"table": WriteTable, "json": WriteJSON} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := print(&out, images); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexAny(out.String(), "\x1b\x07\r\u009b\u202e\U000e0041"); i >= 0 || bytes.ContainsRune(out.Bytes(), '\t') {
				t.Errorf("a terminal would obey %q", out.String())
			}
			if name == "table" && strings.Count(out.String(), "\n") != 2 {
				t.Errorf("the table has other lines than a heading and one finding:\n%s", out.String())
			}
			if name == "json" {
				var read []Image
				if err := json.Unmarshal(out.Bytes(), &read); err != nil || read[0].References[0] != strings.ToValidUTF8("web"+hostile, "\ufffd") {
					t.Errorf("programs read %v (%v), want what was found", read, err)
				}
			}
		})
	}
}
