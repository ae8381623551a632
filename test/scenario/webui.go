package scenario

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// webUITest is the input of ui/test/demo.mjs and upgrade.mjs. Its first fields are those of ui/test/person.mjs.
type webUITest struct {
	URL       string            `json:"url"`
	Browser   string            `json:"browser"`
	Output    string            `json:"output"`
	Tokens    map[string]string `json:"tokens"`
	Namespace string            `json:"namespace"`
	// Overview is for demo.mjs, Image for upgrade.mjs.
	Overview *restv1.Overview `json:"overview,omitempty"`
	Image    string           `json:"image,omitempty"`
}

// CheckWebUI opens the web UI in Chromium as a viewer of the namespace in production, and compares the numbers on its pages with those of the
// REST API, which must be the Scanner's. Without what that needs, its result says that nothing was checked, and why.
func (e *Environment) CheckWebUI(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	browser, reason := e.findBrowser()
	if reason != "" {
		return "SKIPPED: " + reason, nil
	}
	scanner, err := e.Scanner(ctx, e.Production())
	if err != nil {
		return "", err
	}
	overview, err := e.Overview(ctx, e.Production())
	if err != nil {
		return "", err
	}
	if got, want := countsOf(overview.Findings), numbers(scanner.Status.Findings); got != want {
		return "", fmt.Errorf("the REST API has %v, the Scanner has %v", got, want)
	}
	token, err := e.Viewer(ctx, e.Production())
	if err != nil {
		return "", err
	}
	url, client, err := e.ForwardAPI(ctx)
	if err != nil {
		return "", err
	}
	if page, err := get(ctx, client, url+"/", token); err != nil || strings.Contains(page, "make ui") {
		return "SKIPPED: the manager's image has no web UI: it was built without Node.js 20.19 or newer with npm", err
	}
	test := webUITest{URL: url, Browser: browser, Output: e.bin("demo-logs"), Tokens: map[string]string{"viewer": token}, Namespace: e.Production(), Overview: overview}
	var result strings.Builder
	err = e.runInBrowser(ctx, test, nil, &result, "node", "test/demo.mjs")
	return strings.TrimSpace(result.String()), err
}

// KeepWebUIOpen opens the images of a namespace and the page about the operator in Chromium, with a token that may see all namespaces, and returns
// when they are open. finish waits until they show the present replicas and an image of the repository, which they did not show when they were opened.
// Its error says what a page has shown that it must not: an error, a sign-in, an error in the console, or that it was loaded again.
func (e *Environment) KeepWebUIOpen(ctx context.Context, url, token, namespace, repository string) (finish func() error, err error) {
	browser, reason := e.findBrowser()
	if reason != "" {
		return nil, errors.New(reason)
	}
	test := webUITest{URL: url, Browser: browser, Output: e.bin("screenshots"), Tokens: map[string]string{"viewer": token}, Namespace: namespace, Image: repository}
	// The script ends when its input ends.
	input, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, printed := io.Pipe()
	go func() {
		err := e.runInBrowser(ctx, test, input, printed, filepath.Join(e.Root, "hack", "cluster", "apart.sh"), "node", "test/upgrade.mjs")
		printed.CloseWithError(errors.Join(err, input.Close()))
	}()
	rest := bufio.NewReader(out)
	if _, err := rest.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("opening the web UI: %w", errors.Join(err, end.Close()))
	}
	return func() error {
		err := end.Close()
		_, failed := io.Copy(io.Discard, rest)
		return errors.Join(err, failed)
	}, nil
}

// findBrowser returns the path of Chromium, or why no page can be opened.
func (e *Environment) findBrowser() (browser, reason string) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", "Node.js is not installed"
	}
	if _, err := os.Stat(filepath.Join(e.Root, "ui", "node_modules", "playwright-core")); err != nil {
		return "", "ui/node_modules has no playwright-core: run make ui"
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, ""
		}
	}
	return "", "Chromium is not installed"
}

// runInBrowser runs a command with a script of ui/ for a test, which the script finds in a file that only this user may read.
func (e *Environment) runInBrowser(ctx context.Context, test webUITest, in *os.File, out io.Writer, name string, args ...string) error {
	dir, err := os.MkdirTemp("", "scanner-demo-ui-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	text, err := json.Marshal(test)
	file := filepath.Join(dir, "input.json")
	if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env = filepath.Join(e.Root, "ui"), append(os.Environ(), "UI_TEST="+file)
	var stderr bytes.Buffer
	command.Stdout, command.Stderr = out, &stderr
	if in != nil {
		command.Stdin = in
	}
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, stderr.String())
	}
	return nil
}
