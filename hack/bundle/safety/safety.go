// Package safety compares CustomResourceDefinitions with those of the last release, by the rules with which OLM v1 allows or refuses an
// upgrade. It reports a removed scope, stored version or field, a changed type or default, a new required field, fewer enum values, and
// tighter bounds. A safe upgrade keeps the objects of the last release valid.
package safety

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations/property"
	"sigs.k8s.io/crdify/pkg/validators/version"
)

// rules are the rules of operator-controller 1.11 (internal/operator-controller/rukpak/preflights/crdupgradesafety): the strictest ones,
// except that descriptions may change and enum values may be added.
var rules = config.Config{
	Conversion:           config.ConversionPolicyIgnore,
	UnhandledEnforcement: config.EnforcementPolicyError,
	Validations: []config.ValidationConfig{
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		{Name: "enum", Enforcement: config.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": property.AdditionPolicyAllow}},
	},
}

// Problems returns the reasons why OLM would refuse to replace published by now; empty if it would not.
func Problems(published, now *apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	judge, err := runner.New(&rules, runner.DefaultRegistry())
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	results := judge.Run(published, now)
	var problems []string
	for _, result := range results.CRDValidation {
		for _, text := range result.Errors {
			problems = append(problems, fmt.Sprintf("%s: %s", result.Name, text))
		}
	}
	problems = append(problems, ofVersions(results.SameVersionValidation)...)
	problems = append(problems, ofVersions(results.ServedVersionValidation)...)
	slices.Sort(problems)
	return problems, nil
}

func ofVersions(versions []version.VersionedPropertyComparisonResult) []string {
	var problems []string
	for _, one := range versions {
		for _, field := range one.PropertyComparisons {
			for _, result := range field.ComparisonResults {
				for _, text := range result.Errors {
					problems = append(problems, fmt.Sprintf("%s: %s: %s: %s", one.Version, field.Property, result.Name, text))
				}
			}
		}
	}
	return problems
}
