// Package flagenv gives flags that the command line leaves out their values from the environment: some installers, such as
// OLM, let users set variables and no flags.
package flagenv

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

// Complete sets the flags of a parsed command line that were not given and that a variable names: the prefix and the flag's
// name in capitals with underscores, such as SCANNER_LOG_LEVEL for --log-level. Errors name the variable.
func Complete(flags *flag.FlagSet, prefix string) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	flags.VisitAll(func(f *flag.Flag) {
		variable := prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, set := os.LookupEnv(variable); set && !given[f.Name] {
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", variable, err))
			}
		}
	})
	return errors.Join(errs...)
}
