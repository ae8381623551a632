package images

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

//go:embed files
var embedded embed.FS

// maxDatabase bounds the size of an unpacked package database, in bytes.
const maxDatabase = 16 << 20

// Places holds the directories of a build.
type Places struct {
	// Root is the project's directory.
	Root string
	// Cache is the directory of downloads, shared by all checkouts of the project.
	Cache string
	// Out is the directory for the built images, one directory each.
	Out string
}

// Compile builds the named images for a platform. It calls progress before each image.
func Compile(ctx context.Context, names []string, places Places, platform v1.Platform, progress func(name string, number, of int)) error {
	for i, name := range names {
		progress(name, i+1, len(names))
		d, err := find(name)
		if err != nil {
			return err
		}
		image, err := d.build(ctx, places, platform)
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		if err := build.Save(directory(places.Out, name), image); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return nil
}

// Load reads an image that Compile has written below out.
func Load(out, name string) (v1.Image, error) {
	if _, err := find(name); err != nil {
		return nil, err
	}
	saved, err := build.Load(directory(out, name))
	if err != nil {
		return nil, err
	}
	image, ok := saved.(v1.Image)
	if !ok {
		return nil, fmt.Errorf("%s holds an index; expected an image for one platform", directory(out, name))
	}
	return image, nil
}

func directory(out, name string) string {
	return filepath.Join(out, strings.ReplaceAll(name, "/", "_"))
}

// build returns the image: the layer of the distribution below the layers of the programs.
func (d definition) build(ctx context.Context, places Places, platform v1.Platform) (v1.Image, error) {
	if len(d.packages) > 0 {
		return d.buildFromPackages(ctx, places.Cache, platform)
	}
	files, err := distributionFiles(d.distribution)
	if err != nil {
		return nil, err
	}
	if len(d.bin) > 0 {
		files["/bin/"+d.programName()] = build.File{Link: "/" + d.programName()}
	}
	if len(d.upgrades) > 0 {
		status := packageDatabases[d.distribution].path
		files[status] = build.File{Content: upgrade(files[status].Content, d.upgrades)}
	}
	base, err := build.Files(files)
	if err != nil {
		return nil, err
	}
	layers := []v1.Layer{base}
	for _, program := range d.programs(places.Root) {
		layer, err := build.Binary(ctx, program, platform)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	entrypoint := append([]string{"/" + d.programName()}, d.args...)
	return build.Image(build.Config{Platform: platform, Entrypoint: entrypoint}, layers...)
}

func (d definition) programName() string { return cmp.Or(d.program, path.Base(d.name)) }

// programs returns all programs that are compiled into the image.
func (d definition) programs(root string) []build.Program {
	var env []string
	if d.tags != "" {
		env = []string{"GOFLAGS=-tags=" + d.tags}
	}
	programs := []build.Program{{Name: d.programName(), Dir: filepath.Join(root, d.dir), Package: d.pkg, Env: env}}
	for _, t := range d.bin {
		programs = append(programs, build.Program{Name: path.Join("bin", t.name), Dir: filepath.Join(root, t.dir), Package: t.pkg, Env: env})
	}
	return programs
}

// distributionFiles returns the files by which scanners identify a distribution and its packages. Without a distribution, there is only
// the directory /tmp, which programs expect.
func distributionFiles(distribution string) (map[string]build.File, error) {
	files := map[string]build.File{"/tmp": {Mode: directoryMode | 0o777}}
	if distribution == "" {
		return files, nil
	}
	release, err := embedded.ReadFile("files/" + distribution + "/os-release")
	if err != nil {
		return nil, err
	}
	database := packageDatabases[distribution]
	content, err := embedded.ReadFile("files/" + distribution + "/" + database.file)
	if err != nil {
		return nil, err
	}
	if path.Ext(database.file) == ".gz" {
		if content, err = unpack(content); err != nil {
			return nil, fmt.Errorf("%s: %w", database.file, err)
		}
	}
	files["/etc/os-release"] = build.File{Content: release}
	files[database.path] = build.File{Content: content}
	for _, dir := range database.beside {
		files[dir] = build.File{Mode: directoryMode}
	}
	return files, nil
}

// upgrade replaces versions in dpkg's status file. versions maps source packages to versions. A package without a Source field is its
// own source package.
func upgrade(status []byte, versions map[string]string) []byte {
	packages := bytes.Split(status, []byte("\n\n"))
	for i, pkg := range packages {
		fields := map[string]string{}
		for line := range bytes.Lines(pkg) {
			if name, value, found := strings.Cut(strings.TrimSuffix(string(line), "\n"), ": "); found {
				fields[name] = value
			}
		}
		source, _, _ := strings.Cut(cmp.Or(fields["Source"], fields["Package"]), " ")
		if version := versions[source]; version != "" {
			packages[i] = bytes.Replace(pkg, []byte("\nVersion: "+fields["Version"]), []byte("\nVersion: "+version), 1)
		}
	}
	return bytes.Join(packages, []byte("\n\n"))
}

func unpack(packed []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(reader, maxDatabase))
}
