package input

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/anchore/grype/grype/distro"
	grypepkg "github.com/anchore/grype/grype/pkg"
	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/cpe"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/linux"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

var fuzzedProvider = grypepkg.ProviderConfig{SynthesisConfig: grypepkg.SynthesisConfig{
	Distro: grypepkg.DistroConfig{FixChannels: distro.DefaultFixChannels()},
}}

// FuzzPackages: a document is refused unless it is one whole JSON object. Otherwise each of its packages has an ID of its own, and reading it again
// gives the same packages in the same order.
func FuzzPackages(f *testing.F) {
	const schema = `"schema":{"version":"16.1.3","url":"https://raw.githubusercontent.com/anchore/syft/main/schema/json/schema-16.1.3.json"}`
	for _, seed := range []string{
		`{` + schema + `}`,
		`{"artifacts":[{"id":"1","name":"a","version":"1","type":"npm","locations":[{"path":"/a"}],"cpes":[{"cpe":"cpe:2.3:a:x:y:1:*:*:*:*:*:*:*"}],"purl":"pkg:npm/a@1"}],"distro":{"id":"debian","versionID":"12"},` + schema + `}`,
		`{"artifacts":[{"id":"1","name":"a","version":"1-r0","type":"apk","purl":"pkg:apk/alpine/a@1-r0?arch=x86_64","metadataType":"apk-db-entry","metadata":{"originPackage":"o"}},{"id":"2","name":"b","version":"2","type":"binary"}],` +
			`"artifactRelationships":[{"parent":"1","child":"2","type":"ownership-by-file-overlap"}],"distro":{"id":"alpine","versionID":"3.18"},` + schema + `}`,
		`{"artifacts":[{"id":"1","name":"a","version":"1","type":"java-archive","metadataType":"java-archive","metadata":{"virtualPath":"/a.jar","digest":[{"algorithm":"sha1","value":"aa"}]}}],` + schema + `}`,
		`{"artifacts":[{"id":"1"},{"id":"1"}],` + schema + `}`, `{"artifacts":null,` + schema, `{` + schema + `]`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "input.json")
	f.Fuzz(func(t *testing.T, document []byte) {
		if err := os.WriteFile(path, document, 0o600); err != nil {
			t.Fatal(err)
		}
		packages, about, err := Open(path).Packages(fuzzedProvider)
		if err != nil {
			if packages != nil {
				t.Errorf("%d packages beside the error %v", len(packages), err)
			}
			return
		}
		var whole map[string]any
		if err := json.NewDecoder(bytes.NewReader(document)).Decode(&whole); err != nil {
			t.Errorf("%s is accepted, but it is no JSON object: %v", document, err)
		}
		seen := map[grypepkg.ID]bool{}
		for _, p := range packages {
			if p.ID == "" || seen[p.ID] {
				t.Errorf("%s has two packages with the ID %q, or one without", document, p.ID)
			}
			seen[p.ID] = true
		}
		again, aboutAgain, err := Open(path).Packages(fuzzedProvider)
		if err != nil || fmt.Sprint(about.Distro) != fmt.Sprint(aboutAgain.Distro) {
			t.Errorf("%s is read again for %v, %v; want %v", document, aboutAgain.Distro, err, about.Distro)
		}
		if diff := cmp.Diff(namesOf(packages), namesOf(again)); diff != "" {
			t.Errorf("%s: packages (-first +again):\n%s", document, diff)
		}
	})
}

// namesOf returns what a report says of packages, in their order, with their distribution and source packages.
func namesOf(packages []grypepkg.Package) (names []string) {
	for _, p := range packages {
		var places, cpes []string
		for _, place := range p.Locations.ToSlice() {
			if IsPrimary(place) {
				places = append(places, place.RealPath)
			}
		}
		// Packages of a distribution are not matched by CPE.
		if p.Type != pkg.DebPkg && p.Type != pkg.RpmPkg {
			for _, c := range p.CPEs {
				cpes = append(cpes, c.Attributes.String())
			}
		}
		slices.Sort(cpes)
		names = append(names, fmt.Sprintf("%s %q %q %s %s %q on %v from %v at %q as %q", p.ID, p.Name, p.Version, p.Type, p.Language, p.PURL, p.Distro, p.Upstreams, places, cpes))
	}
	return names
}

