package match_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anchore/syft/syft/format"
	"github.com/anchore/syft/syft/format/cyclonedxjson"
	"github.com/anchore/syft/syft/format/spdxjson"
	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/worker/catalog"
	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/worker/match"
)

// TestOtherFormatsGiveGrypesReport checks that an SBOM in SPDX or CycloneDX, decoded and made compact, gives the report that Grype gives for the
// document itself.
func TestOtherFormatsGiveGrypesReport(t *testing.T) {
	db := store(t, fixture.Advisories(t, ownAdvisories))
	spdx, err := spdxjson.NewFormatEncoderWithConfig(spdxjson.DefaultEncoderConfig())
	if err != nil {
		t.Fatal(err)
	}
	cyclonedx, err := cyclonedxjson.NewFormatEncoderWithConfig(cyclonedxjson.DefaultEncoderConfig())
	if err != nil {
		t.Fatal(err)
	}
	all := images(t)
	for _, name := range []string{"debian", "alpine", "rocky", "go"} {
		s := contents(t, all[name].image)
		for _, encoder := range []sbom.FormatEncoder{spdx, cyclonedx} {
			t.Run(name+"/"+encoder.ID().String(), func(t *testing.T) {
				raw, err := format.Encode(*s, encoder)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(t.TempDir(), "sbom.json")
				if err := os.WriteFile(file, raw, 0o600); err != nil {
					t.Fatal(err)
				}
				want, err := match.SBOMWithGrypeReader(t.Context(), db, file)
				if err != nil {
					t.Fatal(err)
				}
				if len(want.Findings) == 0 {
					t.Error("Grype finds nothing, want findings to compare")
				}
				decoded, _, _, err := format.Decode(bytes.NewReader(raw))
				if err != nil {
					t.Fatal(err)
				}
				got, err := match.SBOM(t.Context(), db, input.Open(write(t, input.Compact(decoded))))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(fixture.Lines(want.Findings), fixture.Lines(got.Findings)); diff != "" {
					t.Errorf("findings (-Grype's +got):\n%s", diff)
				}
			})
		}
	}
}

// operatingSystem is a component of CycloneDX that names the image's distribution.
const operatingSystem = `{"bom-ref": "os", "type": "operating-system", "name": "debian", "version": "12"}`

func cyclonedxOf(components ...string) string {
	return `{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": {"type": "container", "name": "web"}},
		"components": [` + strings.Join(components, ",") + `]}`
}

func componentOf(name, version, purl string) string {
	return fmt.Sprintf(`{"bom-ref": %q, "type": "library", "name": %q, "version": %q, "purl": %q}`, purl, name, version, purl)
}

func spdxOf(packages ...string) string {
	return `{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "web", "documentNamespace": "https://example.com/web",
		"creationInfo": {"created": "2026-01-01T00:00:00Z", "creators": ["Tool: x"]}, "packages": [` + strings.Join(packages, ",") + `]}`
}

func packageOf(name, version, purl string) string {
	return fmt.Sprintf(`{"SPDXID": "SPDXRef-%s", "name": %q, "versionInfo": %q, "downloadLocation": "NOASSERTION",
		"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": %q}]}`, name, name, version, purl)
}

