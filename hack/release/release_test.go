package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

const repositoryPrefix = "ghcr.io/scanner-operator/"

// complete returns a release without problems, whose programs are shell scripts.
func complete(t *testing.T) release {
	t.Helper()
	dir := t.TempDir()
	r := release{dir: filepath.Join(dir, "release"), root: filepath.Join(dir, "sources"), version: "1.2.3"}
	write(t, filepath.Join(r.root, "CHANGELOG.md"), "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [1.2.3] - 2026-11-22\n\n- Now: [how](docs/how.md#so), [why](https://example.com/).\n\n## [1.2.2]\n\n- Before.\n")
	write(t, filepath.Join(r.root, "charts", chartName, "Chart.yaml"), "name: scanner-operator\nversion: 1.2.3\nappVersion: 1.2.3\nannotations:\n  artifacthub.io/license: Apache-2.0\n")
	write(t, filepath.Join(r.root, "charts", chartName, "values.yaml"), values)
	record := map[string]string{}
	for _, name := range programs {
		record[name] = saveImage(t, r, name, "1.2.3", "#!/bin/sh\necho '"+name+" 1.2.3 (go1.26)'\n")
	}
	writeRecord(t, r, record)
	references := ""
	for _, name := range programs {
		references += "image: " + record[name] + "\n"
		for _, platform := range platforms {
			write(t, r.path(sbomFile(name, platform.OS, platform.Architecture)),
				`{"spdxVersion": "SPDX-2.3", "packages": [{"name": "stdlib"}, {"name": "golang.org/x/crypto/x509roots/fallback"}]}`)
		}
	}
	write(t, r.path("install.yaml"), references)
	write(t, r.path("quickstart.yaml"), references)
	write(t, r.path("olm-policies.yaml"), "kind: ValidatingAdmissionPolicy\n")
	write(t, r.path("olm.yaml"), "kind: Subscription\n")
	write(t, r.path("olm-openshift.yaml"), "kind: Subscription\n")
	write(t, r.path("crds.yaml"), "kind: CustomResourceDefinition\n")
	write(t, r.path("bundle", "manifests", "x.clusterserviceversion.yaml"), "metadata: {name: scanner-operator.v1.2.3}\nspec:\n  version: 1.2.3\n"+references)
	write(t, r.path("bundle", "metadata", "annotations.yaml"), "annotations: {operators.operatorframework.io.bundle.package.v1: scanner-operator}\n")
	write(t, r.path("bundle", "tests", "scorecard", "config.yaml"), "stages: []\n")
	write(t, r.path("catalog", "scanner-operator", "catalog.yaml"), "schema: olm.package\n")
	for _, name := range packaged {
		must(t, r.writePackaged(name))
	}
	write(t, filepath.Join(r.root, "LICENSE"), "Apache License\n")
	write(t, filepath.Join(r.root, pluginSource, completionScript), "#!/bin/sh\n")
	write(t, filepath.Join(r.root, pluginSource, krewFile), "apiVersion: v1\nkind: Plugin\nmetadata: {name: scanner}\nspec: {shortDescription: Show it, platforms: []}\n")
	writePlugin(t, r, "1.2.3")
	write(t, r.path("RELEASE_NOTES.md"), "- Now.\n")
	write(t, r.path(checksumsFile+".sigstore.json"), "{}")
	must(t, r.writeChart())
	must(t, r.writeChecksums())
	return r
}

// writePlugin packages a plugin that prints a version, with its SBOMs.
func writePlugin(t *testing.T, r release, version string) {
	t.Helper()
	for _, platform := range pluginPlatforms {
		write(t, r.pluginBinary(platform), "#!/bin/sh\necho '"+pluginName+" "+version+" (go1.26)'\n")
		write(t, r.path(sbomFile(pluginName, platform.OS, platform.Architecture)), `{"spdxVersion": "SPDX-2.3"}`)
	}
	must(t, r.packPlugin())
}

const values = `# What users set.
image:
  registry: ghcr.io/scanner-operator
  manager:
    # Repository below the registry.
    repository: scanner-operator
    # Digest, as sha256:…
    digest: ""
  notifier:
    repository: scanner-notifier
    digest: ""
  worker:
    repository: scanner-grype
    digest: ""
`

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(content), 0o644))
}

func writeRecord(t *testing.T, r release, record map[string]string) {
	t.Helper()
	content, err := json.Marshal(record)
	must(t, err)
	write(t, r.path(recordFile), string(content))
}

