package input_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anchore/grype/grype/distro"
	grypepkg "github.com/anchore/grype/grype/pkg"
	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/cpe"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/format/syftjson"
	"github.com/anchore/syft/syft/format/syftjson/model"
	"github.com/anchore/syft/syft/linux"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/worker/input"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

var provider = grypepkg.ProviderConfig{SynthesisConfig: grypepkg.SynthesisConfig{
	Distro: grypepkg.DistroConfig{FixChannels: distro.DefaultFixChannels()},
}}

// write writes a document to a file and returns its path.
func write(t *testing.T, document model.Document) string {
	t.Helper()
	raw, err := json.Marshal(&document)
	if err != nil {
		t.Fatal(err)
	}
	return writeRaw(t, string(raw))
}

func writeRaw(t *testing.T, document string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input.json")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// described holds the parts of a package that affect its matches.
type described struct {
	ID, Name, Version, Type, Language, PURL, Distro string
	Locations, CPEs, Owners                         []string
	Upstreams                                       []grypepkg.UpstreamPackage
	Metadata                                        any
}

func describe(all []grypepkg.Package) []described {
	var out []described
	for _, p := range all {
		d := described{
			ID: string(p.ID), Name: p.Name, Version: p.Version, Type: string(p.Type), Language: string(p.Language), PURL: p.PURL,
			Distro: fmt.Sprint(p.Distro), Upstreams: p.Upstreams, Metadata: matched(p.Metadata),
		}
		for _, l := range p.Locations.ToSlice() {
			if input.IsPrimary(l) {
				d.Locations = append(d.Locations, l.RealPath+" "+l.FileSystemID)
			}
		}
		if p.Type != pkg.DebPkg && p.Type != pkg.RpmPkg {
			for _, c := range p.CPEs {
				d.CPEs = append(d.CPEs, c.Attributes.String())
			}
		}
		for _, owner := range p.RelatedPackages[artifact.OwnershipByFileOverlapRelationship] {
			d.Owners = append(d.Owners, string(owner.ID))
		}
		slices.Sort(d.Owners)
		d.Owners = slices.Compact(d.Owners)
		out = append(out, d)
	}
	return out
}

// matched returns metadata without the parts that no matcher reads.
func matched(metadata any) any {
	switch m := metadata.(type) {
	case grypepkg.ApkMetadata:
		return grypepkg.ApkMetadata{Arch: m.Arch}
	case grypepkg.GolangBinMetadata:
		return grypepkg.GolangBinMetadata{MainModule: m.MainModule, Symbols: m.Symbols}
	}
	return metadata
}

// sample returns an SBOM with packages of each kind that matchers treat differently. Some packages own files in
// which other packages were found.
func sample(release *linux.Release, overlap bool) *sbom.SBOM {
	epoch, module := 1, "m:1:2:x86_64"
	at := func(paths ...string) file.LocationSet {
		var all []file.Location
		for _, path := range paths {
			all = append(all, file.NewLocationFromCoordinates(file.NewCoordinates(path, "sha256:layer")))
		}
		return file.NewLocationSet(all...)
	}
	s := collection(
		pkg.Package{Name: "deb", Version: "1.0-1", Type: pkg.DebPkg, Locations: at("/status"), PURL: "pkg:deb/debian/deb@1.0-1?arch=amd64",
			CPEs:     []cpe.CPE{cpe.Must("cpe:2.3:a:deb:deb:1.0:*:*:*:*:*:*:*", "")},
			Metadata: pkg.DpkgDBEntry{Package: "deb", Source: "source", SourceVersion: "1", Architecture: "amd64", Files: []pkg.DpkgFileRecord{{Path: "/usr/lib/module"}, {Path: "/usr/bin/python"}}}},
		pkg.Package{Name: "rpm", Version: "1:1.0-1", Type: pkg.RpmPkg, Locations: at("/rpmdb"), PURL: "pkg:rpm/rhel/rpm@1.0-1?arch=x86_64&epoch=1",
			Metadata: pkg.RpmDBEntry{Name: "rpm", Epoch: &epoch, Arch: "x86_64", SourceRpm: "rpm-src-1.0-1.src.rpm", ModularityLabel: &module, Files: []pkg.RpmFileRecord{{Path: "/usr/lib/gem"}}}},
		pkg.Package{Name: "apk", Version: "1.0-r0", Type: pkg.ApkPkg, Locations: at("/installed"), PURL: "pkg:apk/alpine/apk@1.0-r0?arch=x86_64",
			CPEs:     []cpe.CPE{cpe.Must("cpe:2.3:a:apk:apk:1.0-r0:*:*:*:*:*:*:*", "")},
			Metadata: pkg.ApkDBEntry{Package: "apk", OriginPackage: "origin", Architecture: "x86_64", Files: []pkg.ApkFileRecord{{Path: "/usr/bin/tool"}}}},
		pkg.Package{Name: "module", Version: "1.0", Type: pkg.PythonPkg, Language: pkg.Python, Locations: at("/usr/lib/module"), PURL: "pkg:pypi/module@1.0"},
		pkg.Package{Name: "module", Version: "2.0", Type: pkg.PythonPkg, Language: pkg.Python, Locations: at("/usr/lib/module"), PURL: "pkg:pypi/module@2.0"},
		pkg.Package{Name: "python", Version: "1.0", Type: pkg.BinaryPkg, Locations: at("/usr/bin/python"), PURL: "pkg:generic/python@1.0"},
		pkg.Package{Name: "gem", Version: "1.0", Type: pkg.GemPkg, Language: pkg.Ruby, Locations: at("/usr/lib/gem"), PURL: "pkg:gem/gem@1.0"},
		pkg.Package{Name: "example.org/tool", Version: "v1.0.0", Type: pkg.GoModulePkg, Language: pkg.Go, Locations: at("/usr/bin/tool"), PURL: "pkg:golang/example.org/tool@v1.0.0",
			Metadata: pkg.GolangBinaryBuildinfoEntry{MainModule: "example.org/tool", Architecture: "amd64", Symbols: map[string][]string{"example.org/tool": {"(*T).M", "T.M-fm", "F[...]"}, "empty": {}}}},
		pkg.Package{Name: "jar", Version: "1.0", Type: pkg.JavaPkg, Language: pkg.Java, Locations: at("/a.jar", "/copy/a.jar"), PURL: "pkg:maven/g/jar@1.0",
			Metadata: pkg.JavaArchive{VirtualPath: "/a.jar", PomProperties: &pkg.JavaPomProperties{GroupID: "g", ArtifactID: "jar"}, ArchiveDigests: []file.Digest{{Algorithm: "sha1", Value: "aa"}},
				Manifest: &pkg.JavaManifest{Main: pkg.KeyValues{{Key: "Name", Value: "n"}}}}},
		pkg.Package{Name: "openjdk", Version: "21", Type: pkg.BinaryPkg, Locations: at("/opt/jdk/release"),
			Metadata: pkg.JavaVMInstallation{Release: pkg.JavaVMRelease{JavaVersion: "21", FullVersion: "21+35"}, Files: []string{"/opt/jdk/bin/java"}}},
	)
	s.Artifacts.LinuxDistribution = release
	byName := map[string]pkg.Package{}
	for _, p := range s.Artifacts.Packages.Sorted() {
		byName[p.Name] = p
	}
	if overlap {
		for owner, owned := range map[string]string{"deb": "python", "rpm": "gem", "apk": "example.org/tool"} {
			s.Relationships = append(s.Relationships, artifact.Relationship{From: byName[owner], To: byName[owned], Type: artifact.OwnershipByFileOverlapRelationship})
		}
	}
	return s
}

// TestPackagesAreThoseOfGrype checks that the packages are those of Grype's own reader of the full SBOM. It tries every
// distribution, since that decides which packages belong to another one.
func TestPackagesAreThoseOfGrype(t *testing.T) {
	releases := []*linux.Release{nil, {ID: "unheard-of", VersionID: "1"}, {ID: "rhel", VersionID: "9.2", ExtendedSupport: true}, {ID: "like", IDLike: []string{"debian"}, VersionID: "1"}}
	for id := range distro.IDMapping {
		releases = append(releases, &linux.Release{ID: id, VersionID: "9"})
	}
	sizes := map[int]bool{}
	for _, release := range releases {
		for _, overlap := range []bool{true, false} {
			s := sample(release, overlap)
			want, about, _, err := grypepkg.Provide("sbom:"+write(t, syftjson.ToFormatModel(*s, syftjson.DefaultEncoderConfig())), provider)
			if err != nil {
				t.Fatal(err)
			}
			got, gotAbout, err := input.Open(write(t, input.Compact(s))).Packages(provider)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
				t.Errorf("%v, overlaps %t: packages (-Grype +got):\n%s", release, overlap, diff)
			}
			if fmt.Sprint(about.Distro) != fmt.Sprint(gotAbout.Distro) || about.DistroDetectionFailed != gotAbout.DistroDetectionFailed {
				t.Errorf("%v: distribution %v, want %v", release, gotAbout.Distro, about.Distro)
			}
			sizes[len(want)] = true
		}
	}
	if len(sizes) < 3 {
		t.Errorf("the distributions make no difference to the number of packages: %v", sizes)
	}
}

