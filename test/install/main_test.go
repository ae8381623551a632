// Package install tests on a real cluster how the operator is installed, upgraded and removed: with the real installers,
// each as its page below docs/install says.
//
// "make e2e-install" prepares the cluster and runs it. All tests share what is around the operator (Slack, a vulnerability
// database, images); each installs the operator itself, one after the other, and must leave nothing of it behind. With
// E2E_KEEP=1 everything goes on running afterwards: use it with one test.
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
	"github.com/scanner-operator/scanner-operator/test/story"
)

// env is the cluster with everything but the operator, the same for all tests.
var env *story.Environment

// cleanUpTime is how long removing everything may take.
const cleanUpTime = 4 * time.Minute

// soon is how long something may take that is a matter of seconds, on a slow machine.
const soon = time.Minute

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runTests(ctx, m)
	stop()
	os.Exit(code)
}

func runTests(ctx context.Context, m *testing.M) int {
	ctrllog.SetLogger(logr.Discard()) // a library that tests have nothing to say through
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
		if err := checkCleanupRights(ctx, log); err != nil {
			fmt.Fprintln(os.Stderr, "install: rights:", err)
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
	options, err := story.OptionsFromEnvironment(os.Stdout)
	if err != nil {
		return err
	}
	// The tests compare with the project's own advisories.
	options.Backend, options.Upstream = v1alpha1.BackendGrype, false
	if env, err = story.Connect(ctx, options); err != nil {
		return err
	}
	return story.Tell(ctx, os.Stdout, time.Now, env.Surroundings())
}

func keep() bool { return os.Getenv("E2E_KEEP") != "" }

// must ends a test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what is a matter of seconds.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	must(t, story.Eventually(t.Context(), soon, check))
}

// systemNamespace makes the operator's namespace. After the test it is removed, with all that is in it; a test that failed
// says before what is there.
func systemNamespace(t *testing.T) {
	t.Helper()
	must(t, env.MakeNamespace(t.Context(), story.SystemNamespace))
	removeSystemNamespace(t)
}

// removeSystemNamespace is what systemNamespace does after the test, for installers that make the namespace themselves.
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
		kubectlOrError(cleaning, t, "delete", "namespace", story.SystemNamespace, "--ignore-not-found", "--timeout=120s")
	})
}

// namespace makes one for workloads, and removes it after the test. Its name is new each time, so that nothing that was
// told in an earlier run counts.
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

// kubectl runs a command that has to succeed, and returns what it prints.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	printed, err := env.Kubectl(t.Context(), args...)
	must(t, err)
	return printed
}

// kubectlOrError is for cleaning up, when the test's context has ended.
func kubectlOrError(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	if _, err := env.Kubectl(ctx, args...); err != nil {
		t.Errorf("cleaning up: %v", err)
	}
}
