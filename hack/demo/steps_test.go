package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// scripted returns a command that runs shell commands after loading steps.sh, with logs and times in dir.
func scripted(t *testing.T, dir, commands string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\ncd ../..\nLOGS="+dir+"/logs RECORD="+dir+"/record PLAIN=1\n"+
		"source hack/demo/steps.sh\nidentity() { echo same; }\n"+commands)
	command.Env = append(os.Environ(), "GOPROXY=https://proxy.example.org")
	return command
}

func TestStepsSayWhatIsLeftAndKeepTheirOutputToThemselves(t *testing.T) {
	dir := t.TempDir()
	const commands = `
FROM_NOTHING=([check]=1 [cluster]=170 [demo]=61) AGAIN=([check]=1 [cluster]=1 [demo]=20)
begin check cluster demo
noisy() { echo noise; }
step check "Check" noisy; step cluster "Build" noisy; show_step demo "Demo" noisy`
	output, err := scripted(t, dir, commands).CombinedOutput()
	want := "1/3  Check (about 4 min left)\n     done after 0 s\n2/3  Build (about 4 min left)\n     done after 0 s\n3/3  Demo (about 1 min left)\nnoise\n"
	if err != nil || string(output) != want {
		t.Errorf("from nothing: want\n%s\ngot (error %v)\n%s", want, err, output)
	}
	// The times of the first run, and its marks, are known to the second.
	output, err = scripted(t, dir, commands).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(output), "1/3  Check (less than a minute left)\n") {
		t.Errorf("again: want less than a minute, got (error %v)\n%s", err, output)
	}
}

func TestRemainingTimeFollowsTheSpeedOfTheMachine(t *testing.T) {
	output, err := scripted(t, t.TempDir(), `
FROM_NOTHING=([download]=60 [cluster]=240 [demo]=120)
begin download cluster demo
finish_step download 120
remaining cluster 0; remaining cluster 240; remaining demo 0`).CombinedOutput()
	want := "about 10 min left\nabout 6 min left\nabout 2 min left\n"
	if err != nil || string(output) != want {
		t.Errorf("half as fast as expected, except for the demo itself: want\n%s\ngot (error %v)\n%s", want, err, output)
	}
}

func TestFailedStepShowsTheEndOfItsLogAndAWayOut(t *testing.T) {
	dir := t.TempDir()
	output, err := scripted(t, dir, `
begin check download
step check "Check" true
bad() { seq 100; echo "Get proxy: dial tcp: connection refused"; false; echo "went on after a failure"; }
step download "Download" bad`).CombinedOutput()
	if err == nil {
		t.Error("want a failure")
	}
	for _, want := range []string{
		"2/2  Download: failed", "     100\n", "dial tcp: connection refused", "The whole log: " + dir + "/logs/2-download.log", "GOPROXY=https://proxy.example.org",
	} {
		if !strings.Contains(string(output), want) {
			t.Errorf("want %q in\n%s", want, output)
		}
	}
	for _, wrong := range []string{"     50\n", "went on"} {
		if strings.Contains(string(output), wrong) {
			t.Errorf("do not want %q in\n%s", wrong, output)
		}
	}
}

// Compilers that go on after an interruption would slow down the next start, and hold its files.
func TestInterruptionEndsEverythingThatRuns(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "alive")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	command := scripted(t, dir, `
begin check
long() { exec 7>`+pipe+`; echo started >&7; sleep 600 & wait; }
step check "Check" long`)
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	// Opening waits for the step, and reading to the end waits for the last program that has the pipe.
	alive, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	if _, err := bufio.NewReader(alive).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, alive); ended <- err }()
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 143 || !strings.Contains(output.String(), "Interrupted") {
		t.Errorf("want exit status 143 and a word about it, got %d and\n%s", code, output.String())
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a program of the step still runs")
	}
}
