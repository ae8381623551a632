// Command images builds the project's images without Docker and pushes them to a registry.
//
//	images build [NAME…]   compile, and write the images to bin/images, one directory each
//	images push  [NAME…]   push the built images, print each name@digest and write them all to bin/images.json
//	images record [NAME…]  write bin/images.json as push does, without pushing
//	images overlay         write bin/deploy and bin/quickstart, kustomizations of config/default and config/quickstart with exactly the
//	                       images of bin/images.json
//
// Build and push take -version, build takes -platforms, -commit and -without-ui, the others take -registry, and all take -out. Without names, the
// commands process all images. Build and push are separate steps, since compiling may download modules and the local cluster's registry
// is in a network without internet access.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// options are the options and arguments of the command line.
type options struct {
	registry, version, commit, out string
	platforms                      []v1.Platform
	insecure                       []string
	withoutUI                      bool
	images                         []image
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1) //nolint:gocritic // nothing is left for the deferred stop to do
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do: images build | push | record | overlay [-registry host/path] [-version v] [NAME…]")
	}
	chosen, err := parse(args[1:])
	if err != nil {
		return err
	}
	switch args[0] {
	case "build":
		return buildAll(ctx, chosen)
	case "push":
		return recordAll(chosen, func(i image, saved build.Pushable) (name.Digest, error) {
			return build.Push(ctx, fmt.Sprintf("%s/%s:%s", chosen.registry, i.name, chosen.version), saved, chosen.insecure...)
		})
	case "record":
		return recordAll(chosen, func(i image, saved build.Pushable) (name.Digest, error) {
			digest, err := saved.Digest()
			if err != nil {
				return name.Digest{}, err
			}
			return name.NewDigest(fmt.Sprintf("%s/%s@%s", chosen.registry, i.name, digest), name.StrictValidation)
		})
	case "overlay":
		return writeOverlays(chosen.out, chosen.registry)
	default:
		return fmt.Errorf("%q is not a command: use build, push, record or overlay", args[0])
	}
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	chosen := options{}
	flags.StringVar(&chosen.registry, "registry", build.LocalRegistry+"/scanner-operator", "registry and path that images are pushed under")
	flags.StringVar(&chosen.version, "version", "dev", "version: the tag, and what the programs say about themselves")
	flags.StringVar(&chosen.commit, "commit", "", "commit: what the programs say they were made from; empty for a release, whose version says it")
	flags.BoolVar(&chosen.withoutUI, "without-ui", false, "build the manager also without the web UI, which make ui builds before")
	flags.StringVar(&chosen.out, "out", "bin", "directory for what is built")
	platforms := flags.String("platforms", "linux/amd64", "platforms, separated by commas; several make an index")
	insecure := flags.String("insecure", "", "registries that speak plain HTTP, separated by commas")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	for given := range strings.SplitSeq(*platforms, ",") {
		platform, err := v1.ParsePlatform(given)
		if err != nil {
			return options{}, fmt.Errorf("-platforms: %w", err)
		}
		chosen.platforms = append(chosen.platforms, *platform)
	}
	chosen.insecure = strings.FieldsFunc(*insecure, func(r rune) bool { return r == ',' })
	var err error
	chosen.images, err = imagesNamed(flags.Args())
	return chosen, err
}

func (o options) directory(i image) string { return filepath.Join(o.out, "images", i.name) }

// webUI is the document that the manager embeds.
const webUI = "ui/dist/index.html"

func buildAll(ctx context.Context, chosen options) error {
	isManager := func(i image) bool { return i.name == images[0].name }
	if _, err := os.Stat(webUI); err != nil && !chosen.withoutUI && slices.ContainsFunc(chosen.images, isManager) {
		return fmt.Errorf("the web UI is not built (%w): run make ui, or give -without-ui", err)
	}
	for number, i := range chosen.images {
		fmt.Printf("[%d/%d] building %s %s\n", number+1, len(chosen.images), i.name, chosen.version)
		built, err := i.build(ctx, chosen)
		if err != nil {
			return err
		}
		if err := build.Save(chosen.directory(i), built); err != nil {
			return fmt.Errorf("save %s: %w", i.name, err)
		}
	}
	return nil
}

// recordAll writes the reference by digest of each image to images.json, which maps image names to references and is the input of "make
// deploy". place pushes an image, or only computes its reference.
func recordAll(chosen options, place func(image, build.Pushable) (name.Digest, error)) error {
	record := filepath.Join(chosen.out, "images.json")
	pushed := recorded(record)
	for _, i := range chosen.images {
		saved, err := build.Load(chosen.directory(i))
		if err != nil {
			return err
		}
		digest, err := place(i, saved)
		if err != nil {
			return err
		}
		fmt.Println(digest)
		pushed[i.name] = digest.String()
	}
	content, err := json.MarshalIndent(pushed, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(record, append(content, '\n'), 0o644)
}

// recorded reads the record of earlier pushes, so that pushing one image keeps the others. An unreadable record counts as empty and is
// overwritten.
func recorded(file string) map[string]string {
	pushed := map[string]string{}
	content, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(content, &pushed) != nil {
		return map[string]string{}
	}
	return pushed
}
