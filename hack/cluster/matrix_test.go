package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// matrix runs matrix.sh with a stand-in for cluster.sh that records its arguments and the Kubernetes version.
func matrix(t *testing.T, versions, command string) (output, recorded string, err error) {
	t.Helper()
	dir := t.TempDir()
	standIn := filepath.Join(dir, "cluster")
	script := "#!/bin/sh\n" + `echo "$1 $KUBERNETES_VERSION $CLUSTER_NAME" >>"` + dir + `/recorded"; [ "$1 $KUBERNETES_VERSION" != "up 1.0" ]`
	if err := os.WriteFile(standIn, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "./matrix.sh", "bash", "-c", command)
	run.Env = append(os.Environ(), "CLUSTER="+standIn, "VERSIONS="+versions, "LOGS="+filepath.Join(dir, "logs"), "CLUSTER_NAME=")
	text, err := run.CombinedOutput()
	written, readErr := os.ReadFile(filepath.Join(dir, "recorded"))
	if readErr != nil {
		t.Fatalf("no cluster was asked for: %v\n%s", readErr, text)
	}
	return string(text), string(written), err
}

func TestMatrixGoesOnAfterAFailureAndReportsIt(t *testing.T) {
	output, calls, err := matrix(t, "1.33 1.34 1.35", `echo "--- PASS: TestA"; [ "$KUBERNETES_VERSION" != 1.34 ] || { echo "--- FAIL: TestB"; false; }`)
	if err == nil {
		t.Error("one version failed: want an exit status that says so")
	}
	for _, want := range []string{"| 1.33       | passed |      1 |      0 |", "| 1.34       | FAILED |      1 |      1 |", "| 1.35       | passed |      1 |      0 |", "--- FAIL: TestB"} {
		if !strings.Contains(output, want) {
			t.Errorf("want %q in\n%s", want, output)
		}
	}
	for _, want := range []string{"up 1.33 matrix", "up 1.34 matrix\ndown 1.34 matrix", "up 1.35 matrix\ndown 1.35 matrix"} {
		if !strings.Contains(calls, want) {
			t.Errorf("the clusters: want %q in\n%s", want, calls)
		}
	}
}

func TestMatrixSucceedsWhenAllVersionsDo(t *testing.T) {
	if output, _, err := matrix(t, "1.33 1.36", "true"); err != nil {
		t.Errorf("want success, got %v\n%s", err, output)
	}
}

func TestMatrixReportsAClusterThatDoesNotStart(t *testing.T) {
	output, _, err := matrix(t, "1.0", "echo the command ran")
	if err == nil || !strings.Contains(output, "| 1.0        | FAILED |") {
		t.Errorf("want a failed version, got %v\n%s", err, output)
	}
	if strings.Contains(output, "the command ran") {
		t.Error("the command ran without a cluster")
	}
}
