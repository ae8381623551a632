package cyclonedx

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Parts of a valid document, which the tests of invalid ones replace.
const (
	header     = `"bomFormat":"CycloneDX","specVersion":"1.6"`
	madeAt     = `"metadata":{"timestamp":"2026-03-01T11:00:00Z"}`
	components = `"components":[{"bom-ref":"a","type":"library","name":"openssl","version":"3.0.1","purl":"pkg:deb/debian/openssl@3.0.1"}]`
	flaws      = `"vulnerabilities":[{"id":"CVE-2024-0001","affects":[{"ref":"a"}]}]`
)

func join(fields ...string) string { return "{" + strings.Join(fields, ",") + "}" }

// withVulnerability returns a document with one vulnerability, which has these further fields.
func withVulnerability(fields string) string {
	return join(header, madeAt, components, `"vulnerabilities":[{"id":"CVE-2024-0001","affects":[{"ref":"a"}],`+fields+`}]`)
}

func withComponent(fields string) string {
	return join(header, madeAt, flaws, `"components":[{"bom-ref":"a","name":"openssl"},{`+fields+`}]`)
}

// badDocuments are documents that Decode refuses.
var badDocuments = []struct {
	name, text string
	kind       error
	pointer    string
}{
	{"empty", ``, ErrInvalid, ""},
	{"only spaces", "  \n", ErrInvalid, ""},
	{"no JSON", `openssl 3.0.1`, ErrInvalid, ""},
	{"XML", `<?xml version="1.0"?><bom xmlns="http://cyclonedx.org/schema/bom/1.6"/>`, ErrInvalid, ""},
	{"byte order mark", "\ufeff" + join(header, madeAt, flaws), ErrInvalid, ""},
	{"NUL", "\x00", ErrInvalid, ""},
	{"null", `null`, ErrInvalid, ""},
	{"list", `[]`, ErrInvalid, ""},
	{"text", `"CycloneDX"`, ErrInvalid, ""},
	{"cut off", join(header, madeAt, components, flaws)[:200], ErrInvalid, "/components/0"},
	{"cut off in a list", `{` + header + `,"vulnerabilities":[`, ErrInvalid, "/vulnerabilities"},
	{"cut off before the end", `{` + header, ErrInvalid, ""},
	{"two documents", join(header, madeAt, flaws) + join(header), ErrInvalid, ""},
	{"text after the document", join(header, madeAt, flaws) + "x", ErrInvalid, ""},
	{"comma before the end", `{` + header + `,}`, ErrInvalid, ""},
	{"field without a value", `{` + header + `,"metadata"}`, ErrInvalid, "/metadata"},
	{"field that is no text", `{1:2}`, ErrInvalid, ""},
	{"field twice", join(header, madeAt, flaws, flaws), ErrInvalid, "/vulnerabilities"},
	{"broken escape", join(header, `"serialNumber":"\x"`), ErrInvalid, "/serialNumber"},
	{"control character in a text", join(header, "\"serialNumber\":\"a\nb\""), ErrInvalid, "/serialNumber"},

	{"no format", join(`"specVersion":"1.6"`, madeAt, flaws), ErrUnsupported, "/bomFormat"},
	{"SPDX", join(`"spdxVersion":"SPDX-2.3"`, `"name":"web"`), ErrUnsupported, "/bomFormat"},
	{"another format", join(`"bomFormat":"SPDX","specVersion":"1.6"`, madeAt, flaws), ErrUnsupported, "/bomFormat"},
	{"format that is no text", join(`"bomFormat":1`), ErrInvalid, "/bomFormat"},
	{"no version of the format", join(`"bomFormat":"CycloneDX"`, madeAt, flaws), ErrUnsupported, "/specVersion"},
	{"version 1.3", join(`"bomFormat":"CycloneDX","specVersion":"1.3"`, madeAt, flaws), ErrUnsupported, "/specVersion"},
	{"version 1.8", join(`"bomFormat":"CycloneDX","specVersion":"1.8"`, madeAt, flaws), ErrUnsupported, "/specVersion"},
	{"version 2.0", join(`"bomFormat":"CycloneDX","specVersion":"2.0"`, madeAt, flaws), ErrUnsupported, "/specVersion"},
	{"version as a number", join(`"bomFormat":"CycloneDX","specVersion":1.6`, madeAt, flaws), ErrInvalid, "/specVersion"},

	{"no metadata", join(header, components, flaws), ErrInvalid, "/metadata/timestamp"},
	{"no time", join(header, `"metadata":{}`, flaws), ErrInvalid, "/metadata/timestamp"},
	{"time that is none", join(header, `"metadata":{"timestamp":"yesterday"}`, flaws), ErrInvalid, "/metadata/timestamp"},
	{"day without a time", join(header, `"metadata":{"timestamp":"2026-03-01"}`, flaws), ErrInvalid, "/metadata/timestamp"},
	{"time without a zone", join(header, `"metadata":{"timestamp":"2026-03-01T11:00:00"}`, flaws), ErrInvalid, "/metadata/timestamp"},
	{"time as a number", join(header, `"metadata":{"timestamp":1772362800}`, flaws), ErrInvalid, "/metadata/timestamp"},
	{"time in the future", join(header, `"metadata":{"timestamp":"2026-03-01T12:05:01Z"}`, flaws), ErrInvalid, "/metadata/timestamp"},
	{"time of an unset clock", join(header, `"metadata":{"timestamp":"1970-01-01T00:00:00Z"}`, flaws), ErrInvalid, "/metadata/timestamp"},
	{"metadata that is a list", join(header, `"metadata":[]`, flaws), ErrInvalid, "/metadata"},
	{"tools that are a text", join(header, `"metadata":{"timestamp":"2026-03-01T11:00:00Z","tools":"trivy"}`, flaws), ErrInvalid, "/metadata/tools"},
	{"serial number that is none", join(header, madeAt, flaws, `"serialNumber":"17"`), ErrInvalid, "/serialNumber"},
	{"empty serial number", join(header, madeAt, flaws, `"serialNumber":""`), ErrInvalid, "/serialNumber"},
	{"document version 0", join(header, madeAt, flaws, `"version":0`), ErrInvalid, "/version"},
	{"document version that is none", join(header, madeAt, flaws, `"version":"1"`), ErrInvalid, "/version"},
	{"document version out of range", join(header, madeAt, flaws, `"version":99999999999999999999`), ErrInvalid, "/version"},
	{"no vulnerabilities", join(header, madeAt, components), ErrInvalid, "/vulnerabilities"},
	{"vulnerabilities that are no list", join(header, madeAt, `"vulnerabilities":{}`), ErrInvalid, "/vulnerabilities"},
	{"vulnerabilities that are null", join(header, madeAt, `"vulnerabilities":null`), ErrInvalid, "/vulnerabilities"},
	{"components that are no list", join(header, madeAt, flaws, `"components":"none"`), ErrInvalid, "/components"},

	{"component without a name", withComponent(`"bom-ref":"b"`), ErrInvalid, "/components/1/name"},
	{"inner component without a name", withComponent(`"name":"b","components":[{"name":"c"},{}]`), ErrInvalid, "/components/1/components/1/name"},
	{"two components with a reference", withComponent(`"bom-ref":"a","name":"b"`), ErrInvalid, "/components/1/bom-ref"},
	{"component that is a text", join(header, madeAt, flaws, `"components":["openssl"]`), ErrInvalid, "/components/0"},
	{"package URL that is a number", withComponent(`"name":"b","purl":1`), ErrInvalid, "/components/1/purl"},
	{"property that is a text", withComponent(`"name":"b","properties":[{"name":"a/b","value":"c"},"d"]`), ErrInvalid, "/components/1/properties/1"},
	{"path that is a list", withComponent(`"name":"b","evidence":{"occurrences":[{"location":"/a"},{"location":["/b"]}]}`), ErrInvalid, "/components/1/evidence/occurrences/1/location"},

	{"vulnerability without an ID", join(header, madeAt, components, `"vulnerabilities":[{"affects":[{"ref":"a"}]}]`), ErrInvalid, "/vulnerabilities/0/id"},
	{"vulnerability with a blank ID", join(header, madeAt, components, `"vulnerabilities":[{"id":" ","affects":[{"ref":"a"}]}]`), ErrInvalid, "/vulnerabilities/0/id"},
	{"ID that is a number", join(header, madeAt, components, `"vulnerabilities":[{"id":20240001}]`), ErrInvalid, "/vulnerabilities/0/id"},
	{"affects without a reference", join(header, madeAt, components, `"vulnerabilities":[{"id":"CVE-2024-0001","affects":[{"ref":"a"},{}]}]`), ErrInvalid, "/vulnerabilities/0/affects/1/ref"},
	{"affects that is a text", join(header, madeAt, components, `"vulnerabilities":[{"id":"CVE-2024-0001","affects":["a"]}]`), ErrInvalid, "/vulnerabilities/0/affects/0"},
	{"unknown severity", withVulnerability(`"ratings":[{"severity":"high"},{"severity":"important"}]`), ErrInvalid, "/vulnerabilities/0/ratings/1/severity"},
	{"score above 10", withVulnerability(`"ratings":[{"score":11,"method":"CVSSv31"}]`), ErrInvalid, "/vulnerabilities/0/ratings/0/score"},
	{"negative score", withVulnerability(`"ratings":[{"score":-1,"method":"CVSSv31"}]`), ErrInvalid, "/vulnerabilities/0/ratings/0/score"},
	{"score that is a text", withVulnerability(`"ratings":[{"score":"9.8"}]`), ErrInvalid, "/vulnerabilities/0/ratings/0/score"},
	{"score out of range", withVulnerability(`"ratings":[{"score":1e999}]`), ErrInvalid, "/vulnerabilities/0/ratings/0/score"},
	{"unknown state of the analysis", withVulnerability(`"analysis":{"state":"fine"}`), ErrInvalid, "/vulnerabilities/0/analysis/state"},
	{"description that is an object", withVulnerability(`"description":{"text":"A flaw."}`), ErrInvalid, "/vulnerabilities/0/description"},

	{"too deep", withVulnerability(`"x":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)), ErrLimit, "/vulnerabilities/0"},
	{"too deep in a field that is not read", join(header, `"x":`+strings.Repeat(`{"a":`, maxDepth)+"1"+strings.Repeat("}", maxDepth)), ErrLimit, "/x"},
	{"long text", withVulnerability(`"description":"` + strings.Repeat("x", maxText+1) + `"`), ErrLimit, "/vulnerabilities/0"},
	{"long text of escapes", withVulnerability(`"description":"` + strings.Repeat(`\"`, maxText/2+1) + `"`), ErrLimit, "/vulnerabilities/0"},
	{"long number", join(header, `"version":`+strings.Repeat("1", maxText+1)), ErrLimit, "/version"},
	{"long name of a field", join(header, `"`+strings.Repeat("x", maxText+1)+`":1`), ErrLimit, ""},
	{"large vulnerability", withVulnerability(`"references":[` + strings.Repeat(`{"id":"CVE-2024-0001"},`, maxElement/20) + `{"id":"CVE-2024-0001"}]`), ErrLimit, "/vulnerabilities/0"},
	{"large metadata", join(header, `"metadata":{"properties":[`+strings.Repeat(`{"name":"a","value":"b"},`, maxElement/20)+`{}]}`, flaws), ErrLimit, "/metadata"},
	{"many findings", join(header, madeAt, components, `"vulnerabilities":[`+strings.Repeat(`{"id":"CVE-2024-0001","affects":[{"ref":"a"}]},`, MaxFindings)+`{"id":"CVE-2024-0002","affects":[{"ref":"a"}]}]`), ErrLimit, fmt.Sprintf("/vulnerabilities/%d", MaxFindings)},
	{"many components", join(header, madeAt, flaws, `"components":[`+strings.Repeat(`{"name":"a"},`, maxComponents)+`{"name":"b"}]`), ErrLimit, fmt.Sprintf("/components/%d", maxComponents)},
	{"much text", join(header, madeAt, components, `"vulnerabilities":[`+strings.Repeat(`{"id":"CVE-2024-0001","affects":[{"ref":"a"}],"description":"`+strings.Repeat("x", maxText)+`"},`, maxKept/maxText)+`{"id":"b"}]`), ErrLimit, fmt.Sprintf("/vulnerabilities/%d", maxKept/maxText-1)},
	{"many fields", "{" + manyFields(maxDepth+1) + "}", ErrLimit, fmt.Sprintf("/f%d", maxDepth)},
}

func manyFields(n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"f%d":0`, i)
	}
	return strings.Join(fields, ",")
}

// TestBadDocuments: a document that is not as it must be is refused as a whole, with the place of what is wrong.
func TestBadDocuments(t *testing.T) {
	names := make(map[string]bool)
	for _, tt := range badDocuments {
		if names[tt.name] {
			t.Fatalf("two documents are named %q", tt.name)
		}
		names[tt.name] = true
		t.Run(tt.name, func(t *testing.T) {
			document, err := Decode(strings.NewReader(tt.text), noon)
			var refused *DocumentError
			if document != nil || !errors.As(err, &refused) {
				t.Fatalf("the result is %+v, %v; want a DocumentError", document, err)
			}
			if !errors.Is(err, tt.kind) || refused.Pointer != tt.pointer {
				t.Errorf("the error is of the kind %q at %q, want %q at %q: %v", refused.Kind, refused.Pointer, tt.kind, tt.pointer, err)
			}
			if refused.Detail == "" || len(err.Error()) > 500 {
				t.Errorf("the error is no short sentence: %q", err)
			}
		})
	}
	if len(names) < 60 {
		t.Errorf("there are %d bad documents, want at least 60", len(names))
	}
}

// decoded decodes a document that must be valid.
func decoded(t testing.TB, text []byte) *Document {
	t.Helper()
	document, err := Decode(bytes.NewReader(text), noon)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// TestLimitsAreReached: a document may be as large as the limits allow.
func TestLimitsAreReached(t *testing.T) {
	for name, text := range map[string]string{
		"depth":                   withVulnerability(`"x":` + strings.Repeat("[", maxDepth-3) + strings.Repeat("]", maxDepth-3)),
		"number that is not read": join(header, madeAt, components, flaws, `"x":[1e700]`),
		"text":                    withVulnerability(`"description":"` + strings.Repeat("x", maxText) + `"`),
		"clock":                   join(header, `"metadata":{"timestamp":"2026-03-01T12:05:00Z"}`, components, flaws),
	} {
		t.Run(name, func(t *testing.T) {
			if got := decoded(t, []byte(text)); len(got.Findings) != 1 {
				t.Errorf("%d findings, want 1", len(got.Findings))
			}
		})
	}
}

// TestNullComponents: some tools write null instead of an empty list.
func TestNullComponents(t *testing.T) {
	if got := decoded(t, []byte(join(header, madeAt, `"components":null`, `"vulnerabilities":[]`))); len(got.Findings) != 0 {
		t.Errorf("%d findings, want none", len(got.Findings))
	}
}

// TestVersions: each supported version is read, with the fields in any order and the tools as each version has them.
func TestVersions(t *testing.T) {
	for version, tool := range map[string]string{
		"1.4": `[{"vendor":"Example","name":"scan","version":"2"}]`, "1.5": `{"components":[{"type":"application","name":"scan","version":"2"}]}`,
		"1.6": `{"components":[{"type":"application","name":"scan","version":"2"}]}`, "1.7": `{"components":[{"name":"scan","version":"2"}]}`,
	} {
		text := join(flaws, `"x":{"y":[1,{"z":null}]}`, components, `"metadata":{"tools":`+tool+`,"timestamp":"2026-03-01T12:00:00+02:00"}`,
			`"version":3,"serialNumber":"urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79"`, `"specVersion":"`+version+`"`, `"bomFormat":"CycloneDX"`)
		got := decoded(t, []byte(text))
		want := &Document{
			SpecVersion: version, SerialNumber: "urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79", Version: 3,
			Timestamp: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Tool: "scan 2",
			Findings: []finding.Finding{{
				ID: "CVE-2024-0001", FixState: finding.FixStateUnknown, Aliases: []string{},
				Package:    finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb", PURL: "pkg:deb/debian/openssl@3.0.1"},
				Advisories: []finding.Advisory{{ID: "CVE-2024-0001", Severity: "Unknown", FixState: finding.FixStateUnknown}},
			}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version %s (-want +got):\n%s", version, diff)
		}
	}
}

// TestIgnored: what stands for no finding is listed with its place, up to a bound.
func TestIgnored(t *testing.T) {
	got := decoded(t, []byte(join(header, madeAt, components, `"vulnerabilities":[{"id":"CVE-2024-0001"},
		{"id":"CVE-2024-0002","affects":[{"ref":"a"},{"ref":"b"},{"ref":"urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#a"}]}]`)))
	want := []Ignored{
		{"/vulnerabilities/0", "it affects no component"},
		{"/vulnerabilities/1/affects/1", "no component has this reference"},
		{"/vulnerabilities/1/affects/2", "no component has this reference"},
	}
	if diff := cmp.Diff(want, got.Ignored); diff != "" || got.IgnoredCount != 3 || len(got.Findings) != 1 {
		t.Errorf("%d findings, %d parts are ignored (-want +got):\n%s", len(got.Findings), got.IgnoredCount, diff)
	}
	got = decoded(t, []byte(join(header, madeAt, `"vulnerabilities":[`+strings.Repeat(`{"id":"CVE-2024-0001"},`, 200)+`{"id":"CVE-2024-0002"}]`)))
	if got.IgnoredCount != 201 || len(got.Ignored) != maxIgnored {
		t.Errorf("%d parts are ignored, %d are listed; want 201 and %d", got.IgnoredCount, len(got.Ignored), maxIgnored)
	}
}

// TestReferences: a vulnerability affects components by their references, by links to this document, and by package URLs without a component.
func TestReferences(t *testing.T) {
	text := join(header, `"serialNumber":"urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79"`,
		`"metadata":{"timestamp":"2026-03-01T11:00:00Z","component":{"bom-ref":"image","name":"web","version":"1"}}`,
		`"components":[{"name":"outer","components":[{"bom-ref":"in/ner","name":"inner","version":"2","purl":"pkg:npm/inner@2",
			"properties":[{"name":"syft:package:type","value":"npm"},{"name":"syft:location:0:path","value":"/app/package.json"}]}]}]`,
		`"vulnerabilities":[{"id":"CVE-2024-0001","affects":[{"ref":"image"},{"ref":"in/ner"}]},
			{"id":"CVE-2024-0002","affects":[{"ref":"urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#in/ner"},{"ref":"pkg:golang/example.com/a/b@v1.2.3"},
			{"ref":"pkg:npm/%40scope/name@4.5.6"}]}]`)
	var got []string
	for _, f := range decoded(t, []byte(text)).Findings {
		got = append(got, fmt.Sprint(f.ID, " ", f.Package.Type, " ", f.Package.Name, " ", f.Package.Version, " ", f.Paths))
	}
	slices.Sort(got)
	want := []string{
		"CVE-2024-0001  web 1 []", "CVE-2024-0001 npm inner 2 [/app/package.json]",
		"CVE-2024-0002 go-module example.com/a/b v1.2.3 []", "CVE-2024-0002 npm @scope/name 4.5.6 []", "CVE-2024-0002 npm inner 2 [/app/package.json]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestSeverities: the severity is that of the vulnerability's own source, else the worst one.
func TestSeverities(t *testing.T) {
	for name, tt := range map[string]struct {
		fields string
		want   finding.Severity
	}{
		"own source": {`"source":{"name":"debian"},"ratings":[{"source":{"name":"nvd"},"severity":"critical"},{"source":{"name":"Debian"},"severity":"low"}]`, finding.Low},
		"worst":      {`"source":{"name":"alpine"},"ratings":[{"severity":"medium"},{"severity":"high"},{"severity":"info"}]`, finding.High},
		"none":       {`"source":{"name":"alpine"}`, finding.Unknown},
		"info":       {`"ratings":[{"severity":"info"}]`, finding.Negligible},
	} {
		if got := decoded(t, []byte(withVulnerability(tt.fields))).Findings[0].Severity; got != tt.want {
			t.Errorf("%s: the severity is %s, want %s", name, got, tt.want)
		}
	}
}

// TestScores: a CVSS score, a probability of exploitation and known exploitation are ratings that differ by method, vector and source.
func TestScores(t *testing.T) {
	for name, tt := range map[string]struct {
		rating     string
		cvss, epss float64
		exploited  bool
	}{
		"CVSS":                    {`{"score":7.5,"method":"CVSSv31"}`, 7.5, 0, false},
		"CVSS of a newer version": {`{"score":9.3,"method":"other","vector":"CVSS:4.0/AV:N"}`, 9.3, 0, false},
		"another method":          {`{"score":99,"method":"OWASP"}`, 0, 0, false},
		"EPSS":                    {`{"score":0.7,"method":"other","source":{"name":"FIRST","url":"https://www.first.org/epss/"}}`, 0, 0.7, false},
		"EPSS out of range":       {`{"score":70,"method":"other","source":{"name":"FIRST","url":"https://www.first.org/epss/"}}`, 0, 0, false},
		"known exploited":         {`{"score":1,"method":"other","source":{"url":"https://www.cisa.gov/known-exploited-vulnerabilities-catalog"}}`, 0, 0, true},
	} {
		f := decoded(t, []byte(withVulnerability(`"ratings":[`+tt.rating+`]`))).Findings[0]
		if f.CVSS != tt.cvss || f.EPSS != tt.epss || f.KnownExploited != tt.exploited {
			t.Errorf("%s: CVSS %v, EPSS %v, known exploited %v; want %v, %v, %v", name, f.CVSS, f.EPSS, f.KnownExploited, tt.cvss, tt.epss, tt.exploited)
		}
	}
}

// TestFixedVersions: a version that is not affected is a fixed one, and so is the beginning of a range without an end.
func TestFixedVersions(t *testing.T) {
	for versions, want := range map[string][]string{
		`{"version":"3.0.2","status":"unaffected"}`:                                          {"3.0.2"},
		`{"version":"3.0.1","status":"affected"}`:                                            nil,
		`{"version":"3.0.1","status":"unknown"}`:                                             nil,
		`{"range":"vers:deb/>=3.0.2%2Bb1","status":"unaffected"}`:                            {"3.0.2+b1"},
		`{"range":"vers:deb/>=3.0.2|<4","status":"unaffected"}`:                              nil,
		`{"range":"vers:deb/<3","status":"unaffected"}`:                                      nil,
		`{"range":">=3","status":"unaffected"}`:                                              nil,
		`{"range":"vers:deb/>=","status":"unaffected"}`:                                      nil,
		`{"range":"vers:deb/>=3%zz","status":"unaffected"}`:                                  {"3%zz"},
		`{"range":"vers:deb/>=2","status":"affected"}`:                                       nil,
		`{"version":"2","status":"unaffected"},{"range":"vers:x/>=3","status":"unaffected"}`: {"2", "3"},
	} {
		text := join(header, madeAt, components, `"vulnerabilities":[{"id":"CVE-2024-0001","affects":[{"ref":"a","versions":[`+versions+`]}]}]`)
		f := decoded(t, []byte(text)).Findings[0]
		if diff := cmp.Diff(want, f.FixVersions); diff != "" || f.Fixable() != (want != nil) {
			t.Errorf("%s: fixable %v, versions (-want +got):\n%s", versions, f.Fixable(), diff)
		}
	}
}

// TestAnalysisSuppressesNothing: the sender's decision about a vulnerability is shown, and the finding stays.
func TestAnalysisSuppressesNothing(t *testing.T) {
	f := decoded(t, []byte(withVulnerability(`"analysis":{"state":"not_affected"}`))).Findings
	if len(f) != 1 || f[0].Advisories[0].Analysis != "not_affected" {
		t.Errorf("findings are %+v, want one whose advisory has the analysis", f)
	}
}

// keysOf returns the keys of findings, with something to recognize them by.
func keysOf(findings []finding.Finding) map[string]string {
	keys := make(map[string]string)
	for _, f := range findings {
		keys[f.Key()] = fmt.Sprintf("%s in %s %s at %q", f.ID, f.Package.PURL, f.Package.Version, f.Paths)
	}
	return keys
}

// requireRoundTrip fails the test unless the findings have the same keys, severities and fixes when this program has written them and read them.
func requireRoundTrip(t testing.TB, findings []finding.Finding) {
	t.Helper()
	document := decoded(t, written(t, reportOf(findings...)))
	if diff := cmp.Diff(keysOf(findings), keysOf(document.Findings)); diff != "" {
		t.Errorf("keys of findings that were written and read (-before +after):\n%s", diff)
	}
	if document.IgnoredCount > 0 {
		t.Errorf("parts of the own document are ignored: %+v", document.Ignored)
	}
}

// TestOwnDocumentsComeBack: what this program writes has the same findings when it is read.
func TestOwnDocumentsComeBack(t *testing.T) {
	npm := finding.Finding{
		ID: "GHSA-aaaa-bbbb-cccc", Severity: finding.High, FixState: finding.FixStateNotFixed, EPSS: 0.25, Paths: []string{"/app/a/package.json"},
		Package: finding.Package{Name: "@scope/left-pad", Version: "1.0.0", Type: "npm", PURL: "pkg:npm/%40scope/left-pad@1.0.0"},
	}
	copied := npm
	copied.Paths = []string{"/app/b/package.json", "/app/a/package.json"}
	python := finding.Finding{
		ID: "CVE-2024-0003", Severity: finding.Unknown, FixState: finding.FixStateUnknown, Paths: []string{"/usr/lib/python3/site-packages/x-1.dist-info/METADATA"},
		Package: finding.Package{Name: "x", Version: "1", Type: "python", PURL: "pkg:pypi/x@1"},
	}
	unknown := finding.Finding{ID: "CVE-2024-0004", Severity: finding.Negligible, FixState: finding.FixStateWontFix, Package: finding.Package{Name: "thing", Version: "7", Type: "binary"}}
	all := []finding.Finding{openssl(), npm, copied, python, unknown}
	requireRoundTrip(t, all)

	byKey := make(map[string]finding.Finding)
	for _, f := range decoded(t, written(t, reportOf(all...))).Findings {
		byKey[f.Key()] = f
	}
	for _, want := range all {
		got := byKey[want.Key()]
		if got.Severity != want.Severity || got.Fixable() != want.Fixable() || got.EPSS != want.EPSS || got.CVSS != want.CVSS || got.KnownExploited != want.KnownExploited {
			t.Errorf("%s in %s came back as %+v, want %+v", want.ID, want.Package.Name, got, want)
		}
		if diff := cmp.Diff(want.FixVersions, got.FixVersions); diff != "" {
			t.Errorf("fixed versions of %s (-want +got):\n%s", want.ID, diff)
		}
	}
}

// TestAnyOwnDocumentComesBack: so do random findings, as the store has them.
func TestAnyOwnDocumentComesBack(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("aA1.-_/@%?#é ")), 1, 8, -1)
	anyFinding := rapid.Custom(func(t *rapid.T) finding.Finding {
		kind := rapid.SampledFrom([]string{"deb", "npm", "python", "go-module"}).Draw(t, "type")
		f := finding.Finding{
			ID: "CVE-2024-" + rapid.StringMatching(`[0-9]{4}`).Draw(t, "id"), Severity: rapid.SampledFrom(finding.Severities()).Draw(t, "severity"),
			Package: finding.Package{Name: text.Draw(t, "name"), Version: text.Draw(t, "version"), Type: kind}, Paths: rapid.SliceOfN(text, 0, 2).Draw(t, "paths"),
		}
		if rapid.Bool().Draw(t, "has a package URL") {
			f.Package.PURL = "pkg:" + kind + "/" + text.Draw(t, "path")
		}
		return f.Clean()
	})
	rapid.Check(t, func(rt *rapid.T) {
		findings := finding.Merge(rapid.SliceOfN(anyFinding, 0, 6).Draw(rt, "findings"))
		document, err := Decode(bytes.NewReader(written(t, reportOf(findings...))), noon)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(keysOf(findings), keysOf(document.Findings)); diff != "" {
			rt.Errorf("keys of findings that were written and read (-before +after):\n%s", diff)
		}
	})
}

// TestLibraryDocumentsAreRead: a document that cyclonedx-go writes is read, in each version.
func TestLibraryDocumentsAreRead(t *testing.T) {
	score := 7.5
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79"
	bom.Metadata = &cdx.Metadata{
		Timestamp: noon.Format(time.RFC3339), Tools: &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "scan", Version: "2"}}},
		Component: &cdx.Component{BOMRef: "image", Type: cdx.ComponentTypeContainer, Name: "web"},
	}
	bom.Components = &[]cdx.Component{{BOMRef: "a", Type: cdx.ComponentTypeLibrary, Name: "log4j-core", Group: "org.apache", Version: "2.14.0", PackageURL: "pkg:maven/org.apache/log4j-core@2.14.0"}}
	bom.Vulnerabilities = &[]cdx.Vulnerability{{
		ID: "GHSA-jfh8-c2jp-5v3q", Source: &cdx.Source{Name: "GitHub"}, References: &[]cdx.VulnerabilityReference{{ID: "CVE-2021-44228", Source: &cdx.Source{Name: "NVD"}}},
		Ratings: &[]cdx.VulnerabilityRating{{Score: &score, Severity: cdx.SeverityHigh, Method: cdx.ScoringMethodCVSSv3, Vector: "CVSS:3.0/AV:N"}},
		Affects: &[]cdx.Affects{{Ref: "a", Range: &[]cdx.AffectedVersions{{Version: "2.14.0", Status: cdx.VulnerabilityStatusAffected}, {Version: "2.17.1", Status: cdx.VulnerabilityStatusNotAffected}}}},
	}}
	for _, version := range []cdx.SpecVersion{cdx.SpecVersion1_4, cdx.SpecVersion1_5, cdx.SpecVersion1_6, cdx.SpecVersion1_7} {
		var text bytes.Buffer
		if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).EncodeVersion(bom, version); err != nil {
			t.Fatal(err)
		}
		got := decoded(t, text.Bytes())
		want := []finding.Finding{{
			ID: "CVE-2021-44228", Aliases: []string{"GHSA-jfh8-c2jp-5v3q"}, Severity: finding.High, CVSS: 7.5, FixState: finding.FixStateFixed, FixVersions: []string{"2.17.1"},
			Package: finding.Package{Name: "log4j-core", Version: "2.14.0", Type: "java-archive", PURL: "pkg:maven/org.apache/log4j-core@2.14.0"},
			Advisories: []finding.Advisory{{
				ID: "GHSA-jfh8-c2jp-5v3q", Source: "GitHub", Severity: "High", FixState: finding.FixStateFixed, FixVersions: []string{"2.17.1"},
				Ratings: []finding.Rating{{Version: "3.0", Vector: "CVSS:3.0/AV:N", Score: 7.5}},
			}},
		}}
		if diff := cmp.Diff(want, got.Findings); diff != "" {
			t.Errorf("version %s (-want +got):\n%s", version, diff)
		}
		if got.Tool != "scan 2" {
			t.Errorf("version %s: the tool is %q, want scan 2", version, got.Tool)
		}
		requireRoundTrip(t, got.Findings)
	}
}

