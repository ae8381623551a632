package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// chartName is the name of the chart and of the directory in its package.
const chartName = "scanner-operator"

// chartFile returns the path of the chart's package, with the name that Helm uses.
func (r release) chartFile() string { return r.path(chartName + "-" + r.version + ".tgz") }

// writeChart packages the chart with the images by digest, and with the annotations for Artifact Hub. "helm package" writes the current time into the package, so its packages
// always differ. Here all times are fixed, as in images.
func (r release) writeChart() error {
	record, err := r.record()
	if err != nil {
		return err
	}
	source := filepath.Join(r.root, "charts", chartName)
	files := map[string]build.File{}
	if err := addFiles(files, "/"+chartName, source); err != nil {
		return err
	}
	values := path.Join("/", chartName, "values.yaml")
	pinned, err := pinned(string(files[values].Content), record)
	if err != nil {
		return err
	}
	files[values] = build.File{Content: []byte(pinned)}
	metadata := path.Join("/", chartName, "Chart.yaml")
	annotated, err := r.withHubAnnotations(string(files[metadata].Content), record)
	if err != nil {
		return err
	}
	files[metadata] = build.File{Content: []byte(annotated)}
	layer, err := build.Files(files)
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	packaged, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return os.WriteFile(r.chartFile(), packaged, 0o644)
}

// pinned returns the text of values.yaml with the digests set. All other text, including comments, stays the same.
func pinned(values string, record map[string]string) (string, error) {
	for _, name := range programs {
		_, digest, found := strings.Cut(record[name], "@")
		if !found {
			return "", fmt.Errorf("%s names no digest of %s", recordFile, name)
		}
		place := regexp.MustCompile(`(\n *repository: ` + name + `\n(?: *#.*\n)* *digest: )""`)
		if count := len(place.FindAllString(values, -1)); count != 1 {
			return "", fmt.Errorf("values.yaml has %d places for the digest of %s (repository: %s, then digest: \"\"); expected one", count, name, name)
		}
		values = place.ReplaceAllString(values, `${1}"`+digest+`"`)
	}
	return values, nil
}

// chartMetadata holds the versions and the annotations in Chart.yaml.
type chartMetadata struct {
	Version     string            `json:"version"`
	AppVersion  string            `json:"appVersion"`
	Annotations map[string]string `json:"annotations"`
}

// chartValues holds the images in values.yaml.
type chartValues struct {
	Image map[string]any `json:"image"`
}

// chart reads the metadata and the values of the packaged chart.
func (r release) chart() (metadata chartMetadata, values chartValues, err error) {
	err = errors.Join(
		r.fromChart("Chart.yaml", &metadata),
		r.fromChart("values.yaml", &values),
	)
	return metadata, values, err
}

func (r release) fromChart(name string, into any) error {
	packaged, err := os.ReadFile(r.chartFile())
	if err != nil {
		return err
	}
	plain, err := gzip.NewReader(bytes.NewReader(packaged))
	if err != nil {
		return err
	}
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if err != nil {
			return fmt.Errorf("%s in %s: %w", name, r.chartFile(), err)
		}
		if header.Name != path.Join(chartName, name) {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		return yaml.Unmarshal(content, into)
	}
}
