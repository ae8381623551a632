package openvex

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openvex/go-vex/pkg/vex"
	"github.com/package-url/packageurl-go"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// FuzzWrite: any decisions give the same document each time, in valid UTF-8. A tool that reads it finds each decision once, about that image and that
// package.
func FuzzWrite(f *testing.F) {
	f.Add("CVE-2026-0001", "GHSA-1", "openssl", "pkg:deb/debian/openssl@3.0", "registry.example.com/shop/web", "Not reachable.", "accepted", uint8(0))
	f.Add("<a>", "\xff", "n", "", "docker.io/library/nginx", "\x00\u2028", "a/b", uint8(1))
	f.Add("CVE-2026-0001", "", "o", "pkg:npm/%40a/b@1?x=y#z", "host:5000/ü", "until 2026", "", uint8(2))
	statuses := []vex.Status{vex.StatusNotAffected, vex.StatusAffected, vex.StatusFixed, vex.StatusUnderInvestigation}
	f.Fuzz(func(t *testing.T, id, alias, name, purl, repository, reason, exceptionName string, status uint8) {
		if last := repository[strings.LastIndex(repository, "/")+1:]; id == "" || reason == "" || last == "" {
			return // the API requires them
		}
		e := exception.Exception{UID: "1", Namespace: "shop", Name: exceptionName, Status: string(statuses[int(status)%len(statuses)]), Reason: reason, Created: created, Expires: noon}
		switch vex.Status(e.Status) {
		case vex.StatusNotAffected:
			e.Justification = string(vex.VulnerableCodeNotPresent)
		case vex.StatusAffected:
			e.Action = reason
		}
		one := finding.Finding{ID: id, Aliases: []string{alias}, Package: finding.Package{Name: name, Version: "1", Type: "deb", PURL: purl}}.Clean()
		other := finding.Finding{ID: id + "-2", Package: one.Package}.Clean()
		r := Report{
			Namespace: "shop", Repositories: []string{repository, "registry.example.com/other"}, Key: key, MatchedAt: noon,
			Suppressed: []SuppressedFinding{{one, e}, {one, e}, {other, e}},
		}
		var text, again bytes.Buffer
		if err := Write(&text, r); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		slices.Reverse(r.Suppressed)
		if err := Write(&again, r); err != nil || text.String() != again.String() || !utf8.Valid(text.Bytes()) {
			t.Errorf("%+v gives\n%s\nand in another order, %v\n%s", r, &text, err, &again)
		}
		document, err := vex.Parse(text.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", &text, err)
		}
		want := 2
		if one.ID == other.ID {
			want = 1 // both are cut to the same ID
		}
		if len(document.Statements) != want {
			t.Errorf("%s has %d statements, want %d", &text, len(document.Statements), want)
		}
		for _, statement := range document.Statements {
			if got := string(statement.Vulnerability.Name); got != one.ID && got != other.ID || string(statement.Status) != e.Status || len(statement.Products) != len(r.Repositories) {
				t.Errorf("%s: a statement about %q with the status %s", &text, got, statement.Status)
			}
			for n, product := range statement.Products {
				parsed, err := packageurl.FromString(product.ID)
				if wanted := strings.ToValidUTF8(r.Repositories[n], "\uFFFD"); utf8.ValidString(repository) && (err != nil || parsed.Qualifiers.Map()["repository_url"] != wanted || parsed.Version != key.Digest) {
					t.Errorf("%s: a statement about %q, which is read as %+v, %v; want %s of %s", &text, product.ID, parsed, err, key.Digest, wanted)
				}
				if len(product.Subcomponents) != 1 || product.Subcomponents[0].ID == "" {
					t.Errorf("%s: a statement about the packages %+v", &text, product.Subcomponents)
				}
			}
		}
	})
}
