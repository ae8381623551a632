// Package flagenv sets flags that are not on the command line from environment variables. Some installers, such as OLM, let users set
// variables and no flags.
package flagenv

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

// Complete sets each flag that is not on the parsed command line and whose variable is set. The variable is the prefix and the flag's name
// in capitals with underscores, such as SCANNER_LOG_LEVEL for --log-level. Errors name the variable.
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
