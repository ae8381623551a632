// Command chart brings the Helm chart up to date with the rest of the project: copies of the manifests that the chart's
// templates read, and the schema of its value config, which is the operator's configuration file.
//
//	chart CONFIG-DIRECTORY CHART-DIRECTORY
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// copies says which manifests of config/ (patterns, below it) are read by the chart's templates, and in which directory below
// the chart's files/ they are.
var copies = map[string][]string{
	"crd":            {"crd/bases/*.yaml"},
	"policy":         {"policy/*.yaml"},
	"rbac":           {"rbac/*.yaml", "notifier/rbac.yaml"},
	"clair-webhooks": {"notifier-clair-webhooks/listener/rbac.yaml"},
	"prometheus":     {"components/prometheus/*.yaml"},
	"dashboards":     {"components/prometheus/dashboards/*.json"},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart CONFIG-DIRECTORY CHART-DIRECTORY")
		os.Exit(2)
	}
	if err := errors.Join(copyAll(os.Args[1], filepath.Join(os.Args[2], "files")), writeSchema(filepath.Join(os.Args[2], "values.schema.json"))); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// copyAll makes files/ anew: what config/ does not have any more is not to stay in the chart.
func copyAll(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	for directory, patterns := range copies {
		if err := os.MkdirAll(filepath.Join(to, directory), 0o755); err != nil {
			return err
		}
		for _, pattern := range patterns {
			if err := copyFiles(filepath.Join(from, pattern), filepath.Join(to, directory)); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFiles(pattern, directory string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	copied := 0
	for _, file := range files {
		if base := filepath.Base(file); base == "kustomization.yaml" || strings.HasSuffix(base, "_replacements.yaml") {
			continue // for kustomize alone
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		target := filepath.Join(directory, filepath.Base(file))
		if _, err := os.Stat(target); err == nil {
			return fmt.Errorf("%s: the chart has a file of that name from elsewhere already", file)
		}
		if err := os.WriteFile(target, text, 0o644); err != nil {
			return err
		}
		copied++
	}
	if copied == 0 {
		return fmt.Errorf("%s: no manifests there", pattern)
	}
	return nil
}