// saveImage saves an image for all platforms in the release and returns its reference.
func saveImage(t *testing.T, r release, name, version, program string) string {
	t.Helper()
	images := make([]v1.Image, 0, len(platforms))
	for _, platform := range platforms {
		layer, err := build.Files(map[string]build.File{"/" + name: {Content: []byte(program), Mode: 0o755}})
		must(t, err)
		image, err := build.Image(build.Config{Platform: platform, Labels: map[string]string{"org.opencontainers.image.version": version}}, layer)
		must(t, err)
		images = append(images, image)
	}
	index, err := build.Index(images...)
	must(t, err)
	must(t, os.MkdirAll(r.path("images"), 0o755))
	must(t, build.Save(r.path("images", name), index))
	digest, err := index.Digest()
	must(t, err)
	return repositoryPrefix + name + "@" + digest.String()
}

func replace(t *testing.T, file, old, with string) {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(content), old) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	write(t, file, strings.ReplaceAll(string(content), old, with))
}

func TestCompleteReleasePasses(t *testing.T) {
	r := complete(t)
	var out bytes.Buffer
	if err := r.report(t.Context(), r.checks(r.dir, false), &out); err != nil {
		t.Errorf("want no complaint, got %v\n%s", err, out.String())
	}
}

func TestChecksFindProblems(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	tests := map[string]struct {
		spoil func(*testing.T, release)
		want  string
	}{
		"no manifest":        {func(t *testing.T, r release) { must(t, os.Remove(r.path("install.yaml"))) }, "missing: install.yaml"},
		"no signature":       {func(t *testing.T, r release) { must(t, os.Remove(r.path(checksumsFile+".sigstore.json"))) }, "missing: SHA256SUMS.sigstore.json"},
		"no bundle's image":  {func(t *testing.T, r release) { must(t, os.RemoveAll(r.path("images", "scanner-operator-bundle"))) }, "missing: images/scanner-operator-bundle"},
		"another image":      {func(t *testing.T, r release) { saveImage(t, r, "scanner-grype", "1.2.3", "#!/bin/sh\n") }, `images.json names "ghcr.io/scanner-operator/scanner-grype@`},
		"label of a version": {func(t *testing.T, r release) { saveImage(t, r, "scanner-grype", "1.2.2", "#!/bin/sh\n") }, `scanner-grype: label of version "1.2.2"`},
		"what a program says": {func(t *testing.T, r release) {
			saveImage(t, r, "scanner-grype", "1.2.3", "#!/bin/sh\necho 'scanner-grype 1.2.3 (commit a1b2, go1.26)'\n")
		}, "expected 1.2.3 and no commit"},
		"no plugin for a platform": {func(t *testing.T, r release) {
			must(t, os.Remove(r.path("kubectl-scanner_1.2.3_windows_amd64.tar.gz")))
		}, "missing: kubectl-scanner_1.2.3_windows_amd64.tar.gz"},
		"what the plugin says": {func(t *testing.T, r release) { writePlugin(t, r, "1.2.2") }, `it says "kubectl-scanner 1.2.2 (go1.26)"; expected 1.2.3`},
		"another plugin": {func(t *testing.T, r release) {
			write(t, r.path("kubectl-scanner_1.2.3_darwin_arm64.tar.gz"), "x")
		}, "kubectl-scanner for darwin/arm64: krew.yaml has the checksum"},
		"krew's version":  {func(t *testing.T, r release) { replace(t, r.path(krewFile), "version: v1.2.3", "version: v1.2.2") }, "krew.yaml has version v1.2.2"},
		"krew's platform": {func(t *testing.T, r release) { replace(t, r.path(krewFile), "os: windows", "os: plan9") }, "kubectl-scanner for windows/amd64: krew.yaml offers it for map[arch:amd64 os:plan9]"},
		"the manifest's image": {func(t *testing.T, r release) {
			replace(t, r.path("install.yaml"), "scanner-notifier@", "scanner-notifier:1.2.3@")
		}, `install.yaml says "ghcr.io/scanner-operator/scanner-notifier:1.2.3@`},
		"the quickstart's image": {func(t *testing.T, r release) {
			replace(t, r.path("quickstart.yaml"), "scanner-operator@", "scanner-operator:1.2.3@")
		}, `quickstart.yaml says "ghcr.io/scanner-operator/scanner-operator:1.2.3@`},
		"an image by its bare name": {func(t *testing.T, r release) {
			replace(t, r.path("install.yaml"), "image: "+repositoryPrefix+"scanner-operator@", "value: scanner-grype\nimage: "+repositoryPrefix+"scanner-operator@")
		}, `install.yaml says "value: scanner-grype"`},
		"the bundle's image": {func(t *testing.T, r release) {
			file := r.path("bundle", "manifests", "x.clusterserviceversion.yaml")
			write(t, file, "metadata: {name: scanner-operator.v1.2.3}\nspec: {version: 1.2.3}\nimage: "+repositoryPrefix+"scanner-operator@"+digest)
		}, "the ClusterServiceVersion says"},
		"the bundle's version": {func(t *testing.T, r release) {
			replace(t, r.path("bundle", "manifests", "x.clusterserviceversion.yaml"), "v1.2.3", "v1.2.2")
		}, "the ClusterServiceVersion scanner-operator.v1.2.2 has version 1.2.3"},
		"the chart's version": {func(t *testing.T, r release) {
			replace(t, filepath.Join(r.root, "charts", chartName, "Chart.yaml"), "appVersion: 1.2.3", "appVersion: 1.2.2")
			must(t, r.writeChart())
		}, "appVersion 1.2.2; VERSION has 1.2.3"},
		"the chart's image": {func(t *testing.T, r release) {
			record, err := r.record()
			must(t, err)
			record["scanner-operator"] = repositoryPrefix + "scanner-operator@" + digest
			old := r.path(recordFile)
			kept, err := os.ReadFile(old)
			must(t, err)
			writeRecord(t, r, record)
			must(t, r.writeChart())
			write(t, old, string(kept))
		}, "values.yaml says ghcr.io/scanner-operator/scanner-operator@" + digest},
		"no word in the change log": {func(t *testing.T, r release) {
			replace(t, filepath.Join(r.root, "CHANGELOG.md"), "[1.2.3]", "[1.2.4]")
		}, "CHANGELOG.md says nothing of version 1.2.3"},
		"an empty bill of materials": {func(t *testing.T, r release) {
			write(t, r.path("sbom", "scanner-grype_linux_arm64.spdx.json"), `{"spdxVersion": "SPDX-2.3"}`)
		}, "scanner-grype_linux_arm64.spdx.json: 0 packages"},
		"a file changed after its checksum": {func(t *testing.T, r release) { replace(t, r.path("crds.yaml"), "kind", "Kind") }, "SHA256SUMS was not written last"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := complete(t)
			test.spoil(t, r)
			var out bytes.Buffer
			if err := r.report(t.Context(), r.checks("", false), &out); err == nil || !strings.Contains(out.String(), test.want) {
				t.Errorf("want a complaint with %q, got %v and\n%s", test.want, err, out.String())
			}
		})
	}
}

