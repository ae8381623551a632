package e2e

import (
	"os"
	"testing"

	"github.com/scanner-operator/scanner-operator/test/story"
)

// The scenarios of the demo, each step as a test.
func TestDemo(t *testing.T) { tellActs(t, env) }

// tellActs runs all scenarios and prints their results.
func tellActs(t *testing.T, env *story.Environment) {
	t.Helper()
	for _, step := range env.Acts() {
		told := t.Run(step.Name, func(t *testing.T) {
			said, err := step.Run(t.Context())
			must(t, err)
			t.Log(said)
		})
		if !told {
			t.Fatal("the steps after this one build on it")
		}
	}
	if err := env.Show(t.Context()); err != nil {
		t.Error(err)
	}
	if os.Getenv("E2E_KEEP") == "" {
		_, err := env.Kubectl(t.Context(), "delete", "namespaces", env.Shop(), env.Staging(), "--wait=false")
		must(t, err)
	}
}
