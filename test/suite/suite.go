// Package suite runs the tests of a package on a real cluster. All tests share one environment; each has namespaces of its own.
//
// With E2E_KEEP=1 everything keeps running afterwards.
package suite

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
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

// CleanUpTimeout bounds the removal of everything.
const CleanUpTimeout = 4 * time.Minute

// Suite describes the tests of a package.
type Suite struct {
	// Name is the suite's name in its output.
	Name string
	// BothEngines prepares the environment for Clair, too.
	BothEngines bool
	// Integrations prepares the environment for other programs, too.
	Integrations bool
	// SetUp returns the steps that set up the environment.
	SetUp func(*scenario.Environment) []scenario.Step
	// CheckPermissions compares permissions with their use, after all tests have succeeded.
	CheckPermissions func(context.Context, privilege.Log) error
}

// Keep reports whether everything keeps running after the tests.
func Keep() bool { return os.Getenv("E2E_KEEP") != "" }

// Run sets up the environment, runs the tests and removes everything. It returns the exit code.
func (s Suite) Run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrllog.SetLogger(logr.Discard()) // silences a library
	log, err := privilege.BeginLog()
	if err != nil {
		return s.fail("audit log", err)
	}
	env, err := s.connect(ctx)
	if err != nil {
		return s.fail("connecting to the cluster", err)
	}
	if err := scenario.RunSteps(ctx, os.Stdout, time.Now, s.SetUp(env)); err != nil {
		env.Diagnose(ctx)
		return s.fail("setting up the environment", err)
	}
	code := m.Run()
	if code == 0 {
		if err := s.CheckPermissions(ctx, log); err != nil {
			code = s.fail("permissions", err)
		}
	}
	if code != 0 {
		diagnose(ctx, env)
	}
	if Keep() {
		return code
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanUpTimeout)
	defer cancel()
	if _, err := env.Remove(cleaning); err != nil {
		return s.fail("removing everything", err)
	}
	return code
}

var diagnosed sync.Once

// diagnose prints the state of the environment, once. The state at the first failure is what explains it.
func diagnose(ctx context.Context, env *scenario.Environment) {
	diagnosed.Do(func() { env.Diagnose(ctx) })
}

func (s Suite) fail(during string, err error) (code int) {
	fmt.Fprintf(os.Stderr, "%s: %s: %v\n", s.Name, during, err)
	return 1
}

func (s Suite) connect(ctx context.Context) (*scenario.Environment, error) {
	options, err := scenario.OptionsFromEnvironment(os.Stdout)
	if err != nil {
		return nil, err
	}
	// The tests compare results with the project's own advisories.
	options.Backend, options.Both, options.Upstream = v1alpha1.BackendGrype, s.BothEngines, false
	options.Integrations = s.Integrations
	return scenario.Connect(ctx, options)
}

// Namespace creates a namespace for a test and deletes it afterwards. Its name is new each time, so that messages and scans of an earlier
// run do not count. The first failed test prints the state of the environment.
func Namespace(t *testing.T, env *scenario.Environment, prefix string) string {
	t.Helper()
	name := prefix + "-" + rand.String(5)
	if err := env.MakeNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context has ended.
		if t.Failed() {
			diagnose(context.Background(), env)
		}
		if Keep() {
			return
		}
		if _, err := env.Kubectl(context.Background(), "delete", "namespace", name, "--wait=false", "--ignore-not-found"); err != nil {
			t.Errorf("removing namespace %s: %v", name, err)
		}
	})
	return name
}