// FuzzCompact: of an SBOM with packages of any name, version and kind, the compact input has the packages that Grype itself reads from the whole SBOM, in
// the same order.
func FuzzCompact(f *testing.F) {
	f.Add("deb", "1.0-1", "pkg:deb/debian/deb@1.0-1?arch=amd64", "source", "amd64", "debian", "12", uint8(0), true)
	f.Add("rpm", "1:1.0-1", "pkg:rpm/rhel/rpm@1.0-1?arch=x86_64&epoch=1", "rpm-1.0-1.src.rpm", "x86_64", "rhel", "9.2", uint8(1), true)
	f.Add("apk", "1.0-r0", "pkg:apk/alpine/apk@1.0-r0?arch=x86_64", "origin", "x86_64", "alpine", "3.18", uint8(2), false)
	f.Add("example.org/tool", "v1.0.0", "pkg:golang/example.org/tool@v1.0.0", "example.org/tool", "amd64", "", "", uint8(3), true)
	f.Add("jar", "1.0", "pkg:maven/g/jar@1.0", "g", "", "wolfi", "1", uint8(4), false)
	f.Add("module", "1.0", "pkg:pypi/module@1.0", "", "", "ubuntu", "22.04", uint8(5), true)
	path := filepath.Join(f.TempDir(), "input.json")
	f.Fuzz(func(t *testing.T, name, version, purl, source, architecture, distribution, release string, kind uint8, overlap bool) {
		s := fuzzedSBOM(name, version, purl, source, architecture, kind, overlap)
		if distribution != "" {
			s.Artifacts.LinuxDistribution = &linux.Release{ID: distribution, VersionID: release}
		}
		whole, err := json.Marshal(syftjson.ToFormatModel(*s, syftjson.DefaultEncoderConfig()))
		if err != nil {
			t.Fatal(err)
		}
		want, about, _, err := grypepkg.ProvideFromReader(bytes.NewReader(whole), fuzzedProvider)
		if err != nil {
			return // Grype cannot match the image, and neither can a worker
		}
		for _, p := range want {
			// Of what a document lacks, Grype takes some from the package URL. It does not so for an image, whose findings are the reference.
			if of := s.Artifacts.Packages.Package(artifact.ID(p.ID)); of == nil || p.Name != of.Name || p.Version != of.Version || p.Language != of.Language || len(p.CPEs) != len(of.CPEs) {
				return
			}
		}
		compact, err := json.Marshal(Compact(s))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, compact, 0o600); err != nil {
			t.Fatal(err)
		}
		got, gotAbout, err := Open(path).Packages(fuzzedProvider)
		if err != nil {
			t.Fatalf("Grype reads the SBOM, but its compact form is refused: %v\n%s", err, compact)
		}
		if diff := cmp.Diff(namesOf(want), namesOf(got)); diff != "" {
			t.Errorf("packages (-Grype +got):\n%s\n%s", diff, compact)
		}
		if fmt.Sprint(about.Distro) != fmt.Sprint(gotAbout.Distro) || about.DistroDetectionFailed != gotAbout.DistroDetectionFailed {
			t.Errorf("distribution %v, want %v", gotAbout.Distro, about.Distro)
		}
	})
}

