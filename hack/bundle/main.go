// Command bundle generates what the Operator Lifecycle Manager installs, from the same manifests as every other installation method.
//
//	bundle generate            write a bundle: manifests, metadata, scorecard configuration, and the Dockerfile beside them
//	bundle catalog DIR=IMAGE…  write a file-based catalog of bundles, each with the image that holds it
//	bundle policies            print the admission policies, which a bundle cannot carry
//	bundle installation        print one file that installs the operator with OLM: these policies, the store's volume, and the Subscription
//	bundle submission          write the files that a pull request to a community catalog adds
//
// The content of a bundle comes from config/default, config/crd/bases and config/samples of a checkout (-tree), which may be an older
// one. The hand-written parts are in config/manifests. The same input gives the same bytes.
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

// packageName is the operator's package name in catalogs.
const packageName = "scanner-operator"

func main() {
	logrus.SetLevel(logrus.WarnLevel) // the registry library warns about each optional file that is missing
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

var commands = map[string]func(options) error{
	"generate":     generate,
	"catalog":      writeCatalog,
	"policies":     func(o options) error { return printPolicies(o, os.Stdout) },
	"installation": func(o options) error { return printInstallation(o, os.Stdout) },
	"submission":   writeSubmission,
}

func run(args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("say what to do: bundle generate | catalog DIR=IMAGE… | policies | installation | submission")
	}
	chosen, err := parse(args[1:])
	if err != nil {
		return err
	}
	return commands[args[0]](chosen)
}

// options are the options and arguments of the command line.
type options struct {
	tree           string   // checkout with config/default, config/crd/bases, config/samples
	manifests      string   // directory of the hand-written files: config/manifests
	images         string   // file with the images' references by digest
	version        string   // of the bundle
	channels       []string // of the bundle
	defaultChannel string
	replaces       string // name of the ClusterServiceVersion that this one replaces
	namespace      string // that the operator is installed in
	source         string // CatalogSource of the Subscription
	// sourceNamespace is the namespace of the CatalogSource.
	sourceNamespace string
	reviewers       string // of a submission
	out             string
	args            []string
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
	flags.StringVar(&o.namespace, "namespace", "scanner-operator-system", "namespace that the operator is installed in, for policies and installation")
	flags.StringVar(&o.source, "source", "operatorhubio-catalog", "CatalogSource, for installation")
	flags.StringVar(&o.sourceNamespace, "source-namespace", "olm", "namespace of the CatalogSource, for installation")
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

// readReplaces takes spec.replaces from the hand-written part, unless -replaces is given. An empty -replaces counts as given.
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
