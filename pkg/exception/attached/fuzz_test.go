package attached

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

// FuzzExceptions: whatever documents say, an exception is about named vulnerabilities in named packages, with the status not_affected or fixed, by
// the signer of its document. A document without exceptions has a problem, or says that the image is affected. The same documents give the
// same exceptions.
func FuzzExceptions(f *testing.F) {
	for _, seed := range [][]string{
		{about(notAffected)},
		{about(notAffected), about(affected, later)},
		{about(notAffected), about(affected)},
		{about(fixed, products(`{"@id": "pkg:oci/web@`+digest+`", `+openssl+`}`))},
		{about(notAffected, products(`{"@id": "pkg:oci/web?repository_url=registry.example.com/shop/web", "subcomponents": [{"@id": "pkg:npm/%2A@%3F"}]}`))},
		{about(`"status": "under_investigation"`)},
		{},
	} {
		f.Add(openVEX("one", seed...), openVEX("two", about(fixed, later)))
	}
	f.Add([]byte(`{"@context": "https://openvex.dev/ns", "statements": [{"status": "fixed", "vulnerability": "CVE-1"}]}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		documents := []Document{{one, "one"}, {two, "two"}}
		exceptions, problems := Exceptions(documents, false, web)
		if len(exceptions) > workerapi.MaxVEXStatements {
			t.Errorf("%d exceptions", len(exceptions))
		}
		for _, e := range exceptions {
			if len(e.Vulnerabilities) == 0 || e.Status != "not_affected" && e.Status != "fixed" || e.Signer != "one" && e.Signer != "two" || e.Name == "" {
				t.Errorf("it would suppress too much: %+v", e)
			}
			for _, p := range e.Packages {
				if !strings.HasPrefix(p.Name, "pkg:") || strings.ContainsAny(p.Name+p.Version, "*?") {
					t.Errorf("it is about more than one package: %+v", e)
				}
			}
			if len(e.Reason) > maxReasonBytes || len(e.Name) > maxIDBytes || utf8.ValidString(string(one)+string(two)) && !utf8.ValidString(e.Reason+e.Name) {
				t.Errorf("its texts are too long, or cut in a character: %+v", e)
			}
		}
		again, problemsAgain := Exceptions(documents, false, web)
		if diff := cmp.Diff(exceptions, again) + cmp.Diff(problems, problemsAgain); diff != "" {
			t.Errorf("the same documents again (-first +again):\n%s", diff)
		}
	})
}
