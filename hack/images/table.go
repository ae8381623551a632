package main

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// image is one of the project's images: a Go program on an empty base.
type image struct {
	name  string // below the registry's path
	dir   string // of the Go module
	pkg   string // of the command
	title string
}

// versionPackage holds the version variables that the linker sets.
const versionPackage = "github.com/scanner-operator/scanner-operator/workerapi/version"

// images are all images of the project. The Dockerfiles at the root describe the same builds.
var images = []image{
	{name: "scanner-operator", dir: ".", pkg: "./cmd/manager", title: "Scanner Operator: the manager"},
	{name: "scanner-notifier", dir: ".", pkg: "./cmd/notifier", title: "Scanner Operator: the notifier"},
	{name: "scanner-grype", dir: "worker", pkg: "./cmd/scanner-grype", title: "Scanner Operator: the Grype worker"},
}

// imagesNamed returns the images with the given names, or all images if names is empty. An unknown name is an error.
func imagesNamed(names []string) ([]image, error) {
	if len(names) == 0 {
		return images, nil
	}
	byName := map[string]image{}
	known := make([]string, 0, len(images))
	for _, i := range images {
		byName[i.name] = i
		known = append(known, i.name)
	}
	chosen := make([]image, 0, len(names))
	for _, name := range names {
		i, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("no image is called %q; there are: %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, i)
	}
	return chosen, nil
}

// build returns an image for one platform, or an index for several.
func (i image) build(ctx context.Context, chosen options) (build.Pushable, error) {
	built := make([]v1.Image, 0, len(chosen.platforms))
	for _, platform := range chosen.platforms {
		one, err := i.buildFor(ctx, platform, chosen)
		if err != nil {
			return nil, err
		}
		built = append(built, one)
	}
	if len(built) == 1 {
		return built[0], nil
	}
	return build.Index(built...)
}

func (i image) buildFor(ctx context.Context, platform v1.Platform, chosen options) (v1.Image, error) {
	base, err := build.Files(baseFiles())
	if err != nil {
		return nil, err
	}
	program := build.Program{Name: i.name, Dir: i.dir, Package: i.pkg, Variables: map[string]string{
		versionPackage + ".Version": chosen.version, versionPackage + ".Commit": chosen.commit,
	}}
	binary, err := build.Binary(ctx, program, platform)
	if err != nil {
		return nil, err
	}
	return build.Image(build.Config{
		Platform: platform, Entrypoint: []string{"/" + i.name}, Labels: i.labels(chosen.version, chosen.commit),
	}, base, binary)
}

// labels returns the predefined annotation keys of the OCI image specification.
func (i image) labels(version, commit string) map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":    i.title,
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.source":   "https://github.com/scanner-operator/scanner-operator",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if commit != "" {
		labels["org.opencontainers.image.revision"] = commit
	}
	return labels
}

// baseFiles are the only files that a static program may expect: a temporary directory, and a name for its user. Root certificates are
// compiled into the programs (golang.org/x/crypto/x509roots/fallback).
func baseFiles() map[string]build.File {
	return map[string]build.File{
		"/tmp":        {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		"/etc/passwd": {Content: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n")},
		"/etc/group":  {Content: []byte("root:x:0:\nnonroot:x:65532:\n")},
	}
}
