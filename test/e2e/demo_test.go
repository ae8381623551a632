package e2e

import (
	"testing"

	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/suite"
)

// The scenarios of the demo, each step as a test.
func TestDemo(t *testing.T) { runScenarios(t, env) }

// runScenarios runs all scenarios and prints their results.
func runScenarios(t *testing.T, env *scenario.Environment) {
	t.Helper()
	for _, step := range env.Scenarios() {
		passed := t.Run(step.Name, func(t *testing.T) {
			result, err := step.Run(t.Context())
			must(t, err)
			t.Log(result)
		})
		if !passed {
			t.Fatal("the steps after this one build on it")
		}
	}
	if err := env.Show(t.Context()); err != nil {
		t.Error(err)
	}
	if !suite.Keep() {
		_, err := env.Kubectl(t.Context(), "delete", "namespaces", env.Production(), env.Staging(), "--wait=false")
		must(t, err)
	}
}
