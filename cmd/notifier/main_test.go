package main

import (
	"flag"
	"testing"

	"github.com/scanner-operator/scanner-operator/notifier"
)

// TestFlagsAreFree: no package that the notifier imports has registered a flag of the same name. Otherwise the notifier would end at its start.
func TestFlagsAreFree(t *testing.T) {
	options := notifier.NewOptions(func(string) string { return "" })
	flags := flag.NewFlagSet("notifier", flag.PanicOnError)
	options.AddFlags(flags)
	flags.VisitAll(func(f *flag.Flag) {
		if flag.Lookup(f.Name) != nil {
			t.Errorf("--%s is registered already", f.Name)
		}
	})
}
