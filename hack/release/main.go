// Command release helps to make a release; "make release-dry-run" shows the whole. It works on the directory that -dir names,
// in which images, manifests, chart and bundle are.
//
//	release notes               print what CHANGELOG.md says of the version
//	release chart               package charts/scanner-operator with the images by digest
//	release package IMAGE       make the image of the bundle or of the catalog, of what lies in bundle/ or catalog/
//	release checksums           write SHA256SUMS of everything that is published as a file
//	release check [-again DIR]  say what is missing, differs or is wrong; DIR is a second build of the same sources.
//	                            With -tagged, the committed bundle must be that of these images, too
//	release platforms           write the image of each platform by itself to platforms/
//	release push                push the images to where images.json says, or to -registry
//	release materials           print the reference of each platform's image by digest, and the file of its bill of materials
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

// release is one release, as it lies in a directory.
type release struct {
	// dir is where its artefacts are, and root where its sources are.
	dir, root string
	// version is that of the file VERSION.
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
		return errors.New("say what to do: release notes | chart | lock | package | checksums | check | platforms | push | materials [-dir bin/release]")
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
		return r.listMaterials(*registry, out)
	case "lock":
		return r.writeLock()
	default:
		return fmt.Errorf("%q is not a command: use notes, chart, lock, package, checksums, check, platforms, push or materials", args[0])
	}
}

// open reads the version that the sources below root have.
func open(root, dir string) (release, error) {
	text, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		return release{}, fmt.Errorf("the version to release: %w", err)
	}
	return release{dir: dir, root: root, version: strings.TrimSpace(string(text))}, nil
}

// path is that of an artefact.
func (r release) path(parts ...string) string {
	return filepath.Join(append([]string{r.dir}, parts...)...)
}
