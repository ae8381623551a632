package catalog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/registry/registrytest"
	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// cycloneDXSchemas has the published schema of CycloneDX 1.6, with those that it refers to.
const cycloneDXSchemas = "../../pkg/restapi/cyclonedx/testdata/schema"

// schema compiles the first of the schemas in the files, with validation of string formats.
func schema(t *testing.T, base string, files ...string) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource(base+filepath.Base(file), parsed); err != nil {
			t.Fatal(err)
		}
	}
	compiled, err := compiler.Compile(base + filepath.Base(files[0]))
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// written returns the SBOM in an additional format.
func written(t *testing.T, format string, s *sbom.SBOM) []byte {
	t.Helper()
	artifact, err := catalog.WriteFormat(t.TempDir(), format, s, workerapi.MaxSBOMContentBytes)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(artifact.Path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fixture.Decompress(raw)
	if err != nil {
		t.Fatal(err)
	}
	if artifact.Size != int64(len(raw)) || artifact.ContentSize != int64(len(text)) {
		t.Errorf("the artifact says %d bytes of %d, the file has %d of %d", artifact.Size, artifact.ContentSize, len(raw), len(text))
	}
	return text
}

func validate(t *testing.T, against *jsonschema.Schema, text []byte) {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := against.Validate(parsed); err != nil {
		t.Errorf("the document is not valid: %v\n%s", err, text)
	}
}

// unruly returns packages with texts that strict readers refuse where they expect a URI or the identifier of a license.
func unruly() registrytest.Files {
	return fixture.Merge(
		fixture.OSRelease("unruly", "1", `BUG_REPORT_URL="https://example.org/not a [URI]?a b"`, `CPE_NAME="no cpe"`),
		fixture.Dpkg(fixture.Deb{Name: "a\"<b>&{}", Version: "1:2~rc%zz", Source: "b c (3)"}),
		registrytest.Files{
			"app/node_modules/a/package.json":                               `{"name":"a","version":"1.0.0","license":"BSD-3-Clause-acpica","homepage":"https://example.org/a b?c d","author":"A <a@b> (x)","repository":{"url":"git@example.org:a/a.git"}}`,
			"app/node_modules/b/package.json":                               `{"name":"b","version":"1.0.0","license":"MIT","homepage":"http://exa mple.org","repository":"https://example.org/%zz"}`,
			"app/node_modules/c/package.json":                               `{"name":"c","version":"1.0.0","license":"(MIT OR Nonsense-1.0)","homepage":"https://[::1]/c#d#e"}`,
			"app/node_modules/d/package.json":                               `{"name":"d","version":"1.0.0","license":"see \"LICENSE\" \u0007 <x>","homepage":"https://example.org/é"}`,
			"usr/lib/python3/site-packages/e-1.0.dist-info/METADATA":        "Metadata-Version: 2.1\nName: e\nVersion: 1.0\nLicense: MIT\nAuthor: É \x01 <e@example>\n",
			"usr/lib/python3/site-packages/e-1.0.dist-info/RECORD":          "e.py,sha256=zz,1\n",
			"usr/lib/python3/site-packages/e-1.0.dist-info/direct_url.json": `{"url":"file:///build dir/e [1].whl","vcs_info":{"commit_id":"abc","vcs":"git"}}`,
		})
}

// TestFormats checks that SBOMs in additional formats are valid by the published schemas, and that they have each package of the image.
func TestFormats(t *testing.T) {
	cycloneDX := schema(t, "http://cyclonedx.org/schema/", filepath.Join(cycloneDXSchemas, "bom-1.6.schema.json"),
		filepath.Join(cycloneDXSchemas, "spdx.schema.json"), filepath.Join(cycloneDXSchemas, "jsf-0.82.schema.json"))
	spdx := schema(t, "http://spdx.org/rdf/terms/", filepath.Join("testdata", "schema", "spdx-schema-2.3.json"))
	for what, files := range map[string]registrytest.Files{
		"Debian": fixture.Debian(), "Alpine": fixture.Alpine(), "Rocky": fixture.Rocky(t), "unruly": unruly(), "no packages": {"hello": "world"},
	} {
		t.Run(what, func(t *testing.T) {
			setTempDir(t)
			img := pulled(t, registrytest.Image(t, files))
			s, err := catalog.Limits{}.SBOM(t.Context(), img, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for p := range s.Artifacts.Packages.Enumerate() {
				want = append(want, p.Name+" "+p.Version)
			}
			slices.Sort(want)

			text := written(t, workerapi.FormatCycloneDX, s)
			validate(t, cycloneDX, text)
			var bom cdx.BOM
			if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
				t.Fatal(err)
			}
			compare(t, "CycloneDX", want, packagesOf(bom))
			if subject := bom.Metadata.Component; subject.Type != cdx.ComponentTypeContainer || subject.Name != img.Reference.Context().Name() {
				t.Errorf("the document is about %+v, want the image %s", subject, img.Reference)
			}
			if tool := (*bom.Metadata.Tools.Components)[0]; tool.Name != "syft" {
				t.Errorf("the document is by %+v, want syft", tool)
			}

			text = written(t, workerapi.FormatSPDX, s)
			validate(t, spdx, text)
			compare(t, "SPDX", want, spdxPackages(t, text))
		})
	}
}

// packagesOf returns the components that are packages, by name and version.
func packagesOf(bom cdx.BOM) (names []string) {
	if bom.Components == nil {
		return nil
	}
	for _, c := range *bom.Components {
		if c.Type != cdx.ComponentTypeOS {
			names = append(names, strings.TrimPrefix(c.Group+"/", "/")+c.Name+" "+c.Version)
		}
	}
	slices.Sort(names)
	return names
}

// spdxPackages returns the packages of an SPDX document without the image itself, by name and version.
func spdxPackages(t *testing.T, text []byte) (names []string) {
	t.Helper()
	var document struct {
		SPDXVersion string `json:"spdxVersion"`
		Packages    []struct {
			Name, VersionInfo, PrimaryPackagePurpose string
		}
	}
	if err := json.Unmarshal(text, &document); err != nil || document.SPDXVersion != "SPDX-2.3" {
		t.Fatalf("the document is %s (%v), want SPDX-2.3", document.SPDXVersion, err)
	}
	for _, p := range document.Packages {
		if p.PrimaryPackagePurpose != "CONTAINER" {
			names = append(names, p.Name+" "+p.VersionInfo)
		}
	}
	slices.Sort(names)
	return names
}

func compare(t *testing.T, format string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages in %s (-want +got):\n%s", format, diff)
	}
}

