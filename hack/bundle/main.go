// Command bundle makes what the Operator Lifecycle Manager installs, from the same manifests as every other installer.
//
//	bundle generate            write a bundle: manifests, metadata, scorecard configuration, and the Dockerfile beside them
//	bundle catalog DIR=IMAGE…  write a file-based catalog of bundles, each with the image that holds it
//	bundle policies            print the admission policies, which a bundle cannot carry
//	bundle submission          write what a pull request to a community catalog adds
//
// All that is in a bundle comes from config/default, config/crd/bases and config/samples of a checkout (-tree), which may be
// an older one; what only a person can write stands in config/manifests. The same input gives the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"
)

// packageName is what catalogs call the operator.
const packageName = "scanner-operator"

func main() {
	logrus.SetLevel(logrus.WarnLevel) // the registry's library says which optional files there are not
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

// commands by name.
var commands = map[string]func(options) error{
	"generate":   generate,
	"catalog":    writeCatalog,
	"policies":   printPolicies,
	"submission": writeSubmission,
}

func run(args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("say what to do: bundle generate | catalog DIR=IMAGE… | policies | submission")
	}
	chosen, err := parse(args[1:])
	if err != nil {
		return err
	}
	return commands[args[0]](chosen)
}

// options are what the command line says.
type options struct {
	tree           string   // checkout with config/default, config/crd/bases, config/samples
	manifests      string   // directory of what people write: config/manifests
	images         string   // file that names the images by digest
	version        string   // of the bundle
	channels       []string // that the bundle is in
	defaultChannel string
	replaces       string // name of the CSV that this one follows
	namespace      string // that the policies are for
	reviewers      string // of a submission
	out            string
	args           []string
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("bundle", flag.ContinueOnError)
	var o options
	flags.StringVar(&o.tree, "tree", ".", "checkout whose config/default is bundled")
	flags.StringVar(&o.manifests, "manifests", filepath.Join("config", "manifests"), "directory of the hand-written part of the bundle")
	flags.StringVar(&o.images, "images", "", "file with the digests of the images (default images.yaml in -manifests)")
	flags.StringVar(&o.version, "version", "", "version of the bundle (default the file VERSION of -tree)")
	channels := flags.String("channels", "stable,candidate", "channels of the bundle, separated by commas")
	flags.StringVar(&o.defaultChannel, "default-channel", "stable", "channel of subscriptions that name none")
	flags.StringVar(&o.replaces, "replaces", "", "what this version is an upgrade of, such as scanner-operator.v0.1.0 (default spec.replaces in -manifests)")
	flags.StringVar(&o.namespace, "namespace", "scanner-operator-system", "namespace that the operator is installed in, for policies")
	flags.StringVar(&o.reviewers, "reviewers", "", "GitHub accounts that may approve a submission, separated by commas")
	flags.StringVar(&o.out, "out", "", "where to write (default bundle, catalog, or bin/submission)")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o.channels, o.args = strings.Split(*channels, ","), flags.Args()
	if o.images == "" {
		o.images = filepath.Join(o.manifests, "images.yaml")
	}
	if o.version == "" {
		text, err := os.ReadFile(filepath.Join(o.tree, "VERSION"))
		if err != nil {
			return options{}, fmt.Errorf("-version: %w", err)
		}
		o.version = strings.TrimSpace(string(text))
	}
	return o, o.readReplaces(flags)
}

// readReplaces looks into the hand-written part unless the command line says what is replaced, be it nothing.
func (o *options) readReplaces(flags *flag.FlagSet) error {
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "replaces" })
	if given {
		return nil
	}
	base, err := readBase(o.manifests)
	o.replaces = base.Spec.Replaces
	return err
}
