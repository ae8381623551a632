package attached

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/workerapi"
)

const (
	digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	index  = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	other  = "sha256:3333333333333333333333333333333333333333333333333333333333333333"
)

var web = Image{Digests: []string{digest, index}, Architecture: "amd64", Repository: "registry.example.com/shop/web"}

// openVEX returns a document with an ID and statements, of January 2026.
func openVEX(id string, statements ...string) []byte {
	return fmt.Appendf(nil, `{"@context": "https://openvex.dev/ns/v0.2.0", "@id": %q, "author": "jane", "timestamp": "2026-01-01T00:00:00Z", "version": 1, "statements": [%s]}`,
		id, strings.Join(statements, ","))
}

// about returns a statement about CVE-1. Empty members are left out.
func about(members ...string) string {
	all := []string{`"vulnerability": {"name": "CVE-1", "aliases": ["GHSA-a"]}`}
	for _, member := range members {
		if member != "" {
			all = append(all, member)
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

func products(of string) string { return `"products": [` + of + `]` }

const (
	notAffected = `"status": "not_affected", "justification": "component_not_present", "impact_statement": "not there"`
	fixed       = `"status": "fixed"`
	affected    = `"status": "affected", "action_statement": "update"`
	later       = `"timestamp": "2026-02-01T00:00:00Z"`
	openssl     = `"subcomponents": [{"@id": "pkg:deb/debian/openssl@3.0.11-1?arch=amd64"}]`
)

// described returns exceptions as texts: status, IDs and packages.
func described(documents ...[]byte) (exceptions []string, problem string) {
	signed := make([]Document, len(documents))
	for i, content := range documents {
		signed[i] = Document{content, "jane"}
	}
	found, problems := Exceptions(signed, false, web)
	for _, e := range found {
		text := e.Status + " " + strings.Join(e.Vulnerabilities, ",")
		for _, p := range e.Packages {
			text += fmt.Sprintf(" %s %s", p.Name, p.Version)
		}
		exceptions = append(exceptions, strings.TrimSpace(text))
	}
	return exceptions, strings.Join(problems, "; ")
}

// TestExceptions: which statements count.
func TestExceptions(t *testing.T) {
	whole := "not_affected CVE-1,GHSA-a"
	for name, tt := range map[string]struct {
		statements []string
		want       []string
		problem    string // a part of it
	}{
		"without products":                    {[]string{about(notAffected)}, []string{whole}, ""},
		"fixed":                               {[]string{about(fixed)}, []string{"fixed CVE-1,GHSA-a"}, ""},
		"the platform's digest":               {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+strings.Replace(digest, ":", "%3A", 1)+`"}`))}, []string{whole}, ""},
		"the index's digest":                  {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+index+`?arch=amd64"}`))}, []string{whole}, ""},
		"a hash":                              {[]string{about(notAffected, products(`{"@id": "x", "hashes": {"sha-256": "`+digest[7:]+`"}}`))}, []string{whole}, ""},
		"a reference":                         {[]string{about(notAffected, products(`{"@id": "registry.example.com/shop/web@`+digest+`"}`))}, []string{whole}, ""},
		"the repository":                      {[]string{about(notAffected, products(`{"@id": "pkg:oci/web?repository_url=registry.example.com/shop/web"}`))}, []string{whole}, ""},
		"the repository without the name":     {[]string{about(notAffected, products(`{"@id": "pkg:oci/web?repository_url=registry.example.com/shop"}`))}, []string{whole}, ""},
		"a package":                           {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+digest+`", `+openssl+`}`))}, []string{whole + " pkg:deb/debian/openssl 3.0.11-1"}, ""},
		"another digest":                      {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+other+`"}`))}, nil, "makes no statement about this image"},
		"another repository":                  {[]string{about(notAffected, products(`{"@id": "pkg:oci/web?repository_url=registry.example.com/blog/web"}`))}, nil, "makes no statement about this image"},
		"another architecture of the index":   {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+index+`?arch=arm64"}`))}, nil, "makes no statement about this image"},
		"a repository, other architecture":    {[]string{about(notAffected, products(`{"@id": "pkg:oci/web?arch=arm64&repository_url=registry.example.com/shop/web"}`))}, nil, "makes no statement about this image"},
		"an architecture as Linux names it":   {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+index+`?arch=x86_64"}`))}, []string{whole}, ""},
		"a tag, which moves":                  {[]string{about(notAffected, products(`{"@id": "pkg:oci/web?repository_url=registry.example.com/shop/web&tag=1"}`))}, nil, "makes no statement about this image"},
		"a package as product":                {[]string{about(notAffected, products(`{"@id": "pkg:deb/debian/openssl"}`))}, []string{whole + " pkg:deb/debian/openssl"}, ""},
		"a package of another product":        {[]string{about(notAffected, products(`{"@id": "pkg:golang/example.com/other", `+openssl+`}`))}, nil, "makes no statement about this image"},
		"a package of Maven without a group":  {[]string{about(notAffected, products(`{"@id": "pkg:maven/dom4j"}`))}, nil, "has no group"},
		"a part of a package":                 {[]string{about(notAffected, products(`{"@id": "pkg:golang/golang.org/x/net@v0.7.0#html"}`))}, nil, "names a part of a package"},
		"affected in a part of a package":     {[]string{about(notAffected), about(affected, later, products(`{"@id": "pkg:golang/golang.org/x/net@v0.7.0#html"}`))}, nil, ""},
		"affected":                            {[]string{about(affected)}, nil, ""},
		"under investigation":                 {[]string{about(`"status": "under_investigation"`)}, nil, ""},
		"a subcomponent that cannot be read":  {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+digest+`", "subcomponents": [{"@id": "openssl"}]}`))}, nil, "is no package URL"},
		"a glob":                              {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+digest+`", "subcomponents": [{"@id": "pkg:deb/debian/%2A"}]}`))}, nil, "takes for a glob"},
		"another vulnerability beside it":     {[]string{about(notAffected), strings.Replace(about(affected), "CVE-1", "CVE-2", 1)}, nil, "contradicts itself about CVE-2"}, // they share an alias
		"affected later":                      {[]string{about(notAffected), about(affected, later)}, nil, ""},
		"affected later, in lower case":       {[]string{about(notAffected), strings.ToLower(`{"vulnerability": {"name": "CVE-1"},`) + affected + "," + later + "}"}, nil, ""},
		"changed later":                       {[]string{about(notAffected, `"timestamp": "2025-01-01T00:00:00Z"`, `"last_updated": "2026-03-01T00:00:00Z"`), about(affected, later)}, []string{whole}, ""},
		"affected, changed later":             {[]string{about(notAffected, later), about(affected, `"last_updated": "2026-03-01T00:00:00Z"`)}, nil, ""},
		"changed at the same time":            {[]string{about(notAffected, later), about(affected, `"last_updated": "2026-02-01T00:00:00Z"`)}, nil, "contradicts itself"},
		"an address of an ID":                 {[]string{`{"vulnerability": {"@id": "https://nvd.nist.gov/vuln/detail/CVE-2024-1234"},` + notAffected + `}`}, []string{"not_affected CVE-2024-1234"}, ""},
		"an address of GitHub":                {[]string{`{"vulnerability": {"@id": "https://github.com/advisories/GHSA-AAAA-bbbb-cccc"},` + notAffected + `}`}, []string{"not_affected GHSA-aaaa-bbbb-cccc"}, ""},
		"an address with a parameter":         {[]string{`{"vulnerability": {"@id": "https://www.cve.org/CVERecord?id=CVE-2024-1234"},` + notAffected + `}`}, []string{"not_affected CVE-2024-1234"}, ""},
		"an address of Red Hat":               {[]string{`{"vulnerability": {"@id": "https://access.redhat.com/errata/RHSA-2024%3A1234"},` + notAffected + `}`}, []string{"not_affected RHSA-2024:1234"}, ""},
		"an address of a page":                {[]string{`{"vulnerability": {"@id": "https://rustsec.org/advisories/RUSTSEC-2021-0001.html"},` + notAffected + `}`}, []string{"not_affected RUSTSEC-2021-0001"}, ""},
		"a URN":                               {[]string{`{"vulnerability": {"@id": "urn:cve:CVE-2024-1234"},` + notAffected + `}`}, []string{"not_affected CVE-2024-1234"}, ""},
		"an address beside a name":            {[]string{`{"vulnerability": {"@id": "https://pkg.go.dev/vuln/GO-2024-2687", "name": "CVE-1"},` + notAffected + `}`}, []string{"not_affected CVE-1,GO-2024-2687"}, ""},
		"an address as the name":              {[]string{`{"vulnerability": {"name": "https://osv.dev/vulnerability/GO-2024-2687"},` + notAffected + `}`}, []string{"not_affected GO-2024-2687"}, ""},
		"an address of the author":            {[]string{`{"vulnerability": {"@id": "https://example.com/7", "name": "CVE-1"},` + notAffected + `}`}, []string{"not_affected CVE-1"}, ""},
		"an address without an ID":            {[]string{`{"vulnerability": {"@id": "https://example.com/7"},` + notAffected + `}`}, nil, "no ID of a known form"},
		"an address with two IDs":             {[]string{`{"vulnerability": {"@id": "https://example.com/CVE-2024-1234/CVE-2024-1235"},` + notAffected + `}`}, nil, "no ID of a known form"},
		"an address with a part of an ID":     {[]string{`{"vulnerability": {"@id": "https://example.com/not-CVE-2024-1234"},` + notAffected + `}`}, nil, "no ID of a known form"},
		"affected by an address":              {[]string{strings.Replace(about(notAffected), "CVE-1", "CVE-2024-1234", 1), `{"vulnerability": {"@id": "https://nvd.nist.gov/vuln/detail/cve-2024-1234"},` + affected + `,` + later + `}`}, nil, ""},
		"two architectures":                   {[]string{about(notAffected, products(`{"@id": "pkg:deb/debian/openssl?arch=amd64"}`)), about(affected, products(`{"@id": "pkg:deb/debian/openssl?arch=arm64"}`))}, []string{whole + " pkg:deb/debian/openssl"}, ""},
		"two releases":                        {[]string{about(notAffected, products(`{"@id": "pkg:deb/debian/openssl?distro=debian-12"}`)), about(affected, products(`{"@id": "pkg:deb/debian/openssl?distro=debian-11"}`))}, []string{whole + " pkg:deb/debian/openssl"}, ""},
		"affected later in a release":         {[]string{about(notAffected, products(`{"@id": "pkg:deb/debian/openssl"}`)), about(affected, later, products(`{"@id": "pkg:deb/debian/openssl?distro=debian-11"}`))}, nil, ""},
		"a package of another architecture":   {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+digest+`", "subcomponents": [{"@id": "pkg:deb/debian/openssl?arch=arm64"}]}`))}, nil, "makes no statement about this image"},
		"Docker Hub's image":                  {[]string{about(notAffected, products(`{"@id": "pkg:docker/shop/web?repository_url=registry.example.com"}`))}, []string{whole}, ""},
		"affected before":                     {[]string{about(notAffected, later), about(affected)}, []string{whole}, ""},
		"affected later in one package":       {[]string{about(notAffected), about(affected, later, products(`{"@id": "pkg:oci/web@`+digest+`", `+openssl+`}`))}, nil, ""},
		"affected later in another package":   {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+digest+`", "subcomponents": [{"@id": "pkg:deb/debian/zlib"}]}`)), about(affected, later, products(`{"@id": "pkg:oci/web@`+digest+`", `+openssl+`}`))}, []string{whole + " pkg:deb/debian/zlib"}, ""},
		"affected later, where is not known":  {[]string{about(notAffected), about(affected, later, products(`{"@id": "pkg:oci/web@`+digest+`", "subcomponents": [{"@id": "openssl"}]}`))}, nil, ""},
		"affected later in another image":     {[]string{about(notAffected), about(affected, later, products(`{"@id": "pkg:oci/web@`+other+`"}`))}, []string{whole}, ""},
		"twice the same":                      {[]string{about(notAffected), about(notAffected)}, []string{whole, whole}, ""},
		"two statuses at the same time":       {[]string{about(notAffected), about(affected), strings.NewReplacer("CVE-1", "CVE-3", "GHSA-a", "GHSA-c").Replace(about(fixed))}, nil, "doc contradicts itself about CVE-1: not_affected component_not_present and affected at the same time; none of its statements counts"},
		"two justifications at the same time": {[]string{about(notAffected), about(`"status": "not_affected", "justification": "inline_mitigations_already_exist"`)}, nil, "contradicts itself"},
		"a package and the image":             {[]string{about(notAffected), about(affected, products(`{"@id": "pkg:oci/web@`+digest+`", `+openssl+`}`))}, nil, "contradicts itself"},
		"two versions of a package":           {[]string{about(notAffected, products(`{"@id": "pkg:oci/web@`+digest+`", `+openssl+`}`)), about(affected, products(`{"@id": "pkg:oci/web@`+digest+`", `+strings.Replace(openssl, "3.0.11", "1.1.1", 1)+`}`))}, []string{whole + " pkg:deb/debian/openssl 3.0.11-1"}, ""},
		"neither justification nor statement": {[]string{about(`"status": "not_affected"`)}, nil, "statement 1"},
		"an unknown status":                   {[]string{about(`"status": "harmless"`)}, nil, "statement 1"},
		"no vulnerability":                    {[]string{`{` + notAffected + `}`}, nil, "it names no vulnerability"},
		"one bad statement spoils the others": {[]string{about(notAffected), about(`"status": "harmless"`)}, nil, "statement 2"},
		"no statements":                       {nil, nil, "has no statements"},
		"too many":                            {append(make([]string, 0), strings.Split(strings.Repeat(about(notAffected)+"\n", workerapi.MaxVEXStatements)+about(notAffected), "\n")...), nil, "501 statements"},
		"too many IDs":                        {[]string{`{"vulnerability": {"name": "CVE-1", "aliases": [` + strings.TrimSuffix(strings.Repeat(`"A"`, 1)+aliases(80), ",") + `]},` + notAffected + `}`}, nil, "more than 64 IDs"},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem := described(openVEX("doc", tt.statements...))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("exceptions (-want +got):\n%s", diff)
			}
			if (problem == "") != (tt.problem == "") || !strings.Contains(problem, tt.problem) {
				t.Errorf("the problem is %q, want %q", problem, tt.problem)
			}
		})
	}
}

