package cyclonedx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
	"github.com/scanner-operator/scanner-operator/pkg/image"
)

const schemas = "http://cyclonedx.org/schema/"

// schema returns the published schema, with validation of string formats.
func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schema.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource(schemas+name, parsed); err != nil {
			t.Fatal(err)
		}
	}
	compiled, err := compiler.Compile(schemas + "bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func written(t testing.TB, r Report) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read validates and decodes a document.
func read(t testing.TB, against *jsonschema.Schema, text []byte) *cdx.BOM {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := against.Validate(parsed); err != nil {
		t.Fatalf("the document is not valid CycloneDX 1.6: %v", err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	return &bom
}

func digest(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

func reportOf(findings ...finding.Finding) Report {
	return Report{
		Reference: "ghcr.io/shop/Web:1.2", Digest: digest("a"), PlatformDigest: digest("b"),
		Platform: image.Platform{OS: "linux", Architecture: "arm64"}, Engine: "grype", Tool: "grype 0.110.0",
		DataVersion: "v6.0.2/2026-03-01", MatchedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Distro: "debian 12",
		Findings: findings,
	}
}

func openssl(changes ...func(*finding.Finding)) finding.Finding {
	f := finding.Finding{
		ID: "CVE-2024-0001", Aliases: []string{"DSA-1", "GHSA-aaaa-bbbb-cccc"}, Severity: finding.Critical,
		Package: finding.Package{Name: "openssl", Version: "3.0.1", Type: "deb", PURL: "pkg:deb/debian/openssl@3.0.1?arch=arm64&distro=debian-12"},
		Paths:   []string{"/var/lib/dpkg/status"}, FixState: finding.FixStateFixed, FixVersions: []string{"3.0.2", "3.1.0"},
		Description: "A flaw.", URL: "https://security-tracker.debian.org/tracker/CVE-2024-0001", CVSS: 9.8, EPSS: 0.97, KnownExploited: true,
		Advisories: []finding.Advisory{{
			ID: "CVE-2024-0001", Source: "debian:distro:debian:12", Severity: "High", FixState: "fixed", FixVersions: []string{"3.0.2"},
			Ratings: []finding.Rating{{Source: "nvd@nist.gov", Version: "3.1", Vector: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", Score: 9.8}},
		}},
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

// TestDocument: everything that is known of a finding is in the fields that tools read.
func TestDocument(t *testing.T) {
	libssl := openssl(func(f *finding.Finding) {
		f.Package = finding.Package{Name: "libssl3", Version: "3.0.1", Type: "deb", PURL: "pkg:deb/debian/libssl3@3.0.1#usr/lib"}
		f.FixVersions, f.Aliases = []string{"3.0.2"}, nil
	})
	bom := read(t, schema(t), written(t, reportOf(openssl(), libssl)))

	if bom.Metadata.Timestamp != "2026-03-01T12:00:00Z" {
		t.Errorf("the document's time is %s, want that of the report", bom.Metadata.Timestamp)
	}
	tools := *bom.Metadata.Tools.Components
	if len(tools) != 1 || tools[0].Name != "grype" || tools[0].Version != "0.110.0" {
		t.Errorf("tools are %+v, want grype 0.110.0", tools)
	}
	components := *bom.Components
	if len(components) != 2 || components[0].Name != "openssl" || components[0].PackageURL != openssl().Package.PURL {
		t.Errorf("components are %+v", components)
	}
	for i, wantPrefix := range []string{"pkg:deb/debian/openssl@3.0.1?arch=arm64&distro=debian-12&package-id=", "pkg:deb/debian/libssl3@3.0.1?package-id="} {
		if !strings.HasPrefix(components[i].BOMRef, wantPrefix) {
			t.Errorf("the reference of %s is %s, want it to begin with its package URL %s", components[i].Name, components[i].BOMRef, wantPrefix)
		}
	}
	if !strings.HasSuffix(components[1].BOMRef, "#usr/lib") {
		t.Errorf("the reference %s has lost its subpath", components[1].BOMRef)
	}
	got, err := json.MarshalIndent((*bom.Vulnerabilities)[0], "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "vulnerability.json")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wantVulnerability, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(wantVulnerability)), string(got)); diff != "" || len(*bom.Vulnerabilities) != 1 {
		t.Errorf("%d vulnerabilities; the first (-want +got; UPDATE_GOLDEN=1 writes it anew):\n%s", len(*bom.Vulnerabilities), diff)
	}
}

// TestSubject: the image is identified by repository, digest and package URL, whatever its reference is.
func TestSubject(t *testing.T) {
	compiled := schema(t)
	for name, tt := range map[string]struct{ reference, wantName, wantPURL string }{
		"a tag":              {"ghcr.io/shop/web:1.2", "ghcr.io/shop/web", "pkg:oci/web@sha256%3A" + strings.Repeat("a", 64) + "?arch=arm64&repository_url=ghcr.io%2Fshop%2Fweb"},
		"an official image":  {"nginx", "docker.io/library/nginx", "pkg:oci/nginx@sha256%3A" + strings.Repeat("a", 64) + "?arch=arm64&repository_url=docker.io%2Flibrary%2Fnginx"},
		"no reference":       {"", digest("a"), ""},
		"what is not parsed": {"::weird::", digest("a"), ""},
		"a registry's port":  {"10.0.0.1:5000/a/b@" + digest("c"), "10.0.0.1:5000/a/b", "pkg:oci/b@sha256%3A" + strings.Repeat("a", 64) + "?arch=arm64&repository_url=10.0.0.1%3A5000%2Fa%2Fb"},
	} {
		t.Run(name, func(t *testing.T) {
			report := reportOf()
			report.Reference = tt.reference
			component := read(t, compiled, written(t, report)).Metadata.Component
			if component.Name != tt.wantName || component.PackageURL != tt.wantPURL {
				t.Errorf("the image is %s, %s; want %s, %s", component.Name, component.PackageURL, tt.wantName, tt.wantPURL)
			}
			if hash := (*component.Hashes)[0]; hash.Algorithm != "SHA-256" || hash.Value != strings.Repeat("a", 64) {
				t.Errorf("the image's hash is %+v", hash)
			}
		})
	}
}

// TestValid: whatever an image and a database contain, the document is valid and its references resolve.
func TestValid(t *testing.T) {
	compiled := schema(t)
	many := func(n int, one func(i int) finding.Finding) (all []finding.Finding) {
		for i := range n {
			all = append(all, one(i))
		}
		return all
	}
	for name, findings := range map[string][]finding.Finding{
		"an empty report":          nil,
		"no CVSS":                  {openssl(func(f *finding.Finding) { f.CVSS, f.Advisories = 0, nil })},
		"a score without a vector": {openssl(func(f *finding.Finding) { f.Advisories = nil })},
		"nothing but an id":        {{ID: "X"}},
		"no package URL":           {openssl(func(f *finding.Finding) { f.Package.PURL = "" })},
		"weird names": {openssl(func(f *finding.Finding) {
			f.ID, f.Aliases = "urn:cdx:\"<>&\u0000", []string{" ", "\n", "ALAS-2024:1"}
			f.Package = finding.Package{Name: "a\u0000b\"'<script>", Version: strings.Repeat("版", 5000), Type: "?", PURL: "pkg:generic/#?@&%zz"}
			f.Paths, f.FixVersions = []string{"", "../../x\ny"}, []string{"", strings.Repeat("9", 3000)}
		})},
		"texts that are not UTF-8": {openssl(func(f *finding.Finding) {
			f.ID, f.Description, f.Paths = "CVE-\xff", "\xc3\x28", []string{"/\xfe"}
			f.Package = finding.Package{Name: "\xff", Version: "\xff1", Type: "\xfe", PURL: "pkg:generic/\xff@1#\xfe"}
			f.Aliases, f.FixVersions = []string{"\xff"}, []string{"\xfe"}
		})},
		"no address of the web": {openssl(func(f *finding.Finding) { f.URL = "javascript:alert(1)" })},
		"a broken address":      {openssl(func(f *finding.Finding) { f.URL = "https://%zz/ and more" })},
		"one id in many packages": many(300, func(i int) finding.Finding {
			return openssl(func(f *finding.Finding) {
				f.Package.Name, f.Package.PURL = fmt.Sprint("p", i), fmt.Sprint("pkg:deb/debian/p", i, "@1")
			})
		}),
		"several copies of a package": many(3, func(i int) finding.Finding {
			return openssl(func(f *finding.Finding) { f.Package.Type, f.Paths = "npm", []string{fmt.Sprint("/app/", i)} })
		}),
		"10,000 findings": many(10_000, func(i int) finding.Finding {
			return openssl(func(f *finding.Finding) {
				f.ID, f.Package.Name, f.Package.PURL = fmt.Sprintf("CVE-2024-%04d", i%3000), fmt.Sprint("p", i/7), fmt.Sprint("pkg:deb/debian/p", i/7, "@1")
			})
		}),
	} {
		t.Run(name, func(t *testing.T) {
			report := reportOf(findings...)
			text := written(t, report)
			check(t, findings, read(t, compiled, text))
			if !bytes.Equal(text, written(t, report)) {
				t.Error("the same report gives two different documents")
			}
		})
	}
}

// check compares a document with the findings that it was made from.
func check(t testing.TB, findings []finding.Finding, bom *cdx.BOM) {
	t.Helper()
	refs := map[string]bool{bom.Metadata.Component.BOMRef: true}
	for _, component := range *bom.Components {
		if refs[component.BOMRef] {
			t.Errorf("two things have the reference %q", component.BOMRef)
		}
		refs[component.BOMRef] = true
	}
	affected := map[string]int{}
	for _, v := range *bom.Vulnerabilities {
		if _, found := affected[v.ID]; found {
			t.Errorf("%q is there twice", v.ID)
		}
		affected[v.ID] = len(*v.Affects)
		if refs[v.BOMRef] {
			t.Errorf("two things have the reference %q", v.BOMRef)
		}
		refs[v.BOMRef] = true
		for _, a := range *v.Affects {
			if !refs[a.Ref] {
				t.Errorf("%q affects %q, which is not there", v.ID, a.Ref)
			}
		}
	}
	want, seen := map[string]int{}, map[string]bool{}
	for _, f := range findings {
		if !seen[f.Key()] {
			want[strings.ToValidUTF8(f.ID, "�")]++
		}
		seen[f.Key()] = true
	}
	if diff := cmp.Diff(want, affected); diff != "" {
		t.Errorf("affected packages by vulnerability (-want +got):\n%s", diff)
	}
}

// TestAnyReportIsValid: random reports give valid documents too.
func TestAnyReportIsValid(t *testing.T) {
	compiled := schema(t)
	text := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "a", "CVE-2024-0001", "GHSA-a", "\xff", "#", "?x=y", "https://a.example/b c", "日本", "\u0000"}).Draw(t, "text") + rapid.StringN(0, 3, 9).Draw(t, "more")
	})
	anyFinding := rapid.Custom(func(t *rapid.T) finding.Finding {
		return finding.Finding{
			ID: text.Draw(t, "id"), Aliases: rapid.SliceOfN(text, 0, 3).Draw(t, "aliases"), Severity: finding.Severity(rapid.IntRange(0, 5).Draw(t, "severity")),
			Package: finding.Package{Name: text.Draw(t, "name"), Version: text.Draw(t, "version"), Type: rapid.SampledFrom([]string{"deb", "npm", ""}).Draw(t, "type"), PURL: text.Draw(t, "purl")},
			Paths:   rapid.SliceOfN(text, 0, 2).Draw(t, "paths"), FixState: rapid.SampledFrom([]string{"fixed", "wont-fix", ""}).Draw(t, "state"),
			FixVersions: rapid.SliceOfN(text, 0, 2).Draw(t, "fixed"), URL: text.Draw(t, "url"), CVSS: rapid.Float64Range(0, 10).Draw(t, "cvss"),
			Advisories: []finding.Advisory{{ID: text.Draw(t, "advisory"), Source: text.Draw(t, "source"), Ratings: []finding.Rating{{Version: text.Draw(t, "version of CVSS"), Vector: text.Draw(t, "vector")}}}},
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		report := reportOf(rapid.SliceOfN(anyFinding, 0, 8).Draw(rt, "findings")...)
		report.Reference, report.Tool, report.Distro = text.Draw(rt, "reference"), text.Draw(rt, "tool"), text.Draw(rt, "distro")
		bom := read(t, compiled, written(t, report))
		if len(*bom.Vulnerabilities) > len(report.Findings) {
			rt.Errorf("%d vulnerabilities of %d findings", len(*bom.Vulnerabilities), len(report.Findings))
		}
	})
}

// TestSerialNumber: the serial number is the same for the same report, and differs between reports.
func TestSerialNumber(t *testing.T) {
	base := reportOf(openssl())
	same := base
	same.MatchedAt, same.Findings = base.MatchedAt.Add(time.Hour), nil
	if base.serialNumber() != same.serialNumber() {
		t.Error("another time gives another serial number")
	}
	for name, change := range map[string]func(*Report){
		"another image":  func(r *Report) { r.PlatformDigest = digest("c") },
		"another engine": func(r *Report) { r.Engine = "clair" },
		"newer data":     func(r *Report) { r.DataVersion = "newer" },
		"another SBOM":   func(r *Report) { r.Scope = "shop" },
		// Both are in the document, or decide what is in it.
		"another reference": func(r *Report) { r.Reference = "registry.example.com/other:1" },
		"another revision":  func(r *Report) { r.Revision = "7.2" },
	} {
		other := base
		change(&other)
		if other.serialNumber() == base.serialNumber() {
			t.Errorf("%s has the same serial number", name)
		}
	}
}
