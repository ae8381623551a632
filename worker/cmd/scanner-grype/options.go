package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/worker/ingest"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// flags is a set of flags that can also be set by environment variables: --database-url by SCANNER_DATABASE_URL. The
// command line takes precedence.
type flags struct {
	*flag.FlagSet
	getenv func(string) string
}

// flags returns an empty set of flags for a command. Its help goes to standard error.
func (p process) flags(command string) *flags {
	set := &flags{FlagSet: flag.NewFlagSet("scanner-grype "+command, flag.ContinueOnError), getenv: p.getenv}
	set.SetOutput(p.stderr)
	return set
}

// environmentName returns the name of the environment variable for a flag.
func environmentName(flagName string) string {
	return "SCANNER_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// parse reads the arguments. Flags that are not among them are read from the environment.
func (f *flags) parse(args []string) error {
	f.VisitAll(func(flag *flag.Flag) { flag.Usage += " (" + environmentName(flag.Name) + ")" })
	if err := f.Parse(args); err != nil {
		return err
	}
	// A variable must not add values to a list that the arguments set.
	given := map[string]bool{}
	f.Visit(func(flag *flag.Flag) { given[flag.Name] = true })
	var err error
	f.VisitAll(func(flag *flag.Flag) {
		value := f.getenv(environmentName(flag.Name))
		if value == "" || given[flag.Name] || err != nil {
			return
		}
		if e := flag.Value.Set(value); e != nil {
			err = fmt.Errorf("%s: %w", environmentName(flag.Name), e)
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

// stringList is a flag that may be repeated, or hold several values separated by commas.
type stringList []string

// String implements flag.Value.
func (l *stringList) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value. It appends, so that the flag can be repeated.
func (l *stringList) Set(value string) error {
	for v := range strings.SplitSeq(value, ",") {
		if v = strings.TrimSpace(v); v != "" {
			*l = append(*l, v)
		}
	}
	return nil
}

// ingestClient returns the client of the ingest API. Its configuration comes only from the environment.
func (p process) ingestClient(log *slog.Logger) (*ingest.Client, error) {
	return ingest.New(ingest.Config{
		Server:    p.getenv(workerapi.EnvServer),
		CA:        p.getenv(workerapi.EnvServerCA),
		TokenFile: p.tokenFile,
		Clock:     p.clock,
		Log:       log,
	})
}

// registries returns the valid list of registries that need more than the defaults.
func (p process) registries() ([]workerapi.Registry, error) {
	raw := p.getenv(workerapi.EnvRegistries)
	if raw == "" {
		return nil, nil
	}
	var all []workerapi.Registry
	// Unknown fields are ignored, since the manager that wrote them may be newer.
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		return nil, fmt.Errorf("%s must be a JSON list of registries: %w", workerapi.EnvRegistries, err)
	}
	if err := registry.Validate(all); err != nil {
		return nil, fmt.Errorf("%s: %w", workerapi.EnvRegistries, err)
	}
	return all, nil
}
