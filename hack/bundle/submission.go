package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// catalogTemplate is the file from which a community catalog makes its part about the operator. The catalog's pipeline writes
// it, and a pull request of its own, once the bundle is published: the bundle's image has no digest before
// (https://github.com/redhat-openshift-ecosystem/operator-pipelines, docs/users/fbc_autorelease.md).
const catalogTemplate = "basic.yaml"

// writeSubmission writes the tree operators/scanner-operator that a pull request to k8s-operatorhub/community-operators or to
// redhat-openshift-ecosystem/community-operators-prod adds: the bundle as it lies in bundle/, and how it is published.
func writeSubmission(o options) error {
	if o.reviewers == "" {
		return errors.New("submission: -reviewers: name the GitHub accounts that may approve, separated by commas")
	}
	operator := filepath.Join(cmp.Or(o.out, filepath.Join("bin", "submission")), "operators", packageName)
	version := filepath.Join(operator, o.version)
	if err := os.RemoveAll(operator); err != nil {
		return err
	}
	if err := os.CopyFS(version, os.DirFS("bundle")); err != nil {
		return err
	}
	csv, err := os.ReadFile(filepath.Join(version, "manifests", baseFile))
	if err != nil {
		return err
	}
	if !strings.Contains(string(csv), "\n  name: "+packageName+".v"+o.version+"\n") {
		return fmt.Errorf("submission: bundle/ is not of version %s: make bundle", o.version)
	}
	if err := writeYAML(filepath.Join(operator, "ci.yaml"), ciConfig(o)); err != nil {
		return err
	}
	return writeYAML(filepath.Join(version, "release-config.yaml"), releaseConfig(o))
}

// ciConfig says who may approve, and that the catalog is file-based.
func ciConfig(o options) map[string]any {
	return map[string]any{
		"reviewers":   strings.Split(o.reviewers, ","),
		"updateGraph": "replaces-mode",
		"fbc": map[string]any{"enabled": true, "catalog_mapping": []any{
			map[string]any{"template_name": catalogTemplate, "catalog_names": []string{"latest"}, "type": "olm.template.basic"},
		}},
	}
}

// releaseConfig says in which channels the version is to be, and what it replaces there.
func releaseConfig(o options) map[string]any {
	entry := map[string]any{"template_name": catalogTemplate, "channels": o.channels, "defaultChannel": o.defaultChannel}
	if o.replaces != "" {
		entry["replaces"] = o.replaces
	}
	return map[string]any{"catalog_templates": []any{entry}}
}

func writeYAML(name string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return writeFile(name, append([]byte("---\n"), text...))
}
