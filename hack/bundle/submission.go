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

// catalogTemplate is the file from which a community catalog builds its part for the operator. The catalog's pipeline writes it in a
// pull request of its own after the bundle is published, since the bundle's image has no digest before
// (https://github.com/redhat-openshift-ecosystem/operator-pipelines, docs/users/fbc_autorelease.md).
const catalogTemplate = "basic.yaml"

// writeSubmission writes the tree operators/scanner-operator for a pull request to k8s-operatorhub/community-operators or to
// redhat-openshift-ecosystem/community-operators-prod: the bundle as it is in bundle/, and the configuration of its release.
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

// ciConfig returns the configuration of the catalog's CI: the reviewers, and a file-based catalog.
func ciConfig(o options) map[string]any {
	return map[string]any{
		"reviewers":   strings.Split(o.reviewers, ","),
		"updateGraph": "replaces-mode",
		"fbc": map[string]any{"enabled": true, "catalog_mapping": []any{
			map[string]any{"template_name": catalogTemplate, "catalog_names": []string{"latest"}, "type": "olm.template.basic"},
		}},
	}
}

// releaseConfig returns the channels that the version is published in, and the version that it replaces.
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