// TestToolDocumentsAreRead: the documents of other programs are read, and their findings keep their keys in our own documents.
func TestToolDocumentsAreRead(t *testing.T) {
	for file, want := range map[string][]string{
		// As grype --output json prints the same scan: ids, severities, fixed versions and known exploited vulnerabilities.
		"grype.json": {
			"CVE-2018-20796 Negligible deb libc6 2.36-9+deb12u1 [/var/lib/dpkg/status] []",
			"CVE-2023-4911 High deb libc6 2.36-9+deb12u1 [/var/lib/dpkg/status] [2.36-9+deb12u3] exploited",
			"CVE-2024-6119 High deb libssl3 3.0.13-1~deb12u1 [/var/lib/dpkg/status] [3.0.14-1~deb12u2]",
			"GHSA-45x7-px36-x8w8 Medium go-module golang.org/x/crypto v0.14.0 [/usr/bin/tool] [0.17.0]",
			"GHSA-v778-237x-gjrc Critical go-module golang.org/x/crypto v0.14.0 [/usr/bin/tool] [0.31.0]",
		},
		"trivy.json": {
			"CVE-2023-45853 Critical deb zlib1g 1:1.2.13.dfsg-1 [] []",
			"CVE-2024-45337 Critical go-module golang.org/x/crypto v0.17.0 [usr/bin/app] [0.31.0]",
			"CVE-2024-6119 High deb libssl3 3.0.13-1~deb12u1 [] [3.0.14-1~deb12u2]",
			"CVE-2025-27152 High npm axios 1.7.2 [app/node_modules/axios/package.json] [1.8.2 0.30.0]",
		},
	} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "tools", file))
			if err != nil {
				t.Fatal(err)
			}
			document := decoded(t, text)
			var got []string
			for _, f := range document.Findings {
				got = append(got, fmt.Sprint(f.ID, " ", f.Severity, " ", f.Package.Type, " ", f.Package.Name, " ", f.Package.Version, " ", f.Paths, " ", f.FixVersions, map[bool]string{true: " exploited"}[f.KnownExploited]))
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if document.IgnoredCount > 0 {
				t.Errorf("ignored: %+v", document.Ignored)
			}
			requireRoundTrip(t, document.Findings)
		})
	}
}

