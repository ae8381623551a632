package openvex

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openvex/go-vex/pkg/vex"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

var (
	noon    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	created = noon.Add(-24 * time.Hour)
	key     = image.Key{Digest: "sha256:" + strings.Repeat("a", 64), Platform: image.Platform{OS: "linux", Architecture: "amd64"}}
)

// productID is the image's package URL.
var productID = "pkg:oci/web@sha256%3A" + strings.Repeat("a", 64) + "?arch=amd64&repository_url=registry.example.com%2Fshop%2Fweb"

func found(id, pkg string, aliases ...string) finding.Finding {
	return finding.Finding{ID: id, Aliases: aliases, Package: finding.Package{Name: pkg, Version: "1.0", Type: "deb", PURL: "pkg:deb/debian/" + pkg + "@1.0"}}
}

func report(suppressed ...SuppressedFinding) Report {
	return Report{Namespace: "shop", Repositories: []string{"registry.example.com/shop/web"}, Key: key, MatchedAt: noon, Suppressed: suppressed}
}

// parsed writes a document and parses it as a tool would.
func parsed(t interface{ Fatal(...any) }, r Report) *vex.VEX {
	var out bytes.Buffer
	if err := Write(&out, r); err != nil {
		t.Fatal(err)
	}
	document, err := vex.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// TestStatements: each status has the decision in the field that OpenVEX defines for it.
func TestStatements(t *testing.T) {
	base := exception.Exception{UID: "1", Namespace: "shop", Name: "accepted", Reason: "Not reachable.", Created: created}
	for name, tt := range map[string]struct {
		change func(*exception.Exception)
		want   vex.Statement
	}{
		"not affected": {
			func(e *exception.Exception) {
				e.Status, e.Justification = "not_affected", "vulnerable_code_not_present"
			},
			vex.Statement{
				Status: vex.StatusNotAffected, Justification: vex.VulnerableCodeNotPresent, ImpactStatement: "Not reachable.",
				StatusNotes: "by VulnerabilityException shop/accepted",
			},
		},
		"affected, for a time": {
			func(e *exception.Exception) {
				e.Status, e.Action, e.Expires = "affected", "Update in May.", noon.Add(time.Hour)
			},
			vex.Statement{
				Status: vex.StatusAffected, ActionStatement: "Update in May.", ActionStatementTimestamp: &created,
				StatusNotes: "by VulnerabilityException shop/accepted, until 2026-03-01T13:00:00Z: Not reachable.",
			},
		},
		"fixed, in the whole cluster": {
			func(e *exception.Exception) { e.Status, e.Namespace = "fixed", "" },
			vex.Statement{Status: vex.StatusFixed, StatusNotes: "by ClusterVulnerabilityException accepted: Not reachable."},
		},
		"under investigation": {
			func(e *exception.Exception) { e.Status = "under_investigation" },
			vex.Statement{Status: vex.StatusUnderInvestigation, StatusNotes: "by VulnerabilityException shop/accepted: Not reachable."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := base
			tt.change(&e)
			want := tt.want
			want.Timestamp = &created
			want.Vulnerability = vex.Vulnerability{Name: "CVE-2026-0001", Aliases: []vex.VulnerabilityID{"GHSA-aaaa-bbbb-cccc"}}
			want.Products = []vex.Product{{
				Component:     vex.Component{ID: productID, Identifiers: map[vex.IdentifierType]string{vex.PURL: productID}},
				Subcomponents: []vex.Subcomponent{{Component: vex.Component{ID: "pkg:deb/debian/openssl@1.0"}}},
			}}
			document := parsed(t, report(SuppressedFinding{found("CVE-2026-0001", "openssl", "GHSA-aaaa-bbbb-cccc"), e}))
			if diff := cmp.Diff([]vex.Statement{want}, document.Statements); diff != "" {
				t.Errorf("statements (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGrouping: a vulnerability in several packages is one statement for each exception.
func TestGrouping(t *testing.T) {
	one := exception.Exception{UID: "1", Name: "one", Status: "fixed", Reason: "r", Created: created}
	two := exception.Exception{UID: "2", Name: "two", Status: "fixed", Reason: "r", Created: noon.Add(time.Hour)}
	document := parsed(t, report(
		SuppressedFinding{found("CVE-2026-0002", "b"), one}, SuppressedFinding{found("CVE-2026-0001", "openssl"), one},
		SuppressedFinding{found("CVE-2026-0001", "libssl3"), one}, SuppressedFinding{found("CVE-2026-0001", "c"), two},
	))
	got := map[string]int{}
	for _, s := range document.Statements {
		got[string(s.Vulnerability.Name)+" "+s.StatusNotes] = len(s.Products[0].Subcomponents)
	}
	want := map[string]int{
		"CVE-2026-0001 by ClusterVulnerabilityException one: r": 2, "CVE-2026-0002 by ClusterVulnerabilityException one: r": 1,
		"CVE-2026-0001 by ClusterVulnerabilityException two: r": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages of each statement (-want +got):\n%s", diff)
	}
	if !document.Timestamp.Equal(two.Created) {
		t.Errorf("the document is of %s, want the time of the latest decision", document.Timestamp)
	}
}

// TestNoDecisions: without decisions, the document has an empty list of statements.
func TestNoDecisions(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, report()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"statements": []`) {
		t.Errorf("want an empty list of statements:\n%s", &out)
	}
}

// TestInvalidOptions: a decision that OpenVEX does not allow is an error that names the exception.
func TestInvalidOptions(t *testing.T) {
	e := exception.Exception{UID: "1", Namespace: "shop", Name: "wrong", Status: "affected", Created: created}
	err := Write(&bytes.Buffer{}, report(SuppressedFinding{found("CVE-2026-0001", "a"), e}))
	if err == nil || !strings.Contains(err.Error(), "VulnerabilityException shop/wrong") {
		t.Errorf("the error is %v, want one that names shop/wrong", err)
	}
}

// TestAnyDecisionCanBeRead: whatever an image or an exception contains, the document can be parsed and is the same each time.
func TestAnyDecisionCanBeRead(t *testing.T) {
	text := rapid.SampledFrom([]string{"", "a", "\xff", "\u202e", "</script>", "\x00", strings.Repeat("x", 5000)})
	rapid.Check(t, func(t *rapid.T) {
		r := report()
		for range rapid.IntRange(0, 5).Draw(t, "findings") {
			f := found(rapid.SampledFrom([]string{"CVE-2026-0001", "GHSA-1"}).Draw(t, "id"), text.Draw(t, "package"), text.Draw(t, "alias"))
			f.Package.PURL = rapid.SampledFrom([]string{"", f.Package.PURL}).Draw(t, "purl")
			r.Suppressed = append(r.Suppressed, SuppressedFinding{f, exception.Exception{
				UID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid"), Name: text.Draw(t, "name"), Status: "not_affected",
				Justification: "component_not_present", Reason: text.Draw(t, "reason"), Created: created,
			}})
		}
		first, second := parsed(t, r), parsed(t, r)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("two documents about the same differ:\n%s", diff)
		}
		if first.ID == "" || len(first.Statements) > len(r.Suppressed) {
			t.Fatalf("id %q, %d statements of %d findings", first.ID, len(first.Statements), len(r.Suppressed))
		}
	})
}
