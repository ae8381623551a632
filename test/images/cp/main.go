// Command cp copies one file with its mode. It implements what the Operator Lifecycle Manager needs: the pods in which it unpacks
// bundles and catalogs begin with "cp -Rv <program> <path>". Options are ignored.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "cp:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("want a file and a path for its copy, got %q", args[1:])
	}
	from, to := args[len(args)-2], args[len(args)-1]
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}