// TestCycloneDXOfUnrulyTexts checks what is left of texts that strict readers refuse.
func TestCycloneDXOfUnrulyTexts(t *testing.T) {
	setTempDir(t)
	s, err := catalog.Limits{}.SBOM(t.Context(), pulled(t, registrytest.Image(t, unruly())), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(written(t, workerapi.FormatCycloneDX, s)), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range *bom.Components {
		if c.Type == cdx.ComponentTypeOS || c.Version == "1:2~rc%zz" {
			continue
		}
		if c.Licenses != nil {
			for _, l := range *c.Licenses {
				if l.License != nil {
					got = append(got, strings.TrimSpace(c.Name+": "+l.License.ID+" "+l.License.Name))
				}
			}
		}
		if c.ExternalReferences != nil {
			for _, r := range *c.ExternalReferences {
				got = append(got, c.Name+": "+r.URL)
			}
		}
	}
	// Addresses are escaped where that makes them URIs, and left out otherwise. A license without a known identifier has its name.
	want := []string{
		"a:  BSD-3-Clause-acpica", "b: MIT", "c:  (MIT OR Nonsense-1.0)", "d:  see \"LICENSE\" \a <x>", "d: https://example.org/%C3%A9",
		"e: MIT", "e: file:///build%20dir/e%20%5B1%5D.whl",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("licenses and references (-want +got):\n%s", diff)
	}
}

// TestFormatTooLarge checks that a document beyond the limit has a reason that names the format and the limit.
func TestFormatTooLarge(t *testing.T) {
	dir := setTempDir(t)
	s, err := catalog.Limits{}.SBOM(t.Context(), pulled(t, registrytest.Image(t, fixture.Debian())), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range workerapi.AdditionalFormats {
		_, err := catalog.WriteFormat(dir, format, s, 1<<10)
		var known *failure.Error
		if !errors.As(err, &known) || known.Reason != workerapi.ReasonImageTooLarge || !strings.Contains(err.Error(), format) {
			t.Errorf("got %v, want %s that names %s", err, workerapi.ReasonImageTooLarge, format)
		}
	}
	if names := remainingFiles(t, dir); len(names) > 0 {
		t.Errorf("left in the temporary directory: %q", names)
	}
}

// TestKnownLicenses checks that the product's list is the one that the tests validate against.
func TestKnownLicenses(t *testing.T) {
	product, err := os.ReadFile("licenses.json")
	if err != nil {
		t.Fatal(err)
	}
	published, err := os.ReadFile(filepath.Join(cycloneDXSchemas, "spdx.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(product, published) {
		t.Error("licenses.json differs from the published list")
	}
}
