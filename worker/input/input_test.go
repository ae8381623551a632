package input_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/anchore/syft/syft/artifact"
	"github.com/anchore/syft/syft/cpe"
	"github.com/anchore/syft/syft/file"
	"github.com/anchore/syft/syft/pkg"
	"github.com/anchore/syft/syft/sbom"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/scanner-operator/scanner-operator/worker/input"
)

func collection(packages ...pkg.Package) *sbom.SBOM {
	for i := range packages {
		packages[i].SetID()
	}
	return &sbom.SBOM{Artifacts: sbom.Artifacts{Packages: pkg.NewCollection(packages...)}}
}

// TestCompactMetadata checks that only the parts that matchers read of each kind of metadata are kept.
func TestCompactMetadata(t *testing.T) {
	epoch, module := 1, "m:1"
	for what, c := range map[string]struct{ in, want any }{
		"dpkg": {
			pkg.DpkgDBEntry{Package: "p", Source: "s", SourceVersion: "1", Version: "2", Files: []pkg.DpkgFileRecord{{Path: "/f"}}},
			pkg.DpkgDBEntry{Source: "s", SourceVersion: "1"},
		},
		"rpm": {
			pkg.RpmDBEntry{Name: "n", Epoch: &epoch, Arch: "x86_64", SourceRpm: "s", ModularityLabel: &module, Files: []pkg.RpmFileRecord{{Path: "/f"}}},
			pkg.RpmDBEntry{Epoch: &epoch, Arch: "x86_64", SourceRpm: "s", ModularityLabel: &module},
		},
		"apk": {
			pkg.ApkDBEntry{Package: "p", OriginPackage: "o", Architecture: "aarch64", Files: []pkg.ApkFileRecord{{Path: "/f", OwnerUID: "0"}}},
			pkg.ApkDBEntry{OriginPackage: "o", Architecture: "aarch64"},
		},
		"java": {
			pkg.JavaArchive{
				VirtualPath:   "/a.jar",
				Manifest:      &pkg.JavaManifest{Main: pkg.KeyValues{{Key: "Name", Value: "n"}, {Key: "Built-By", Value: "b"}}},
				PomProperties: &pkg.JavaPomProperties{GroupID: "g", ArtifactID: "a", Version: "1"},
				PomProject:    &pkg.JavaPomProject{URL: "u"},
			},
			pkg.JavaArchive{
				VirtualPath:   "/a.jar",
				Manifest:      &pkg.JavaManifest{Main: pkg.KeyValues{{Key: "Name", Value: "n"}}},
				PomProperties: &pkg.JavaPomProperties{GroupID: "g", ArtifactID: "a"},
			},
		},
		"go": {
			pkg.GolangBinaryBuildinfoEntry{MainModule: "m", Symbols: map[string][]string{"m/p": {"F"}}, BuildSettings: pkg.KeyValues{{Key: "k", Value: "v"}}},
			pkg.GolangBinaryBuildinfoEntry{MainModule: "m", Symbols: map[string][]string{"m/p": {"F"}}},
		},
		"a Java virtual machine": {
			pkg.JavaVMInstallation{Release: pkg.JavaVMRelease{JavaVersion: "21", Implementor: "i"}, Files: []string{"/f"}},
			pkg.JavaVMInstallation{Release: pkg.JavaVMRelease{JavaVersion: "21"}},
		},
		"python": {pkg.PythonPackage{Name: "p"}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			compact := input.Compact(collection(pkg.Package{Name: "p", Version: "1", Type: pkg.PythonPkg, Metadata: c.in}))
			if diff := cmp.Diff(c.want, compact.Artifacts[0].Metadata); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompactPackages(t *testing.T) {
	place := func(path, evidence string) file.Location {
		return file.NewLocation(path).WithAnnotation(pkg.EvidenceAnnotationKey, evidence)
	}
	places := file.NewLocationSet(place("/status", pkg.PrimaryEvidenceAnnotation), place("/copyright", pkg.SupportingEvidenceAnnotation))
	deb := pkg.Package{Name: "deb", Version: "1", Type: pkg.DebPkg, Locations: places, CPEs: []cpe.CPE{cpe.Must("cpe:2.3:a:x:y:1:*:*:*:*:*:*:*", "")},
		Licenses: pkg.NewLicenseSet(pkg.NewLicense("MIT"))}
	apk := pkg.Package{Name: "apk", Version: "1", Type: pkg.ApkPkg, Locations: places, CPEs: deb.CPEs}

	for _, p := range input.Compact(collection(deb, apk)).Artifacts {
		if len(p.Locations) != 1 || p.Locations[0].RealPath != "/status" || len(p.Licenses) != 0 {
			t.Errorf("%s: got locations %v, licences %v; want /status and nothing else", p.Name, p.Locations, p.Licenses)
		}
		// Alpine packages are matched by CPE, too.
		if want := map[string]int{"apk": 1}[p.Name]; len(p.CPEs) != want {
			t.Errorf("%s: got CPEs %v, want %d", p.Name, p.CPEs, want)
		}
	}
}

// TestCompactRelationships checks that only ownership is kept, with the IDs of the packages.
func TestCompactRelationships(t *testing.T) {
	owner, owned := pkg.Package{Name: "owner", Version: "1"}, pkg.Package{Name: "owned", Version: "1"}
	s := collection(owner, owned)
	var packages []pkg.Package
	for p := range s.Artifacts.Packages.Enumerate() {
		packages = append(packages, p)
	}
	s.Relationships = []artifact.Relationship{
		{From: packages[0], To: packages[1], Type: artifact.OwnershipByFileOverlapRelationship, Data: map[string]any{"files": []string{"/f"}}},
		{From: packages[0], To: packages[1], Type: artifact.DependencyOfRelationship},
		{From: packages[0], To: file.NewCoordinates("/f", ""), Type: artifact.ContainsRelationship},
	}
	got := input.Compact(s).ArtifactRelationships
	if len(got) != 1 || got[0].Parent != string(packages[0].ID()) || got[0].Child != string(packages[1].ID()) || got[0].Metadata != nil {
		t.Errorf("got %+v, want the ownership of %s by %s without the list of files", got, packages[1].ID(), packages[0].ID())
	}
}

func compressed(t *testing.T, content io.Reader) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	encoder, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(encoder, content); err != nil {
		t.Fatal(err)
	}
	if err := encoder.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

func TestReceive(t *testing.T) {
	dir := t.TempDir()
	received, err := input.Receive(compressed(t, strings.NewReader("{}")), dir)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(received.Path()); err != nil || string(raw) != "{}" {
		t.Errorf("received %q (%v), want {}", raw, err)
	}
	received.Remove()
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("%d files are left after Remove", len(entries))
	}
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestReceiveRefuses(t *testing.T) {
	whole := compressed(t, strings.NewReader(strings.Repeat("content ", 1000))).Bytes()
	for what, c := range map[string]struct {
		body io.Reader
		want string
	}{
		"more than a worker can bear": {compressed(t, io.LimitReader(zeros{}, input.MaxBytes+1)), fmt.Sprintf("larger than %d MiB", input.MaxBytes>>20)},
		"a truncated body":            {bytes.NewReader(whole[:len(whole)-5]), "unexpected EOF"},
		"a window of 64 MiB":          {bytes.NewReader([]byte{0x28, 0xB5, 0x2F, 0xFD, 0, (26 - 10) << 3, 1, 0, 0}), "window size exceeded"},
		"what is not compressed":      {strings.NewReader("{}"), "unpacking"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			_, err := input.Receive(c.body, dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("%d files are left", len(entries))
			}
		})
	}
}