// FuzzDecode: any text is decoded or refused with a DocumentError. Its findings fit into our own documents, with the same keys.
func FuzzDecode(f *testing.F) {
	for _, tt := range badDocuments {
		if len(tt.text) < 4096 {
			f.Add([]byte(tt.text))
		}
	}
	f.Add([]byte(join(header, madeAt, components, flaws)))
	f.Add(written(f, reportOf(openssl())))
	for _, file := range []string{"trivy.json", "grype.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", "tools", file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		document, err := Decode(bytes.NewReader(text), noon)
		if err != nil {
			if !errors.As(err, new(*DocumentError)) {
				t.Fatalf("the error is no DocumentError: %v", err)
			}
			return
		}
		if document.Timestamp.After(noon.Add(maxClockSkew)) || len(document.Findings) > MaxFindings {
			t.Fatalf("out of bounds: %v, %d findings", document.Timestamp, len(document.Findings))
		}
		var findings []finding.Finding
		for _, f := range document.Findings {
			// A path that is not known is no path, and a version is cut in a document.
			f = f.Clean()
			f.Package.Version = clip(f.Package.Version)
			findings = append(findings, f)
		}
		findings = finding.Merge(findings)
		again, err := Decode(bytes.NewReader(written(t, reportOf(findings...))), noon)
		if err != nil {
			t.Fatalf("the own document of the findings is refused: %v", err)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(keysOf(findings))), slices.Sorted(maps.Keys(keysOf(again.Findings)))); diff != "" {
			t.Fatalf("keys of findings that were written and read (-before +after):\n%s\n%v\n%v", diff, keysOf(findings), keysOf(again.Findings))
		}
	})
}