// TestEarlierInputsAreRead checks match inputs of the previous version, which have the architecture only in the package URL, and
// lists of files.
func TestEarlierInputsAreRead(t *testing.T) {
	path := writeRaw(t, `{"artifacts":[
		{"id":"a","name":"apk","version":"1-r0","type":"apk","locations":[{"path":"/installed","accessPath":"/installed"}],"licenses":[],"language":"","cpes":[],
			"purl":"pkg:apk/alpine/apk@1-r0?arch=x86_64&distro=alpine-3.18","metadataType":"apk-db-entry","metadata":{"package":"","originPackage":"o","files":[{"path":"/f"}]}},
		{"id":"r","name":"rpm","version":"1-1","type":"rpm","locations":[],"licenses":[],"language":"","cpes":[],
			"purl":"pkg:rpm/rocky/rpm@1-1?arch=aarch64","metadataType":"rpm-db-entry","metadata":{"name":"","sourceRpm":"src-1-1.src.rpm","files":null}}],
		"artifactRelationships":[],"source":{"id":"s","name":"","version":"","type":"","metadata":null},"distro":{"id":"alpine","versionID":"3.18.2"},
		"descriptor":{"name":"scanner-grype","version":"1"},"unknown":1e999,"schema":{"version":"16.1.3","url":"https://raw.githubusercontent.com/anchore/syft/main/schema/json/schema-16.1.3.json"}}`)
	got, about, err := input.Open(path).Packages(provider)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || about.Distro.String() != "alpine 3.18.2" {
		t.Fatalf("%d packages of %v, want 2 of alpine 3.18.2", len(got), about.Distro)
	}
	if diff := cmp.Diff([]any{grypepkg.ApkMetadata{Files: []grypepkg.ApkFileRecord{}, Arch: "x86_64"}, grypepkg.RpmMetadata{Arch: "aarch64"}}, []any{got[0].Metadata, got[1].Metadata}); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestPackagesRefuses(t *testing.T) {
	const end = `,"schema":{"version":"16.1.3","url":"https://raw.githubusercontent.com/anchore/syft/main/schema/json/schema-16.1.3.json"}}`
	for what, c := range map[string]struct{ document, want string }{
		"something else":           {`[]`, "expected {"},
		"another format":           {`{"artifacts":[]}`, "not syft-json"},
		"a truncated document":     {`{"artifacts":[{"id":"1"}`, "EOF"},
		"a missing end":            {strings.TrimSuffix(`{"artifacts":[]`+end, "}"), "EOF"},
		"another end":              {strings.TrimSuffix(`{"artifacts":[]`+end, "}") + "]", "invalid character"},
		"packages that are text":   {`{"artifacts":"many"` + end, "expected a list"},
		"packages without an id":   {`{"artifacts":[{"name":"a"}]` + end, "package a "},
		"the same id twice":        {`{"artifacts":[{"id":"1","name":"a"},{"id":"1","name":"b"}]` + end, `the id "1"`},
		"metadata of another kind": {`{"artifacts":[{"id":"1","name":"a","metadataType":"rpm-db-entry","metadata":[]}]` + end, "package a"},
	} {
		t.Run(what, func(t *testing.T) {
			_, _, err := input.Open(writeRaw(t, c.document)).Packages(provider)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// manyPackages writes a document of about the given number of bytes, with at most the given number of packages. If owned is true,
// each package is owned by the previous one.
func manyPackages(t *testing.T, bytes, most int, owned bool) (path string, packages int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "input.json")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var artifacts, relationships strings.Builder
	for packages < most && artifacts.Len()+relationships.Len() < bytes {
		if packages > 0 {
			artifacts.WriteString(",")
		}
		// The packages are in the order in which the worker writes them.
		fmt.Fprintf(&artifacts, `{"id":"%016x","name":"a%07[1]d","version":"1.0","type":"npm","locations":[{"path":"/app/node_modules/a%[1]d/package.json"}],`+
			`"language":"javascript","purl":"pkg:npm/a%07[1]d@1.0"}`, packages)
		if owned && packages > 0 {
			if packages > 1 {
				relationships.WriteString(",")
			}
			fmt.Fprintf(&relationships, `{"parent":"%016x","child":"%016x","type":"ownership-by-file-overlap"}`, packages-1, packages)
		}
		packages++
	}
	if _, err := io.WriteString(out, `{"artifacts":[`+artifacts.String()+`],"artifactRelationships":[`+relationships.String()+
		`],"distro":{"id":"debian","versionID":"12"},"schema":{"version":"16.1.3","url":"https://raw.githubusercontent.com/anchore/syft/main/schema/json/schema-16.1.3.json"}}`); err != nil {
		t.Fatal(err)
	}
	return path, packages
}

// TestDocumentsWithoutAMark: earlier workers stored documents without the mark of MarkForeign. Who made one follows from its packages.
func TestDocumentsWithoutAMark(t *testing.T) {
	const purl = "pkg:deb/debian/libssl3@3.0.9-1?distro=debian-12&upstream=openssl"
	located := file.NewLocationSet(file.NewLocation("/var/lib/dpkg/status"))
	for name, tt := range map[string]struct {
		id        artifact.ID
		locations file.LocationSet
		want      string
	}{
		"Syft's":                             {"", located, "<nil> []"},
		"Syft's, in CycloneDX":               {"pkg:deb/debian/libssl3@3.0.9-1?package-id=0123456789abcdef", located, "debian 12 [{openssl }]"},
		"another tool's":                     {"SPDXRef-libssl3", file.LocationSet{}, "debian 12 [{openssl }]"},
		"another tool's without IDs":         {"", file.LocationSet{}, "debian 12 [{openssl }]"},
		"another tool's IDs of the one form": {"0123456789abcdef", file.LocationSet{}, "debian 12 [{openssl }]"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pkg.Package{Name: "libssl3", Version: "3.0.9-1", Type: pkg.DebPkg, PURL: purl, Locations: tt.locations}
			p.SetID()
			if tt.id != "" {
				p.OverrideID(tt.id)
			}
			document := input.Compact(&sbom.SBOM{Artifacts: sbom.Artifacts{Packages: pkg.NewCollection(p)}})
			document.Descriptor.Configuration = nil
			packages, _, err := input.Open(write(t, document)).Packages(provider)
			if err != nil || len(packages) != 1 {
				t.Fatalf("%d packages, %v", len(packages), err)
			}
			if got := fmt.Sprint(packages[0].Distro, packages[0].Upstreams); got != tt.want {
				t.Errorf("distribution and source packages are %s, want %s", got, tt.want)
			}
		})
	}
}

func TestTooManyPackagesAreRefused(t *testing.T) {
	path, _ := manyPackages(t, workerapi.MaxMatchInputContentBytes, workerapi.MaxPackages+1, false)
	if _, _, err := input.Open(path).Packages(provider); err == nil || !strings.Contains(err.Error(), fmt.Sprint(workerapi.MaxPackages)) {
		t.Errorf("got %v, want an error that names the limit of %d packages", err, workerapi.MaxPackages)
	}
}

func TestTooManyRelationshipsAreRefused(t *testing.T) {
	one := `{"parent":"1","child":"2","type":"ownership-by-file-overlap"}`
	path := writeRaw(t, `{"artifactRelationships":[`+strings.Repeat(one+",", workerapi.MaxPackages)+one+`]}`)
	if _, _, err := input.Open(path).Packages(provider); err == nil || !strings.Contains(err.Error(), "belong to another one") {
		t.Errorf("got %v, want an error about packages that belong to another one", err)
	}
}

// TestReadingIsLinear checks that reading takes time and memory in proportion to the document, so that one image cannot occupy a
// worker. The bounds leave room for slow machines: each document takes about one second of processor time, and four are allowed.
// 512 MiB are half of what a match worker may use by default.
func TestReadingIsLinear(t *testing.T) {
	const longest = 4 * time.Second
	for what, c := range map[string]struct {
		owned  bool
		large  int
		memory uint64
	}{
		"packages":                            {false, 16 << 20, 512 << 20},
		"packages that belong to another one": {true, 4 << 20, 256 << 20},
	} {
		t.Run(what, func(t *testing.T) {
			small, large := measure(t, c.large/8, c.owned), measure(t, c.large, c.owned)
			t.Logf("%d MiB take %s and %d MiB of memory, an eighth of that %s", c.large>>20, large.cpu, large.heap>>20, small.cpu)
			// Quadratic time would be 64 times as long.
			if large.cpu > 24*small.cpu {
				t.Errorf("%d MiB take %s of computing time and an eighth of that %s, want about eight times as much", c.large>>20, large.cpu, small.cpu)
			}
			if large.cpu > longest {
				t.Errorf("%d MiB take %s of computing time, want %s at most", c.large>>20, large.cpu, longest)
			}
			if large.heap > c.memory {
				t.Errorf("%d MiB take %d MiB of memory, want %d at most", c.large>>20, large.heap>>20, c.memory>>20)
			}
		})
	}
}

type measured struct {
	// cpu is processor time, since the elapsed time depends on other processes.
	cpu  time.Duration
	heap uint64
}

func measure(t *testing.T, bytes int, owned bool) (m measured) {
	t.Helper()
	path, want := manyPackages(t, bytes, workerapi.MaxPackages, owned)
	runtime.GC()
	began := computed(t)
	got, _, err := input.Open(path).Packages(provider)
	m.cpu = computed(t) - began
	if err != nil || len(got) != want {
		t.Fatalf("%d packages, %v; want %d", len(got), err, want)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	m.heap = memory.HeapSys - memory.HeapReleased
	runtime.KeepAlive(got)
	return m
}

// computed returns the processor time of this process so far.
func computed(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