// fuzzedSBOM returns an SBOM with a package of one of the kinds that matchers treat differently, and a Python package, which is in a file of the first
// package if overlap is true.
func fuzzedSBOM(name, version, purl, source, architecture string, kind uint8, overlap bool) *sbom.SBOM {
	at := func(path string) file.LocationSet {
		return file.NewLocationSet(file.NewLocationFromCoordinates(file.NewCoordinates(path, "sha256:layer")))
	}
	first := pkg.Package{Name: name, Version: version, PURL: purl, Locations: at("/first"), CPEs: []cpe.CPE{cpe.Must("cpe:2.3:a:first:first:1.0:*:*:*:*:*:*:*", "")}}
	switch kind % 6 {
	case 0:
		first.Type, first.Metadata = pkg.DebPkg, pkg.DpkgDBEntry{Package: name, Source: source, SourceVersion: version, Architecture: architecture, Files: []pkg.DpkgFileRecord{{Path: "/usr/lib/second"}}}
	case 1:
		epoch := len(source)
		first.Type, first.Metadata = pkg.RpmPkg, pkg.RpmDBEntry{Name: name, Epoch: &epoch, Arch: architecture, SourceRpm: source, ModularityLabel: &source}
	case 2:
		first.Type, first.Metadata = pkg.ApkPkg, pkg.ApkDBEntry{Package: name, OriginPackage: source, Architecture: architecture}
	case 3:
		first.Type, first.Language = pkg.GoModulePkg, pkg.Go
		first.Metadata = pkg.GolangBinaryBuildinfoEntry{MainModule: source, Architecture: architecture, Symbols: map[string][]string{source: {"F", "(*T).M"}}}
	case 4:
		first.Type, first.Language = pkg.JavaPkg, pkg.Java
		first.Metadata = pkg.JavaArchive{VirtualPath: "/a.jar", PomProperties: &pkg.JavaPomProperties{GroupID: source, ArtifactID: name},
			Manifest: &pkg.JavaManifest{Main: pkg.KeyValues{{Key: "Name", Value: source}, {Key: "Built-By", Value: architecture}}}}
	case 5:
		first.Type, first.Metadata = pkg.BinaryPkg, pkg.JavaVMInstallation{Release: pkg.JavaVMRelease{JavaVersion: version, FullVersion: source}}
	}
	second := pkg.Package{Name: "second", Version: version, Type: pkg.PythonPkg, Language: pkg.Python, Locations: at("/usr/lib/second"), PURL: "pkg:pypi/second@1"}
	first.SetID()
	second.SetID()
	s := &sbom.SBOM{Artifacts: sbom.Artifacts{Packages: pkg.NewCollection(first, second)}}
	if overlap {
		s.Relationships = []artifact.Relationship{{From: first, To: second, Type: artifact.OwnershipByFileOverlapRelationship}}
	}
	return s
}

// maxPacked bounds a fuzzed input: a few bytes can be the compressed form of many megabytes.
const maxPacked = 1 << 10

// FuzzReceive: what is received is the whole content, and that of its compressed form again is the same. After an error, no file is left.
func FuzzReceive(f *testing.F) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		f.Fatal(err)
	}
	whole := encoder.EncodeAll(bytes.Repeat([]byte("content "), 100), nil)
	for _, seed := range [][]byte{whole, whole[:len(whole)-5], slices.Concat(whole, whole), []byte("{}"), {0x28, 0xB5, 0x2F, 0xFD, 0, (26 - 10) << 3, 1, 0, 0}, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		if len(packed) > maxPacked {
			t.Skip("it could take many megabytes")
		}
		dir := t.TempDir()
		received, err := Receive(bytes.NewReader(packed), dir)
		if err != nil {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || received != nil {
				t.Errorf("after an error, %v are left, %v", left, err)
			}
			return
		}
		got, err := os.ReadFile(received.Path())
		if err != nil {
			t.Fatal(err)
		}
		if want, err := decoder.DecodeAll(packed, nil); err != nil || !bytes.Equal(want, got) {
			t.Errorf("received %d bytes, want %d, %v", len(got), len(want), err)
		}
		again, err := Receive(bytes.NewReader(encoder.EncodeAll(got, nil)), dir)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(again.Path()); err != nil || !bytes.Equal(content, got) {
			t.Errorf("%d bytes are received again as %d, %v", len(got), len(content), err)
		}
	})
}