func TestSecondBuildThatDiffersIsFound(t *testing.T) {
	r, second := complete(t), complete(t)
	replace(t, second.path("crds.yaml"), "kind", "Kind")
	if err := r.same(second); err == nil || !strings.Contains(err.Error(), "crds.yaml differs") || strings.Contains(err.Error(), "install.yaml") {
		t.Errorf("want a complaint about crds.yaml alone, got %v", err)
	}
}

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	notes, err := complete(t).notes()
	if err != nil || notes != "- Now: [how]("+source+"/blob/v1.2.3/docs/how.md#so), [why](https://example.com/).\n" {
		t.Errorf("want the section of 1.2.3 and nothing else, with links that lead somewhere, got %q (%v)", notes, err)
	}
}

func TestPackagedChartKeepsCommentsAndHasFixedTimes(t *testing.T) {
	packaged, err := os.ReadFile(complete(t).chartFile())
	must(t, err)
	plain, err := gzip.NewReader(bytes.NewReader(packaged))
	must(t, err)
	archive := tar.NewReader(plain)
	for header, err := archive.Next(); err == nil; header, err = archive.Next() {
		if header.ModTime.Unix() != 1 {
			t.Errorf("%s has the time %s: the package would differ each time", header.Name, header.ModTime)
		}
		if header.Name != "scanner-operator/values.yaml" {
			continue
		}
		content, err := io.ReadAll(archive)
		must(t, err)
		if !strings.Contains(string(content), "# What users set.") || strings.Contains(string(content), `digest: ""`) {
			t.Errorf("want comments and all digests in\n%s", content)
		}
	}
}

func TestChartWithoutAPlaceForADigestIsRefused(t *testing.T) {
	record := map[string]string{}
	for _, name := range programs {
		record[name] = repositoryPrefix + name + "@sha256:" + strings.Repeat("a", 64)
	}
	for what, text := range map[string]string{
		"none": strings.Replace(values, "repository: scanner-grype", "repository: another", 1),
		"two":  fmt.Sprintf("%s\n%s", values, values),
	} {
		if _, err := pinned(text, record); err == nil {
			t.Errorf("%s: was taken", what)
		}
	}
}

