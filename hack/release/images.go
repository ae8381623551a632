package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// programs are the images that contain a program. packaged are the images with files about the operator: OLM's bundle and catalog.
var (
	programs = []string{"scanner-operator", "scanner-notifier", "scanner-grype"}
	packaged = []string{"scanner-operator-bundle", "scanner-operator-catalog"}
)

// platforms are the platforms of every image.
var platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}

const (
	recordFile = "images.json"
	// lockFile is the input from which the bundle is generated. The one for the version in VERSION is under version control.
	lockFile      = "images.lock.yaml"
	committedLock = "config/manifests/images.yaml"
)

// record returns the reference by digest of each image, by name.
func (r release) record() (map[string]string, error) {
	return readRecord(r.path(recordFile))
}

func readRecord(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	record := map[string]string{}
	if err := json.Unmarshal(content, &record); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return record, nil
}

// lock is the part of a release that the bundle depends on. It does not contain the bundle's own image, which is built from the lock.
type lock struct {
	// Created is the day of the release, in RFC 3339.
	Created string `json:"created"`
	// Images maps image names to references by digest.
	Images map[string]string `json:"images"`
}

func (r release) writeLock() error {
	record, err := r.record()
	if err != nil {
		return err
	}
	created, err := r.created()
	if err != nil {
		return err
	}
	locked := lock{Created: created, Images: map[string]string{}}
	for _, name := range programs {
		if locked.Images[name] = record[name]; locked.Images[name] == "" {
			return fmt.Errorf("%s names no image %s", r.path(recordFile), name)
		}
	}
	content, err := yaml.Marshal(locked)
	if err != nil {
		return err
	}
	text := "# Written by \"make release-lock\": the images of the version in VERSION.\n" + string(content)
	return os.WriteFile(r.path(lockFile), []byte(text), 0o644)
}

// index returns an image of the release's directory, for all platforms.
func (r release) index(name string) (v1.ImageIndex, error) {
	saved, err := build.Load(r.path("images", name))
	if err != nil {
		return nil, err
	}
	index, ok := saved.(v1.ImageIndex)
	if !ok {
		return nil, errors.New("an image of one platform, and not an index of several")
	}
	return index, nil
}

// imageFor returns the image for a platform of an index.
func imageFor(index v1.ImageIndex, platform v1.Platform) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, one := range manifest.Manifests {
		if one.Platform != nil && one.Platform.Satisfies(platform) {
			return index.Image(one.Digest)
		}
	}
	return nil, fmt.Errorf("no image for %s", platform)
}

// writePlatforms writes the image of each platform to platforms/NAME_OS_ARCHITECTURE, since Syft cannot read an index of several.
func (r release) writePlatforms() error {
	for _, name := range programs {
		index, err := r.index(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, platform := range platforms {
			image, err := imageFor(index, platform)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			to := r.path("platforms", name+"_"+platform.OS+"_"+platform.Architecture)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := build.Save(to, image); err != nil {
				return err
			}
		}
	}
	return nil
}

// printedVersion runs the program of an image with --version. It supports only the platform of this machine.
func printedVersion(ctx context.Context, index v1.ImageIndex, name string) (string, error) {
	image, err := imageFor(index, v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH})
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, name)
	if err := extract(image, name, program); err != nil {
		return "", err
	}
	printed, err := exec.CommandContext(ctx, program, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", name, err, printed)
	}
	return string(printed), nil
}

// extract writes the file /name of an image to an executable file.
func extract(image v1.Image, name, to string) error {
	files := mutate.Extract(image)
	defer files.Close()
	archive := tar.NewReader(files)
	for {
		header, err := archive.Next()
		if err != nil {
			return fmt.Errorf("file /%s of the image: %w", name, err)
		}
		if header.Name != name {
			continue
		}
		file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, archive)
		return errors.Join(err, file.Close())
	}
}
