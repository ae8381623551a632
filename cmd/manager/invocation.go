package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// fakeBackendFlag replaces the engine of Scanners of type Grype by one that invents findings. It is for tests and benchmarks, and --help
// does not list it.
const fakeBackendFlag = "enable-fake-backend"

// programName returns the name by which this program was started. In the image, that is scanner-operator.
func programName() string { return filepath.Base(os.Args[0]) }

// commandName returns what the user typed: the program as it was invoked, and the subcommand, which may be empty.
func commandName(subcommand string) string {
	return strings.TrimSpace(programName() + " " + subcommand)
}

// newFlags returns the flag set of a subcommand. Its errors and its help begin with the command's name.
func newFlags(subcommand string) *flag.FlagSet {
	return flag.NewFlagSet(commandName(subcommand), flag.ContinueOnError)
}

// printHelp prints the usage of the program, with all flags except those for tests.
func printHelp(flags *flag.FlagSet) {
	fmt.Fprintf(flags.Output(), usage, programName())
	shown := flag.NewFlagSet(flags.Name(), flag.ContinueOnError)
	shown.SetOutput(flags.Output())
	flags.VisitAll(func(f *flag.Flag) {
		if f.Name != fakeBackendFlag {
			shown.Var(f.Value, f.Name, f.Usage)
			shown.Lookup(f.Name).DefValue = f.DefValue
		}
	})
	shown.PrintDefaults()
}
