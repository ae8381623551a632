package catalog_test

import (
	"strings"
	"testing"

	"github.com/anchore/syft/syft/format/cyclonedxjson"

	"github.com/scanner-operator/scanner-operator/worker/catalog"
)

// TestDecodeWithoutComponents: the list of components is optional in CycloneDX.
func TestDecodeWithoutComponents(t *testing.T) {
	const described = `"metadata": {"component": {"type": "application", "name": "app", "version": "1", "purl": "pkg:npm/app@1"}}`
	for what, c := range map[string]struct {
		document, wantErr string
	}{
		"null":                        {`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": null}`, "lists no packages"},
		"null in another case":        {`{"bomFormat": "CycloneDX", "specVersion": "1.6", "Components": null}`, "lists no packages"},
		"null, the second of two":     {`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "library", "name": "a"}], "components": null}`, "lists no packages"},
		"missing":                     {`{"bomFormat": "CycloneDX", "specVersion": "1.6"}`, "lists no packages"},
		"empty":                       {`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": []}`, "lists no packages"},
		"of the wrong type":           {`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": 1}`, "cannot be decoded"},
		"null beside the application": {`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": null, ` + described + `}`, ""},
		"null in a component":         {`{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "library", "name": "a", "components": null}]}`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			contents, id, err := catalog.Decode([]byte(c.document))
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("the error is %v, want %q", err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := contents.Artifacts.Packages.PackageCount(); n != 1 || id != cyclonedxjson.ID {
				t.Errorf("%d packages in %s, want one in %s", n, id, cyclonedxjson.ID)
			}
		})
	}
}

// TestOtherFormats: a document in a form that is not read is refused with those that are.
func TestOtherFormats(t *testing.T) {
	for what, document := range map[string]string{
		"SPDX as tags":     "SPDXVersion: SPDX-2.2\nSPDXID: SPDXRef-DOCUMENT\nPackageName: curl\nSPDXID: SPDXRef-curl\n",
		"SPDX 3":           `{"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": [{"type": "software_Package", "name": "curl"}]}`,
		"CycloneDX in XML": `<bom xmlns="http://cyclonedx.org/schema/bom/1.4"><components><component type="library"><name>curl</name></component></components></bom>`,
		"an empty object":  `{}`,
	} {
		if _, _, err := catalog.Decode([]byte(document)); err == nil || !strings.Contains(err.Error(), "syft-json, CycloneDX or SPDX") {
			t.Errorf("%s: the error is %v, want one with the formats that are read", what, err)
		}
	}
}
