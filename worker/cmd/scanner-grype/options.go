package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"strings"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// flags is a set of flags that can be given by environment: --database-url by SCANNER_DATABASE_URL. The
// command line wins.
type flags struct {
	*flag.FlagSet
	getenv func(string) string
}

// flags makes an empty set of flags for a command; its help goes to standard error.
func (p process) flags(command string) *flags {
	set := &flags{FlagSet: flag.NewFlagSet("scanner-grype "+command, flag.ContinueOnError), getenv: p.getenv}
	set.SetOutput(p.stderr)
	return set
}

// variable is the name of the environment variable for a flag.
func variable(flagName string) string {
	return "SCANNER_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// parse reads the arguments, and the environment for flags that are not among them.
func (f *flags) parse(args []string) error {
	f.VisitAll(func(flag *flag.Flag) { flag.Usage += " (" + variable(flag.Name) + ")" })
	if err := f.Parse(args); err != nil {
		return err
	}
	// The environment fills in what the arguments leave open; it must not add to a list that was given.
	given := map[string]bool{}
	f.Visit(func(flag *flag.Flag) { given[flag.Name] = true })
	var err error
	f.VisitAll(func(flag *flag.Flag) {
		value := f.getenv(variable(flag.Name))
		if value == "" || given[flag.Name] || err != nil {
			return
		}
		if e := flag.Value.Set(value); e != nil {
			err = fmt.Errorf("%s: %w", variable(flag.Name), e)
		}
	})
	if err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return nil
}

// list is a flag that may be repeated, or hold several values with commas.
type list []string

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value. It adds to what is there, so that the flag can be repeated.
func (l *list) Set(value string) error {
	for v := range strings.SplitSeq(value, ",") {
		if v = strings.TrimSpace(v); v != "" {
			*l = append(*l, v)
		}
	}
	return nil
}

// server is the configuration of the ingest API, which comes by environment only.
func (p process) server() ingest.Config {
	return ingest.Config{
		Server:    p.getenv(workerapi.EnvServer),
		CA:        p.getenv(workerapi.EnvServerCA),
		TokenFile: p.tokenFile,
		Clock:     p.clock,
	}
}

// registries reads the list of registries that need more than the defaults.
func (p process) registries() ([]workerapi.Registry, error) {
	raw := p.getenv(workerapi.EnvRegistries)
	if raw == "" {
		return nil, nil
	}
	var all []workerapi.Registry
	// Fields that this version does not know are left alone: the manager that writes them may be newer.
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		return nil, fmt.Errorf("%s must be a JSON list of registries: %w", workerapi.EnvRegistries, err)
	}
	if err := registry.Validate(all); err != nil {
		return nil, fmt.Errorf("%s: %w", workerapi.EnvRegistries, err)
	}
	return all, nil
}
