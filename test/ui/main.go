// Command ui tests the web UI in a browser, with the real manager on an API server with etcd.
//
//	make ui-test
//
// It creates namespaces, Scanners, pods and users, waits until the fake engine has scanned the images, and runs the journeys of ui/test with
// Node.js. They find the addresses and tokens in the file that UI_TEST names. Screenshots are in the output directory.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	root, assets, output, browser string
	// only is the name of the only file with journeys to run, without its ending; empty for all.
	only string
	// measure is the file for the figures of ui/test/measure.mjs, which runs instead of the journeys; empty for none.
	measure string
	// wait keeps everything running until the command is interrupted, instead of running the journeys.
	wait bool
}

// fixture is what the journeys know: see ui/test/fixture.mjs.
type fixture struct {
	URL     string            `json:"url"`
	Browser string            `json:"browser"`
	Output  string            `json:"output"`
	Tokens  map[string]string `json:"tokens"`
	// Work is the directory with manager.pid, the manager's current process ID, and config.yaml, with which it starts the next time.
	Work string `json:"work"`
	// APIServer is the address of the Kubernetes API server, and SigningKey the file of the key that signs its tokens.
	APIServer  string `json:"apiServer"`
	SigningKey string `json:"signingKey"`
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the project's directory")
	flag.StringVar(&o.assets, "assets", os.Getenv("KUBEBUILDER_ASSETS"), "directory of etcd and kube-apiserver (default $KUBEBUILDER_ASSETS)")
	flag.StringVar(&o.output, "output", "bin/screenshots", "directory for screenshots, and for logs in work")
	flag.StringVar(&o.browser, "browser", "/usr/bin/chromium", "the browser, Chromium")
	flag.StringVar(&o.only, "only", "", "the only journeys to run, such as session (default all)")
	flag.StringVar(&o.measure, "measure", "", "run no journey, measure, and write the figures into this file")
	flag.BoolVar(&o.wait, "wait", false, "run no journey, and wait for an interrupt")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ui:", err)
		os.Exit(1)
	}
}

// journeys returns the files with journeys, from the directory of the UI.
func (o options) journeys() []string {
	if o.only != "" {
		return []string{"test/journeys/" + o.only + ".test.mjs"}
	}
	return []string{"test/journeys/"}
}

func run(ctx context.Context, o options) (err error) {
	if o.output, err = filepath.Abs(o.output); err != nil {
		return err
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	dir := filepath.Join(o.output, "work")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	c, err := startCluster(ctx, o, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	tokens, err := c.fill(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(fixture{URL: c.url, Browser: o.browser, Output: o.output, Tokens: tokens, Work: dir, APIServer: c.server.URL(), SigningKey: c.server.SigningKey()})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "fixture.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if o.wait {
		fmt.Println("The UI is at", c.url, "and the tokens are in", file)
		<-ctx.Done()
		return nil
	}
	// The journeys run one after the other: some of them change what others see.
	arguments := append([]string{"--test", "--test-concurrency=1", "--test-reporter=spec"}, o.journeys()...)
	if o.measure != "" {
		arguments = []string{"test/measure.mjs"}
	}
	command := exec.CommandContext(ctx, "node", arguments...)
	command.Dir, command.Stdout, command.Stderr = filepath.Join(o.root, "ui"), os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "UI_TEST="+file, "UI_RESULT="+o.measure)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	if err := command.Run(); err != nil {
		return errors.Join(fmt.Errorf("journeys: %w", err), c.process().Alive())
	}
	return nil
}
