package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// content is the content of an image without a program.
type content struct {
	// title is the image's title label.
	title string
	// directories maps directories in the image to directories of the release.
	directories map[string]string
	// labels returns the labels by which OLM recognises the image.
	labels func(release) (map[string]string, error)
}

// contents are the images without a program, by name. They are built for all platforms although their content is the same: a node
// refuses an image for another platform.
var contents = map[string]content{
	"scanner-operator-bundle": {
		title: "Scanner Operator: the bundle for OLM",
		directories: map[string]string{
			"/manifests": "bundle/manifests", "/metadata": "bundle/metadata", "/tests/scorecard": "bundle/tests/scorecard",
		},
		labels: release.bundleAnnotations,
	},
	// The image contains no server: OLM brings one (CatalogSource.spec.grpcPodConfig.extractContent), as OLM v1's catalogd does.
	"scanner-operator-catalog": {
		title:       "Scanner Operator: the catalog for OLM",
		directories: map[string]string{"/configs": "catalog"},
		labels: func(release) (map[string]string, error) {
			return map[string]string{"operators.operatorframework.io.index.configs.v1": "/configs"}, nil
		},
	},
}

// writePackaged builds one of the images without a program and adds it to images.json.
func (r release) writePackaged(name string) error {
	content, ok := contents[name]
	if !ok {
		return fmt.Errorf("%q is not an image without a program: use %s", name, strings.Join(packaged, " or "))
	}
	index, err := r.packagedIndex(content)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := build.Save(r.path("images", name), index); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	return r.addToRecord(name, digest)
}

func (r release) packagedIndex(content content) (v1.ImageIndex, error) {
	labels, err := content.labels(r)
	if err != nil {
		return nil, err
	}
	labels["org.opencontainers.image.title"] = content.title
	labels["org.opencontainers.image.version"] = r.version
	labels["org.opencontainers.image.source"] = source
	labels["org.opencontainers.image.licenses"] = "Apache-2.0"
	files := map[string]build.File{}
	for place, directory := range content.directories {
		if err := addFiles(files, place, r.path(directory)); err != nil {
			return nil, err
		}
	}
	images := make([]v1.Image, 0, len(platforms))
	for _, platform := range platforms {
		layer, err := build.Files(files)
		if err != nil {
			return nil, err
		}
		image, err := build.Image(build.Config{Platform: platform, Labels: labels}, layer)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return build.Index(images...)
}

// addFiles adds all files of a directory below the path place.
func addFiles(files map[string]build.File, place, directory string) error {
	return filepath.WalkDir(directory, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(directory, file)
		files[path.Join(place, filepath.ToSlash(relative))] = build.File{Content: content}
		return err
	})
}

// bundleAnnotations returns the annotations in the bundle's metadata. The bundle's image has them as labels, too.
func (r release) bundleAnnotations() (map[string]string, error) {
	text, err := os.ReadFile(r.path("bundle", "metadata", "annotations.yaml"))
	if err != nil {
		return nil, err
	}
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, err
	}
	if len(metadata.Annotations) == 0 {
		return nil, fmt.Errorf("annotations.yaml has no annotations")
	}
	return metadata.Annotations, nil
}

// addToRecord adds an image to images.json, in the same registry as the programs' images.
func (r release) addToRecord(name string, digest v1.Hash) error {
	record, err := r.record()
	if err != nil {
		return err
	}
	registry, _, found := strings.Cut(record[programs[0]], "/"+programs[0]+"@")
	if !found {
		return fmt.Errorf("%s does not say where images go", recordFile)
	}
	record[name] = fmt.Sprintf("%s/%s@%s", registry, name, digest)
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(recordFile), append(text, '\n'), 0o644)
}
