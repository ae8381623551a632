// Package install tests on a real cluster how the operator is installed, upgraded and removed: with the real installers, following the
// pages below docs/install.
//
// "make e2e-install" prepares the cluster and runs the tests. All tests share the surroundings of the operator (Slack, a vulnerability
// database, images). Each test installs the operator itself, one after the other, and must remove it completely. With E2E_KEEP=1
// everything keeps running afterwards: use it with a single test.
package install

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/rand"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/test/privilege"
	"github.com/scanner-operator/scanner-operator/test/scenario"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// env is the cluster with everything but the operator, the same for all tests.
var env *scenario.Environment

// cleanUpTime bounds the removal of everything.
const cleanUpTime = 4 * time.Minute

// shortTimeout bounds the wait for something that takes seconds, on a slow machine.
const shortTimeout = time.Minute

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runTests(ctx, m)
	stop()
	os.Exit(code)
}

func runTests(ctx context.Context, m *testing.M) int {
	ctrllog.SetLogger(logr.Discard()) // silences a library
	log, err := privilege.BeginLog()
	if err != nil {
		fmt.Fprintln(os.Stderr, "install: audit log:", err)
		return 1
	}
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "install: the environment is not there:", err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		if err := checkCleanupPermissions(ctx, log); err != nil {
			fmt.Fprintln(os.Stderr, "install: permissions:", err)
			code = 1
		}
	}
	if keep() {
		return code
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	if _, err := env.Remove(cleaning); err != nil {
		fmt.Fprintln(os.Stderr, "install: removing everything:", err)
		return 1
	}
	return code
}

func setUp(ctx context.Context) error {
	options, err := scenario.OptionsFromEnvironment(os.Stdout)
	if err != nil {
		return err
	}
	// The tests compare results with the project's own advisories.
	options.Backend, options.Upstream = v1alpha1.BackendGrype, false
	if env, err = scenario.Connect(ctx, options); err != nil {
		return err
	}
	return scenario.RunSteps(ctx, os.Stdout, time.Now, env.Prerequisites())
}

func keep() bool { return os.Getenv("E2E_KEEP") != "" }

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

// systemNamespace creates the operator's namespace and removes it after the test with everything in it. A failed test prints diagnoses
// before.
func systemNamespace(t *testing.T) {
	t.Helper()
	must(t, env.MakeNamespace(t.Context(), scenario.SystemNamespace))
	removeSystemNamespace(t)
}

// removeSystemNamespace removes the operator's namespace after the test, for installers that create it themselves.
func removeSystemNamespace(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			env.Diagnose(context.Background())
		}
		if keep() {
			return
		}
		cleaning, cancel := context.WithTimeout(context.Background(), cleanUpTime)
		defer cancel()
		kubectlOrError(cleaning, t, "delete", "namespace", scenario.SystemNamespace, "--ignore-not-found", "--timeout=120s")
	})
}

// namespace creates a namespace for workloads and deletes it after the test. Its name is new each time, so that messages of an earlier
// run do not count.
func namespace(t *testing.T, prefix string) string {
	t.Helper()
	name := prefix + "-" + rand.String(5)
	must(t, env.MakeNamespace(t.Context(), name))
	t.Cleanup(func() {
		if !keep() {
			kubectlOrError(context.Background(), t, "delete", "namespace", name, "--wait=false", "--ignore-not-found")
		}
	})
	return name
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
