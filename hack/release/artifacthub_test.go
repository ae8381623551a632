package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// annotationOf decodes an annotation of the packaged chart.
func annotationOf[T any](t *testing.T, r release, name string) (value T) {
	t.Helper()
	metadata, _, err := r.chart()
	must(t, err)
	if err := yaml.UnmarshalStrict([]byte(metadata.Annotations[name]), &value); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, metadata.Annotations[name])
	}
	return value
}

// The packaged chart names the images by the release's digests, and keeps the annotations that Chart.yaml has.
func TestArtifactHubImages(t *testing.T) {
	r := complete(t)
	record, err := r.record()
	must(t, err)
	var want []hubImage
	for _, name := range programs {
		want = append(want, hubImage{Name: name, Image: record[name], Platforms: []string{"linux/amd64", "linux/arm64"}})
	}
	if diff := cmp.Diff(want, annotationOf[[]hubImage](t, r, annotationImages)); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	if got := annotationOf[string](t, r, "artifacthub.io/license"); got != "Apache-2.0" {
		t.Errorf("the license is %q", got)
	}
	for version, want := range map[string]string{"1.2.3": "false", "1.3.0-rc.1": "true"} {
		r.version = version
		write(t, filepath.Join(r.root, "CHANGELOG.md"), "## ["+version+"]\n\n- Now.\n")
		must(t, r.writeChart())
		if metadata, _, err := r.chart(); err != nil || metadata.Annotations[annotationPrerelease] != want {
			t.Errorf("%s: prerelease is %q, want %q (%v)", version, metadata.Annotations[annotationPrerelease], want, err)
		}
	}
}

// The changes are those of the change log, each as one line of plain text with its kind.
func TestArtifactHubChanges(t *testing.T) {
	r := complete(t)
	write(t, filepath.Join(r.root, "CHANGELOG.md"), `# Changelog

## [1.2.3]

The first.

### Added

- **Scanner**: watches the [pods of
  a namespace](docs/a.md).

### Fixed

- `+"`kubectl`"+` works.
`)
	must(t, r.writeChart())
	want := []hubChange{{"added", "Scanner: watches the pods of a namespace."}, {"fixed", "kubectl works."}}
	if diff := cmp.Diff(want, annotationOf[[]hubChange](t, r, annotationChanges)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	write(t, filepath.Join(r.root, "CHANGELOG.md"), "## [1.2.3]\n\n### News\n\n- Now.\n")
	if err := r.writeChart(); err == nil || !strings.Contains(err.Error(), `"News"`) {
		t.Errorf("a heading that Artifact Hub has no kind for is taken: %v", err)
	}
}

// The project's own chart: all kinds are described, and each kind that users write has an example.
func TestArtifactHubKinds(t *testing.T) {
	r, err := open(filepath.Join("..", ".."), t.TempDir())
	must(t, err)
	values, err := r.hubAnnotations(map[string]string{})
	must(t, err)
	var examples []string
	for _, example := range values[annotationExamples].([]map[string]any) {
		examples = append(examples, example["kind"].(string))
	}
	kinds := 0
	for _, crd := range values[annotationCRDs].([]hubCRD) {
		kinds++
		if crd.Description == "" || crd.Version == "" || !strings.HasSuffix(crd.Name, ".scanner-operator.io") {
			t.Errorf("%s is described by %+v", crd.Kind, crd)
		}
		if has := slices.Contains(examples, crd.Kind); has != (crd.Kind != "ImageScan") {
			t.Errorf("%s has an example: %t", crd.Kind, has)
		}
	}
	if kinds < 4 {
		t.Errorf("only %d kinds were found", kinds)
	}
	if len(values[annotationChanges].([]hubChange)) == 0 {
		t.Error("there are no changes")
	}
}

// Annotations can be added only at the end of the file.
func TestChartThatDoesNotEndWithAnnotationsIsRefused(t *testing.T) {
	r := complete(t)
	write(t, filepath.Join(r.root, "charts", chartName, "Chart.yaml"), "annotations:\n  a: b\nversion: 1.2.3\n")
	if err := r.writeChart(); err == nil || !strings.Contains(err.Error(), "annotations") {
		t.Errorf("was taken: %v", err)
	}
}
