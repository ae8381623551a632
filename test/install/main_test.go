// Package install tests on a real cluster how the operator is installed, upgraded and removed: with the real installers, following the
// pages below docs/operate/install.
//
// "make e2e-install" prepares the cluster and runs the tests. All tests share the surroundings of the operator (Slack, a vulnerability
// database, images). Each test installs the operator itself, one after the other, and must remove it completely. With E2E_KEEP=1
// everything keeps running afterwards: use it with a single test.
package install

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/suite"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// env is the cluster with everything but the operator, the same for all tests.
var env *scenario.Environment

// shortTimeout bounds the wait for something that takes seconds, on a slow machine.
const shortTimeout = time.Minute

func TestMain(m *testing.M) {
	os.Exit(suite.Suite{
		Name: "install", CheckPermissions: checkCleanupPermissions,
		SetUp: func(e *scenario.Environment) []scenario.Step {
			env = e
			return env.Prerequisites()
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

// eventually waits for something that takes seconds.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	must(t, wait.Eventually(t.Context(), shortTimeout, wait.Normally, check))
}

// systemNamespace creates the operator's namespace. After the test, it is removed with everything of the operator.
func systemNamespace(t *testing.T) {
	t.Helper()
	startFromNothing(t)
	must(t, env.MakeNamespace(t.Context(), scenario.SystemNamespace))
}

func namespace(t *testing.T, prefix string) string {
	t.Helper()
	return suite.Namespace(t, env, prefix)
}

// kubectl runs a command that must succeed, and returns its output.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	printed, err := env.Kubectl(t.Context(), args...)
	must(t, err)
	return printed
}

// kubectlOrError is for cleaning up after the test's context has ended.
func kubectlOrError(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	if _, err := env.Kubectl(ctx, args...); err != nil {
		t.Errorf("cleaning up: %v", err)
	}
}
