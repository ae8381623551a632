// Command migrate simulates a program that prepares a database before a service starts. It reads a few steps and prints that they are
// done.
package main

import (
	"fmt"
	"os"

	"golang.org/x/text/language"
	"gopkg.in/yaml.v3"
)

const steps = `
- {name: customers, language: en-GB}
- {name: orders, language: de}
`

func main() {
	var list []struct{ Name, Language string }
	if err := yaml.Unmarshal([]byte(steps), &list); err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
	for _, step := range list {
		fmt.Printf("migrated %s (%s)\n", step.Name, language.Make(step.Language))
	}
}