// foreignSBOMs returns documents as other tools write them.
func foreignSBOMs(t *testing.T) map[string]string {
	t.Helper()
	const (
		libssl  = "pkg:deb/debian/libssl3@3.0.9-1?arch=amd64&distro=debian-12&upstream=openssl"
		openssl = "pkg:rpm/redhat/openssl-libs@3.0.7-6.el9_2?arch=x86_64&epoch=1&distro=rhel-9.2&upstream=openssl-3.0.7-6.el9_2.src.rpm"
		crypto  = "pkg:apk/alpine/libcrypto3@3.1.0-r4?arch=x86_64&distro=alpine-3.18.0&upstream=openssl"
		noble   = "pkg:deb/ubuntu/curl@1?distro=ubuntu-24.04"
	)
	documents := map[string]string{
		"the distribution is in package URLs":   cyclonedxOf(componentOf("openssl", "3.0.9-1", "pkg:deb/debian/openssl@3.0.9-1?arch=amd64&distro=debian-12")),
		"the source package is in package URLs": cyclonedxOf(operatingSystem, componentOf("libssl3", "3.0.9-1", libssl)),
		"both are in package URLs":              cyclonedxOf(componentOf("libssl3", "3.0.9-1", libssl)),
		"the distribution is in one package URL only": cyclonedxOf(componentOf("libssl3", "3.0.9-1", libssl),
			componentOf("curl", "7.88.1-10", "pkg:deb/debian/curl@7.88.1-10")),
		"package URLs contradict the document": cyclonedxOf(operatingSystem, componentOf("libcrypto3", "3.1.0-r4", crypto),
			componentOf("curl", "7.88.1-10", "pkg:deb/debian/curl@7.88.1-10")),
		"a distribution by its codename": cyclonedxOf(componentOf("libssl3", "3.0.9-1", "pkg:deb/debian/libssl3@3.0.9-1?distro=bookworm&upstream=openssl%403.0.9-1"),
			componentOf("openssl", "3.0.9-1", "pkg:deb/debian/openssl@3.0.9-1?distro=debian-bookworm")),
		"the document's distribution is nobody's": cyclonedxOf(`{"type": "operating-system", "name": "openEuler", "version": "22.03"}`, componentOf("libssl3", "3.0.9-1", libssl)),
		"Alpine":                cyclonedxOf(componentOf("libcrypto3", "3.1.0-r4", crypto)),
		"Red Hat":               cyclonedxOf(componentOf("openssl-libs", "3.0.7-6.el9_2", openssl)),
		"several distributions": cyclonedxOf(componentOf("curl", "1", noble), componentOf("libssl3", "3.0.9-1", libssl), componentOf("openssl-libs", "3.0.7-6.el9_2", openssl)),
		"only the described component is a package": `{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": [],
			"metadata": {"component": ` + componentOf("golang.org/x/net", "v0.1.0", "pkg:golang/golang.org/x/net@v0.1.0") + `}}`,
		"CycloneDX 1.3, without references, in other components": `{"bomFormat": "CycloneDX", "specVersion": "1.3", "version": 1, "components": [
			{"type": "application", "name": "debian", "components": [{"type": "library", "name": "libssl3", "version": "3.0.9-1", "purl": "` + libssl + `"}]}]}`,
		"a type in upper case": cyclonedxOf(operatingSystem, componentOf("openssl", "3.0.9-1", "pkg:DEB/Debian/openssl@3.0.9-1?arch=amd64&distro=debian-12"),
			componentOf("golang.org/x/net", "v0.1.0", "pkg:GoLang/golang.org/x/net@v0.1.0")),
		"an epoch in version and package URL": cyclonedxOf(componentOf("openssl-libs", "1:3.0.7-6.el9_2", openssl)),
		"the same component twice":            cyclonedxOf(componentOf("libssl3", "3.0.9-1", libssl), componentOf("libssl3", "3.0.9-1", libssl)),
		"the qualifiers are escaped":          cyclonedxOf(componentOf("libssl3", "3.0.9-1", "pkg:deb/debian/libssl3@3.0.9-1?distro=debian%2D12&upstream=openssl%403.0.9%2D1")),
		"SPDX":                                spdxOf(packageOf("libssl3", "3.0.9-1", libssl)),
		"SPDX, Red Hat":                       spdxOf(packageOf("openssl-libs", "3.0.7-6.el9_2", openssl)),
		"SPDX, several distributions":         spdxOf(packageOf("curl", "1", noble), packageOf("libssl3", "3.0.9-1", libssl), packageOf("libcrypto3", "3.1.0-r4", crypto)),
	}
	files, err := filepath.Glob("testdata/othertools/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents in testdata: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents[filepath.Base(file)] = string(content)
	}
	return documents
}

// TestSBOMsOfOtherTools checks that an attested or uploaded SBOM gives the findings that the grype command of the same version prints for it.
func TestSBOMsOfOtherTools(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the grype command, which takes minutes the first time; run without -short")
	}
	grype, cache, db := commandLine(t), fixture.Database(t, fixture.Built).Cache, store(t)
	for what, document := range foreignSBOMs(t) {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "sbom.json")
			if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
				t.Fatal(err)
			}
			want, _ := printed(t, grype, cache, "sbom:"+file)
			if len(want) == 0 {
				t.Error("Grype finds nothing, want findings to compare")
			}
			decoded, _, err := catalog.Decode([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			// A full SBOM that was downloaded and uploaded again is still one of the other tool.
			raw, err := json.Marshal(full(decoded))
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := catalog.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			unmarked := input.Compact(decoded) // as workers have stored it before there was a mark
			unmarked.Descriptor.Configuration = nil
			for way, document := range map[string]model.Document{
				"at once": input.Compact(decoded), "through syft-json": input.Compact(again), "without the mark": unmarked,
			} {
				got, err := match.SBOM(t.Context(), db, input.Open(write(t, document)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, fixture.Lines(got.Findings)); diff != "" {
					t.Errorf("findings %s (-grype +worker):\n%s", way, diff)
				}
			}
		})
	}
}
