// Command chart updates the generated parts of the Helm chart: copies of the manifests that the chart's templates read, and the schema
// of the value "config", which is the operator's configuration file.
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

// copies maps directories below the chart's files/ to the manifests that are copied there (patterns, relative to config/).
var copies = map[string][]string{
	"crd":            {"crd/bases/*.yaml"},
	"policy":         {"policy/*.yaml"},
	"rbac":           {"rbac/*.yaml", "notifier/rbac.yaml"},
	"clair-webhooks": {"notifier-clair-webhooks/listener/rbac.yaml"},
	"notifier-lease": {"components/high-availability/notifier_rbac.yaml"},
	"openreports":    {"components/openreports/*.yaml"},
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

// copyAll deletes and rewrites files/, so that manifests that were removed from config/ are removed from the chart.
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
			continue // only kustomize uses these
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
