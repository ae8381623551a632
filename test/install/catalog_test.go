package install

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// bundle is one version of the operator in the form that OLM installs.
type bundle struct {
	// tree is the checkout that the bundle is generated from.
	tree, version string
	// dir contains the files of the bundle. image is the reference by digest of its image.
	dir, image string
}

// csv is the name of the bundle's ClusterServiceVersion.
func (b bundle) csv() string { return "scanner-operator.v" + b.version }

// work returns a path below the directory for the files of the OLM tests, below bin.
func work(parts ...string) string {
	return filepath.Join(append([]string{env.Root, "bin", "install"}, parts...)...)
}

// makeBundle generates a bundle of a checkout and pushes it. The bundle replaces the named version, if any.
func makeBundle(t *testing.T, tree, version string, operator map[string]string, replaces string) bundle {
	t.Helper()
	made := bundle{tree: tree, version: version, dir: work("bundle-" + version)}
	must(t, os.RemoveAll(made.dir))
	must(t, os.MkdirAll(work(), 0o755))
	release, err := yaml.Marshal(map[string]any{"created": time.Now().UTC().Format(time.RFC3339), "images": operator})
	must(t, err)
	must(t, os.WriteFile(made.dir+"-images.yaml", release, 0o644))
	args := []string{"generate", "-tree", tree, "-images", made.dir + "-images.yaml", "-version", version, "-out", made.dir, "-replaces", replaces}
	run(t, "bundle", args...)
	made.image = pushDirectory(t, "demo-infra/bundle-"+version, made.dir, labels(t, made.dir))
	return made
}

// labels returns the labels of the bundle's image, which are its annotations.
func labels(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "metadata", "annotations.yaml"))
	must(t, err)
	var metadata struct{ Annotations map[string]string }
	must(t, yaml.Unmarshal(text, &metadata))
	return metadata.Annotations
}

// run runs a program of bin and returns its standard output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(env.Root, "bin", name), args...)
	command.Dir = env.Root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(printed)
}

// pushDirectory pushes an image that contains only the files of a directory.
func pushDirectory(t *testing.T, name, dir string, labels map[string]string) string {
	t.Helper()
	layer := layerOf(t, map[string]string{"/": dir})
	image, err := build.Image(build.Config{Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Labels: labels}, layer)
	must(t, err)
	reference, err := env.Push(t.Context(), name, image)
	must(t, err)
	return reference
}

// layerOf returns a layer with directories of this machine at the given paths. The modes are kept, since a catalog's cache counts as
// changed when modes differ.
func layerOf(t *testing.T, dirs map[string]string) v1.Layer {
	t.Helper()
	files := map[string]build.File{}
	for target, dir := range dirs {
		must(t, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			below, err := filepath.Rel(dir, name)
			if err != nil || path.Join(target, below) == "/" {
				return err
			}
			file := build.File{Mode: info.Mode()}
			if !entry.IsDir() {
				file.Content, err = os.ReadFile(name)
			}
			files[path.Join(target, below)] = file
			return err
		}))
	}
	layer, err := build.Files(files)
	must(t, err)
	return layer
}

// publishCatalog serves a catalog of bundles in the cluster instead of the earlier one. Its image contains opm, the catalog and its
// cache, as from a catalog's Dockerfile.
func publishCatalog(t *testing.T, bundles ...bundle) {
	t.Helper()
	configs, cache := work("configs"), work("cache")
	must(t, os.RemoveAll(configs))
	must(t, os.RemoveAll(cache))
	args := []string{"catalog", "-out", filepath.Join(configs, "scanner-operator")}
	for _, b := range bundles {
		args = append(args, b.dir+"="+b.image)
	}
	run(t, "bundle", args...)
	run(t, "opm", "validate", configs)
	run(t, "opm", "serve", configs, "--cache-dir="+cache, "--cache-only")
	opm, err := images.Load(scenario.ImagesDir(env.Root), images.OPM)
	must(t, err)
	catalog, err := mutate.AppendLayers(opm, layerOf(t, map[string]string{images.CatalogDir: configs, images.CatalogCache: cache}))
	must(t, err)
	reference, err := env.Push(t.Context(), "demo-infra/catalog", catalog)
	must(t, err)
	apply(t, "catalogsource.yaml", map[string]string{"Image": reference})
	must(t, wait.Eventually(t.Context(), 3*time.Minute, wait.Normally, func(ctx context.Context) error { return catalogServes(ctx, reference) }))
}
