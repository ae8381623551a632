// Package e2e tests the whole product on a real cluster from the outside: pods, ImageScans, messages.
//
// "make e2e" prepares the cluster and runs the tests. All tests share one deployment of the operator; each has namespaces of its own.
// Most tests mostly wait, and run in parallel. Tests that disturb others run before them, one after the other: those that end a process
// of the operator, make Clair unavailable, drop packets, publish vulnerability data, or have Jobs that cannot run but occupy slots.
// With E2E_KEEP=1 everything keeps running afterwards (package suite).
package e2e

import (
	"os"
	"testing"

	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/suite"
)

// env is the cluster with the operator, the same for all tests.
var env *scenario.Environment

func TestMain(m *testing.M) {
	os.Exit(suite.Suite{
		Name: "e2e", BothEngines: true, Integrations: true, CheckPermissions: checkPermissions,
		SetUp: func(e *scenario.Environment) []scenario.Step {
			env = e
			return env.SetUp()
		},
	}.Run(m))
}

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T, prefix string) string {
	t.Helper()
	return suite.Namespace(t, env, prefix)
}
