// Command release runs the steps of a release; "make release-dry-run" runs them all. It works on the directory -dir, which contains
// images, manifests, chart and bundle.
//
//	release notes               print the section of CHANGELOG.md about the version
//	release chart               package charts/scanner-operator with the images by digest
//	release plugin              compile the kubectl plugin for each platform, and package it with a manifest for krew
//	release package IMAGE       build the image of the bundle or of the catalog, from bundle/ or catalog/
//	release checksums           write SHA256SUMS of all published files
//	release check [-again DIR]  report what is missing, differs or is wrong; DIR is a second build of the same sources.
//	                            With -tagged, the committed bundle must match these images, too
//	release platforms           write the image of each platform to platforms/
//	release push                push the images to the registry in images.json, or to -registry
//	release materials           print the reference of each platform's image by digest, and the file of its SBOM
//	release lock                write images.lock.yaml, from which the bundle is generated
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

// release is one release in a directory.
type release struct {
	// dir contains the artifacts, root the sources.
	dir, root string
	// version is the content of the file VERSION.
	version string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // nothing is left for the deferred stop to do
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("say what to do: release notes | chart | lock | plugin | package | checksums | check | platforms | push | materials [-dir bin/release]")
	}
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	dir := flags.String("dir", filepath.Join("bin", "release"), "directory of the release")
	again := flags.String("again", "", "check: directory of a second build, which must be equal")
	registry := flags.String("registry", "", "push, materials: another registry and path than images.json says")
	tagged := flags.Bool("tagged", false, "check: what is committed must name these images, as it must when a version is tagged")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	r, err := open(".", *dir)
	if err != nil {
		return err
	}
	switch args[0] {
	case "notes":
		text, err := r.notes()
		fmt.Fprint(out, text)
		return err
	case "chart":
		return r.writeChart()
	case "plugin":
		if err := r.buildPlugin(ctx); err != nil {
			return err
		}
		return r.packPlugin()
	case "package":
		return r.writePackaged(flags.Arg(0))
	case "checksums":
		return r.writeChecksums()
	case "check":
		return r.report(ctx, r.checks(*again, *tagged), out)
	case "platforms":
		return r.writePlatforms()
	case "push":
		return r.push(ctx, *registry, out)
	case "materials":
		return r.listSBOMs(*registry, out)
	case "lock":
		return r.writeLock()
	default:
		return fmt.Errorf("%q is not a command: use notes, chart, lock, plugin, package, checksums, check, platforms, push or materials", args[0])
	}
}

// open returns the release in dir, with the version of the sources below root.
func open(root, dir string) (release, error) {
	text, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		return release{}, fmt.Errorf("the version to release: %w", err)
	}
	return release{dir: dir, root: root, version: strings.TrimSpace(string(text))}, nil
}

// path returns the path of an artifact.
func (r release) path(parts ...string) string {
	return filepath.Join(append([]string{r.dir}, parts...)...)
}
