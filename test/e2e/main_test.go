// Package e2e tests the whole product on a real cluster from the outside: pods, ImageScans, messages.
//
// "make e2e" prepares the cluster and runs the tests. All tests share one deployment of the operator; each has namespaces of its own.
// Most tests mostly wait, and run in parallel. Tests that disturb others run before them, one after the other: those that end a process
// of the operator, make Clair unavailable, drop packets or publish vulnerability data.
// With E2E_KEEP=1 everything keeps running afterwards.
package e2e

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
)

// env is the cluster with the operator, the same for all tests.
var env *scenario.Environment

// cleanUpTime bounds the removal of everything.
const cleanUpTime = 4 * time.Minute

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
		fmt.Fprintln(os.Stderr, "e2e: audit log:", err)
		return 1
	}
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: the environment is not there:", err)
		if env != nil {
			env.Diagnose(ctx)
		}
		return 1
	}
	code := m.Run()
	if code == 0 && isCompleteRun() {
		if err := checkPermissions(ctx, log); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: permissions:", err)
			code = 1
		}
	}
	if code != 0 {
		env.Diagnose(ctx)
	}
	if os.Getenv("E2E_KEEP") != "" {
		return code
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	if _, err := env.Remove(cleaning); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: removing everything:", err)
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
	options.Upstream = false
	options.Backend, options.Both = v1alpha1.BackendGrype, true
	if env, err = scenario.Connect(ctx, options); err != nil {
		return err
	}
	return scenario.RunSteps(ctx, os.Stdout, time.Now, env.SetUp())
}

// must fails the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// namespace creates a namespace for a test and deletes it afterwards. Its name is new each time, so that messages and scans of an
// earlier run do not count.
func namespace(t *testing.T, prefix string) string {
	t.Helper()
	name := prefix + "-" + rand.String(5)
	must(t, env.MakeNamespace(t.Context(), name))
	t.Cleanup(func() {
		if os.Getenv("E2E_KEEP") != "" {
			return
		}
		// The test's context has ended.
		if _, err := env.Kubectl(context.Background(), "delete", "namespace", name, "--wait=false", "--ignore-not-found"); err != nil {
			t.Errorf("removing namespace %s: %v", name, err)
		}
	})
	return name
}
