package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

const (
	// pluginName is the program of the kubectl plugin, and pluginSource its directory in the sources.
	pluginName   = "kubectl-scanner"
	pluginSource = "cmd/kubectl-scanner"
	// completionScript is what kubectl runs to complete the plugin's arguments.
	completionScript = "kubectl_complete-scanner"
	// krewFile is the manifest for krew (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/). The one in the sources has no version and
	// no platforms.
	krewFile = "krew.yaml"
)

// pluginPlatforms are those that the plugin is released for.
var pluginPlatforms = []v1.Platform{
	{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}, {OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"},
	{OS: "windows", Architecture: "amd64"},
}

// krewManifest is a plugin in krew.
type krewManifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string     `json:"uri"`
	SHA256 string     `json:"sha256"`
	Bin    string     `json:"bin"`
	Files  []krewCopy `json:"files"`
}

type krewCopy struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// pluginProgram returns the name of the program on a platform.
func pluginProgram(platform v1.Platform) string {
	if platform.OS == "windows" {
		return pluginName + ".exe"
	}
	return pluginName
}

// pluginBinary returns the path of the program that is built for a platform.
func (r release) pluginBinary(platform v1.Platform) string {
	return r.path("plugin", platform.OS+"_"+platform.Architecture, pluginProgram(platform))
}

// pluginArchive returns the name of the archive for a platform.
func (r release) pluginArchive(platform v1.Platform) string {
	return strings.Join([]string{pluginName, r.version, platform.OS, platform.Architecture}, "_") + ".tar.gz"
}

// buildPlugin compiles the plugin for each platform, without anything of this machine in it.
func (r release) buildPlugin(ctx context.Context) error {
	dir, err := filepath.Abs(r.dir)
	if err != nil {
		return err
	}
	absolute := r
	absolute.dir = dir
	for _, platform := range pluginPlatforms {
		const version = "github.com/scanner-operator/scanner-operator/workerapi/version.Version"
		compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X "+version+"="+r.version,
			"-o", absolute.pluginBinary(platform), ".")
		compile.Dir = filepath.Join(r.root, pluginSource)
		compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
		if printed, err := compile.CombinedOutput(); err != nil {
			return fmt.Errorf("%s for %s: %w: %s", pluginName, platform, err, printed)
		}
	}
	return nil
}

// packPlugin writes the archive for each platform, and the manifest that names them.
func (r release) packPlugin() error {
	manifest, err := r.sourceKrewManifest()
	if err != nil {
		return err
	}
	manifest.Spec.Version = "v" + r.version
	for _, platform := range pluginPlatforms {
		archive, err := r.packPlatform(platform)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", pluginName, platform, err)
		}
		entry := krewPlatform{
			URI: source + "/releases/download/v" + r.version + "/" + r.pluginArchive(platform), SHA256: fmt.Sprintf("%x", sha256.Sum256(archive)),
			Bin: pluginProgram(platform), Files: []krewCopy{{From: pluginProgram(platform), To: "."}, {From: completionScript, To: "."}, {From: "LICENSE", To: "."}},
		}
		entry.Selector.MatchLabels = map[string]string{"os": platform.OS, "arch": platform.Architecture}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, entry)
	}
	content, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(krewFile), content, 0o644)
}

func (r release) sourceKrewManifest() (manifest krewManifest, err error) {
	content, err := os.ReadFile(filepath.Join(r.root, pluginSource, krewFile))
	if err != nil {
		return manifest, err
	}
	return manifest, yaml.UnmarshalStrict(content, &manifest)
}

// packPlatform writes the archive for a platform and returns its content. All times in it are fixed, as in images.
func (r release) packPlatform(platform v1.Platform) ([]byte, error) {
	program, err := os.ReadFile(r.pluginBinary(platform))
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	completion, err := os.ReadFile(filepath.Join(r.root, pluginSource, completionScript))
	if err != nil {
		return nil, err
	}
	layer, err := build.Files(map[string]build.File{
		"/" + pluginProgram(platform): {Content: program, Mode: 0o755}, "/LICENSE": {Content: license}, "/" + completionScript: {Content: completion, Mode: 0o755},
	})
	if err != nil {
		return nil, err
	}
	compressed, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	archive, err := io.ReadAll(compressed)
	if err = errors.Join(err, compressed.Close()); err != nil {
		return nil, err
	}
	return archive, os.WriteFile(r.path(r.pluginArchive(platform)), archive, 0o644)
}

// checkPlugin checks that krew would install from each archive a program that prints the version.
func (r release) checkPlugin(ctx context.Context) error {
	content, err := os.ReadFile(r.path(krewFile))
	if err != nil {
		return err
	}
	var manifest krewManifest
	if err := yaml.UnmarshalStrict(content, &manifest); err != nil {
		return fmt.Errorf("%s: %w", krewFile, err)
	}
	if manifest.Spec.Version != "v"+r.version {
		return fmt.Errorf("%s has version %s; VERSION has %s", krewFile, manifest.Spec.Version, r.version)
	}
	if limit := 50; len(manifest.Spec.ShortDescription) > limit {
		return fmt.Errorf("%s: the short description has more than the %d characters that krew allows", krewFile, limit)
	}
	var wrong []error
	for _, platform := range pluginPlatforms {
		if err := r.checkPluginPlatform(ctx, manifest, platform); err != nil {
			wrong = append(wrong, fmt.Errorf("%s for %s: %w", pluginName, platform, err))
		}
	}
	return errors.Join(wrong...)
}

func (r release) checkPluginPlatform(ctx context.Context, manifest krewManifest, platform v1.Platform) error {
	name := r.pluginArchive(platform)
	archive, err := os.ReadFile(r.path(name))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(manifest.Spec.Platforms, func(p krewPlatform) bool { return strings.HasSuffix(p.URI, "/v"+r.version+"/"+name) })
	if i < 0 {
		return fmt.Errorf("%s does not name %s", krewFile, name)
	}
	entry := manifest.Spec.Platforms[i]
	if sum := fmt.Sprintf("%x", sha256.Sum256(archive)); entry.SHA256 != sum {
		return fmt.Errorf("%s has the checksum %s; the archive has %s", krewFile, entry.SHA256, sum)
	}
	if labels := entry.Selector.MatchLabels; labels["os"] != platform.OS || labels["arch"] != platform.Architecture {
		return fmt.Errorf("%s offers it for %v", krewFile, labels)
	}
	for _, file := range entry.Files {
		if _, err := fromArchive(archive, file.From); err != nil {
			return fmt.Errorf("%s: %w", file.From, err)
		}
	}
	program, err := fromArchive(archive, entry.Bin)
	if err != nil {
		return err
	}
	if platform.OS != runtime.GOOS || platform.Architecture != runtime.GOARCH {
		return nil
	}
	return r.checkPrintedVersion(ctx, program)
}

// checkPrintedVersion runs a program of the plugin.
func (r release) checkPrintedVersion(ctx context.Context, program []byte) error {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, pluginName)
	if err := os.WriteFile(file, program, 0o700); err != nil {
		return err
	}
	printed, err := exec.CommandContext(ctx, file, "version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("version: %w: %s", err, printed)
	}
	if !strings.HasPrefix(string(printed), pluginName+" "+r.version+" (go") {
		return fmt.Errorf("it says %q; expected %s and no commit", strings.TrimSpace(string(printed)), r.version)
	}
	return nil
}

// fromArchive returns a file of an archive.
func fromArchive(archive []byte, name string) ([]byte, error) {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("file %s of the archive: %w", name, err)
		}
		if strings.TrimPrefix(header.Name, "/") == name {
			return io.ReadAll(files)
		}
	}
}
