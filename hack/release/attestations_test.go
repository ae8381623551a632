package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
)

// An SBOM is attested to the image of its program and platform, not to the index.
func TestSBOMOfEachPlatform(t *testing.T) {
	r := complete(t)
	var out bytes.Buffer
	must(t, r.listSBOMs("registry.example:5000/trial", &out))

	files := map[string]string{} // SBOM files by the reference of the platform's image
	for _, program := range programs {
		index, err := r.index(program)
		must(t, err)
		manifest, err := index.IndexManifest()
		must(t, err)
		for _, image := range manifest.Manifests {
			files["registry.example:5000/trial/"+program+"@"+image.Digest.String()] =
				r.path("sbom", program+"_"+image.Platform.OS+"_"+image.Platform.Architecture+".spdx.json")
		}
	}
	digests := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		reference, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		digest, err := name.NewDigest(reference)
		if err != nil || digest.RegistryStr() != "registry.example:5000" {
			t.Errorf("want a reference by digest in the named registry, got %q: %v", reference, err)
			continue
		}
		digests[digest.DigestStr()] = true
		if want := files[reference]; file != want {
			t.Errorf("%s has the bill of materials %q, want %q", reference, file, want)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("the bill of materials of %s: %v", reference, err)
		}
		record, err := r.record()
		must(t, err)
		for _, index := range record {
			if strings.HasSuffix(index, digest.DigestStr()) {
				t.Errorf("%s is the index of all platforms", reference)
			}
		}
	}
	if want := len(programs) * len(platforms); len(digests) != want {
		t.Errorf("want %d different images, got %d:\n%s", want, len(digests), out.String())
	}
}