func TestLockHoldsThePrograms(t *testing.T) {
	r := complete(t)
	must(t, r.writeLock())
	content, err := os.ReadFile(r.path(lockFile))
	must(t, err)
	var locked lock
	must(t, yaml.UnmarshalStrict(content, &locked))
	if want := "2026-11-22T00:00:00Z"; locked.Created != want {
		t.Errorf("want the day in the change log, %s, got %s", want, locked.Created)
	}
	record, err := r.record()
	must(t, err)
	if len(locked.Images) != len(programs) {
		t.Errorf("want %v in the lock file and nothing else, got %v", programs, locked.Images)
	}
	for _, name := range programs {
		if locked.Images[name] == "" || locked.Images[name] != record[name] {
			t.Errorf("%s: want %s in the lock file, got %q", name, record[name], locked.Images[name])
		}
	}
}

func TestTaggedReleaseHasItsImagesInTheCommittedBundle(t *testing.T) {
	r := complete(t)
	must(t, r.writeLock())
	if err := r.checkCommittedLock(t.Context()); err == nil {
		t.Error("nothing is committed, and that was taken")
	}
	content, err := os.ReadFile(r.path(lockFile))
	must(t, err)
	write(t, filepath.Join(r.root, committedLock), string(content))
	must(t, r.checkCommittedLock(t.Context()))
	replace(t, filepath.Join(r.root, committedLock), "sha256:", "sha256:0")
	if err := r.checkCommittedLock(t.Context()); err == nil || !strings.Contains(err.Error(), "make release-lock") {
		t.Errorf("want advice to run make release-lock, got %v", err)
	}
}

func TestVersionThatIsNotReleasedHasNoDay(t *testing.T) {
	r := complete(t)
	replace(t, filepath.Join(r.root, "CHANGELOG.md"), "2026-11-22", "Unreleased")
	if created, err := r.created(); err != nil || created != "1970-01-01T00:00:00Z" {
		t.Errorf("want the same day whenever it is built, got %s (%v)", created, err)
	}
}

func TestPushedIsWhatWasChecked(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	place := strings.TrimPrefix(server.URL, "http://") + "/tried"
	r := complete(t)
	var out bytes.Buffer
	must(t, r.push(t.Context(), place, &out))
	record, err := r.record()
	must(t, err)
	for name, reference := range record {
		if want := place + strings.TrimPrefix(reference, "ghcr.io/scanner-operator"); !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%s: want %s pushed, got\n%s", name, want, out.String())
		}
	}
	saveImage(t, r, "scanner-grype", "1.2.3", "#!/bin/sh\n")
	if err := r.push(t.Context(), place, io.Discard); err == nil || !strings.Contains(err.Error(), "scanner-grype has the digest") {
		t.Errorf("another image than the one that was checked: want it refused, got %v", err)
	}
}

func TestBundleImageHoldsTheBundleAndItsAnnotations(t *testing.T) {
	r := complete(t)
	index, err := r.index("scanner-operator-bundle")
	must(t, err)
	image, err := imageFor(index, v1.Platform{OS: "linux", Architecture: "arm64"})
	must(t, err)
	file, err := image.ConfigFile()
	must(t, err)
	if got := file.Config.Labels["operators.operatorframework.io.bundle.package.v1"]; got != "scanner-operator" {
		t.Errorf("want the bundle's annotations as labels, got %v", file.Config.Labels)
	}
	for _, place := range []string{"manifests/x.clusterserviceversion.yaml", "metadata/annotations.yaml", "tests/scorecard/config.yaml"} {
		if err := extract(image, place, filepath.Join(t.TempDir(), "file")); err != nil {
			t.Errorf("want %s in the image: %v", place, err)
		}
	}
}

func TestPlatformsAreImagesByThemselves(t *testing.T) {
	r := complete(t)
	must(t, r.writePlatforms())
	for _, platform := range platforms {
		saved, err := build.Load(r.path("platforms", "scanner-grype_"+platform.OS+"_"+platform.Architecture))
		must(t, err)
		image, ok := saved.(v1.Image)
		if !ok {
			t.Fatalf("%s: want an image, got %T", platform, saved)
		}
		file, err := image.ConfigFile()
		must(t, err)
		if file.Architecture != platform.Architecture {
			t.Errorf("want an image for %s, got one for %s", platform, file.Architecture)
		}
	}
}