func aliases(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `,"B-%d"`, i)
	}
	return all.String()
}

// TestDocumentTime: a document that was changed later counts more, by its own time.
func TestDocumentTime(t *testing.T) {
	changed := func(id, statement string) []byte {
		return []byte(strings.Replace(string(openVEX(id, statement)), `"version"`, `"last_updated": "2026-03-01T00:00:00Z", "version"`, 1))
	}
	for name, tt := range map[string]struct {
		documents [][]byte
		want      []string
	}{
		"not affected later":                {[][]byte{changed("one", about(notAffected)), openVEX("two", about(affected, later))}, []string{"not_affected CVE-1,GHSA-a"}},
		"affected later":                    {[][]byte{openVEX("one", about(notAffected, later)), changed("two", about(affected))}, nil},
		"a statement has a time of its own": {[][]byte{changed("one", about(notAffected, `"timestamp": "2026-01-15T00:00:00Z"`)), openVEX("two", about(affected, later))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem := described(tt.documents...)
			if diff := cmp.Diff(tt.want, got); diff != "" || problem != "" {
				t.Errorf("exceptions (-want +got):\n%s; problem %q", diff, problem)
			}
		})
	}
}

// TestSeveralDocuments: the latest statement counts, whichever document has it. Documents that contradict each other do not count,
// but a statement that the image is affected ends earlier ones anyway. While one document cannot be read, none counts.
func TestSeveralDocuments(t *testing.T) {
	harmless, harmful := openVEX("one", about(notAffected)), openVEX("two", about(affected))
	other := func(status string) string {
		return strings.NewReplacer("CVE-1", "CVE-3", "GHSA-a", "GHSA-c").Replace(about(status))
	}
	third := openVEX("three", other(fixed))
	for name, tt := range map[string]struct {
		documents [][]byte
		want      []string
		problem   string
	}{
		"other vulnerabilities":                {[][]byte{harmless, third}, []string{"not_affected CVE-1,GHSA-a", "fixed CVE-3,GHSA-c"}, ""},
		"a later one":                          {[][]byte{harmless, third, openVEX("two", about(affected, later))}, []string{"fixed CVE-3,GHSA-c"}, ""},
		"a contradiction":                      {[][]byte{harmless, third, harmful}, []string{"fixed CVE-3,GHSA-c"}, "contradict each other about CVE-1"},
		"a later one that contradicts itself":  {[][]byte{harmless, openVEX("two", about(affected, later), other(fixed), other(affected))}, nil, "two contradicts itself about CVE-3"},
		"a later one that contradicts another": {[][]byte{harmless, openVEX("two", about(affected, later), other(fixed)), openVEX("four", other(affected))}, nil, "contradict each other about CVE-3"},
		"a later one that is not valid":        {[][]byte{harmless, openVEX("two", other(`"status": "harmless"`), about(affected, later))}, nil, "two does not count"},
		"one that cannot be read":              {[][]byte{harmless, []byte(`{"statements": 1}`)}, nil, "signed by jane is no OpenVEX"},
		"another format":                       {[][]byte{harmless, []byte(`{"bomFormat": "CycloneDX"}`)}, nil, "is no OpenVEX"},
		"one without statements":               {[][]byte{harmless, openVEX("two")}, nil, "no statement counts while an attached document is unread"},
		"one with a statement of another kind": {[][]byte{harmless, openVEX("two", other(`"status": "Affected"`))}, nil, "no statement counts while"},
		"one with too many statements":         {[][]byte{harmless, openVEX("two", slices.Repeat([]string{other(fixed)}, workerapi.MaxVEXStatements)...)}, nil, "no statement counts while"},
		"one that is about another image":      {[][]byte{harmless, openVEX("two", about(affected, later, products(`{"@id": "pkg:oci/web@`+index[:70]+`0"}`)))}, []string{"not_affected CVE-1,GHSA-a"}, "two makes no statement about this image"},
		"no JSON":                              {[][]byte{harmless, []byte(`<vex/>`)}, nil, "is no OpenVEX"},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem := described(tt.documents...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("exceptions (-want +got):\n%s", diff)
			}
			if (problem == "") != (tt.problem == "") || !strings.Contains(problem, tt.problem) {
				t.Errorf("the problem is %q, want %q", problem, tt.problem)
			}
		})
	}
}

