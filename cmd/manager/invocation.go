package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf16"
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

// escapeControl escapes, as \uXXXX, each character that does not print and each that changes the direction of text. Characters in kept stay.
// Images, registries and tenants choose text that is printed to a terminal, which obeys such characters.
func escapeControl(text, kept string) string {
	var safe strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r) || strings.ContainsRune(kept, r):
			safe.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
	}
	return safe.String()
}

// escapingWriter passes on a text, and escapes all but printable characters and line ends. Each Write must hold whole characters.
type escapingWriter struct{ to io.Writer }

// Write implements io.Writer.
func (p escapingWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.to, escapeControl(string(text), "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}
