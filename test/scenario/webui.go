package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// webUITest is the input of ui/test/demo.mjs. Its first fields are those of ui/test/person.mjs.
type webUITest struct {
	URL       string            `json:"url"`
	Browser   string            `json:"browser"`
	Output    string            `json:"output"`
	Tokens    map[string]string `json:"tokens"`
	Namespace string            `json:"namespace"`
	Overview  *restv1.Overview  `json:"overview"`
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
	test := webUITest{url, browser, e.bin("demo-logs"), map[string]string{"viewer": token}, e.Production(), overview}
	result, err := e.runInBrowser(ctx, "test/demo.mjs", test)
	return strings.TrimSpace(result), err
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

// runInBrowser runs a script of ui/ with its input in a file that only this user may read, and returns what it prints.
func (e *Environment) runInBrowser(ctx context.Context, script string, input any) (string, error) {
	dir, err := os.MkdirTemp("", "scanner-demo-ui-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	text, err := json.Marshal(input)
	file := filepath.Join(dir, "input.json")
	if err := errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "node", script)
	command.Dir, command.Env = filepath.Join(e.Root, "ui"), append(os.Environ(), "UI_TEST="+file)
	var out, stderr bytes.Buffer
	command.Stdout, command.Stderr = &out, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("node %s: %w\n%s", script, err, stderr.String())
	}
	return out.String(), nil
}
