// Command demo runs the demo of the operator on a real cluster, the one that KUBECONFIG names.
//
//	demo build              compile the images of the demo and the database builder; needs the Go module proxy the first time
//	demo build-clair        compile Clair and build an image of PostgreSQL; also needs Debian's packages
//	demo build-postgresql   build an image of PostgreSQL, from Debian's packages
//	demo build-integrations  an image of the stand-in for programs that receive messages and exports
//	demo build-olm          compile the Operator Lifecycle Manager and opm, for the installation tests
//	demo                    run the demo and leave everything running; with CI=1 in the environment, remove everything at the end
//	demo ui                 forward a port of this machine to the web UI until an interrupt
//	demo check-ui           open the web UI in Chromium and compare its numbers, as the last step with CI=1 does
//	demo down               remove everything that the demo has created
//
// REGISTRY is the registry that the operator's images were pushed to. BACKEND=clair runs the demo with Clair as the engine.
// STORE=postgres keeps the operator's store on a PostgreSQL server in the cluster.
// DEMO_DB=upstream uses the Grype project's vulnerability database from the internet instead of the small one that is built here. That
// option is untested.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// cleanUpTime bounds the removal of everything, including the removal after an interruption.
const cleanUpTime = 4 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrllog.SetLogger(logr.Discard()) // the library's log lines are not part of the demo's output
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:gocritic // nothing is left for the deferred stop to do
	}
}

func run(ctx context.Context, args []string) error {
	options, err := scenario.OptionsFromEnvironment(os.Stdout)
	if err != nil {
		return err
	}
	command := "run"
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "build":
		return build(ctx, options.Root)
	case "build-clair":
		return compile(ctx, options.Root, images.ForClair())
	case "build-postgresql":
		return compile(ctx, options.Root, []string{images.PostgreSQL})
	case "build-integrations":
		return compile(ctx, options.Root, images.ForIntegrations())
	case "build-olm":
		return compile(ctx, options.Root, images.ForOLM())
	case "run":
		return runDemo(ctx, options)
	case "ui":
		return forwardUI(ctx, options.Root)
	case "ui-relay":
		return relayUI(ctx, options)
	case "check-ui":
		return checkUI(ctx, options)
	case "down":
		return down(ctx, options)
	}
	return fmt.Errorf("%q is not a command: give build, build-clair, build-postgresql, build-integrations, build-olm, ui, check-ui, down or nothing", command)
}

// build compiles everything that the demo needs, since the local cluster's network has no internet access.
func build(ctx context.Context, root string) error {
	vulndb := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(root, "bin", "vulndb"), "./cmd/vulndb")
	vulndb.Dir, vulndb.Stderr = filepath.Join(root, "worker"), os.Stderr
	vulndb.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := vulndb.Run(); err != nil {
		return fmt.Errorf("compile the database builder: %w", err)
	}
	return compile(ctx, root, images.Demo())
}

func compile(ctx context.Context, root string, names []string) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	paths := images.Places{Root: root, Cache: cache, Out: scenario.ImagesDir(root)}
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	return images.Compile(ctx, names, paths, platform, func(name string, number, of int) {
		fmt.Printf("[%d/%d] building %s\n", number, of, name)
	})
}

// cacheDir returns the directory in which the local cluster also keeps its downloads.
func cacheDir() (string, error) {
	if dir := os.Getenv("SCANNER_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "scanner-operator"), err
}

func runDemo(ctx context.Context, options scenario.Options) error {
	unattended := os.Getenv("CI") != ""
	environment, err := scenario.Connect(ctx, options)
	if err != nil {
		return err
	}
	steps := slices.Concat(environment.SetUp(), environment.Scenarios())
	if unattended {
		steps = append(steps, scenario.Step{Name: "The web UI shows the numbers of the Scanner", Run: environment.CheckWebUI})
	}
	began := time.Now()
	err = scenario.RunSteps(ctx, os.Stdout, time.Now, steps)
	if err == nil {
		err = environment.Show(ctx)
	}
	if err != nil && ctx.Err() == nil {
		environment.Diagnose(ctx)
	}
	if unattended {
		err = errors.Join(err, clean(ctx, environment))
	}
	if err != nil {
		return err
	}
	fmt.Printf("The demo took %.0f s.\n", time.Since(began).Seconds())
	if !unattended {
		printNextCommands(environment.Production())
	}
	return nil
}

// clean removes everything, even after an interruption.
func clean(ctx context.Context, environment *scenario.Environment) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	_, err := environment.Remove(ctx)
	return err
}

func down(ctx context.Context, options scenario.Options) error {
	environment, err := scenario.Connect(ctx, options)
	if err != nil {
		return err
	}
	removed, err := environment.Remove(ctx)
	if err == nil && !removed {
		fmt.Println("the cluster has nothing of the demo")
	}
	return err
}

// printNextCommands prints the commands to continue with.
func printNextCommands(namespace string) {
	fmt.Printf(`The demo keeps running. Look around:

  the images and their worst findings   make cluster-exec CMD="kubectl get imagescans -A -o wide"
  the findings                          make cluster-exec CMD="kubectl -n scanner-operator-system exec deploy/scanner-operator-manager -- /scanner-operator findings -namespace %[1]s"
  the messages                          make cluster-exec CMD="kubectl -n demo-infra logs deploy/slack"
  the web UI                            make demo-ui, and open %[2]s; the browser warns about the certificate
  a token to sign in with               make cluster-exec CMD="kubectl -n %[1]s create token viewer --duration 8h"

Stop: make demo-down removes the demo, make cluster-down the local cluster with it.
`, namespace, "https://"+uiAddress())
}