// TestUnreadDocuments: no statement counts while a document is missing that the worker could not read.
func TestUnreadDocuments(t *testing.T) {
	document := Document{openVEX("one", about(notAffected)), "jane"}
	for unread, want := range map[bool]int{false: 1, true: 0} {
		exceptions, problems := Exceptions([]Document{document}, unread, web)
		if len(exceptions) != want || slices.Contains(problems, unreadProblem) != unread {
			t.Errorf("unread %v: %d exceptions, want %d; problems %q", unread, len(exceptions), want, problems)
		}
	}
}

// TestOrderOfDocuments: which documents are within the bounds does not depend on the order in which a registry lists them.
func TestOrderOfDocuments(t *testing.T) {
	many := func(id string) Document {
		var statements []string
		for i := range workerapi.MaxVEXStatements/2 + 1 {
			statements = append(statements, fmt.Sprintf(`{"vulnerability": {"name": "%s-%d"}, %s}`, id, i, fixed))
		}
		return Document{openVEX(id, statements...), "jane"}
	}
	one, two := many("one"), many("two")
	exceptions, problems := Exceptions([]Document{one, two}, false, web)
	again, problemsAgain := Exceptions([]Document{two, one}, false, web)
	if diff := cmp.Diff(exceptions, again) + cmp.Diff(problems, problemsAgain); diff != "" || len(exceptions) != 0 || len(problems) != 2 {
		t.Errorf("%d exceptions, the problems %q, and in another order (-first +other):\n%s", len(exceptions), problems, diff)
	}
}
