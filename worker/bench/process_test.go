package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/internal/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// usage is the resource usage of a process, as test/bench/measured writes it.
type usage struct {
	Wall     time.Duration `json:"wall"`
	CPU      time.Duration `json:"cpu"`
	PeakRSS  int64         `json:"peakRSS"`
	ExitCode int           `json:"exitCode"`
}

// program is a command to measure.
type program struct {
	args []string
	// environment is added to this process's.
	environment []string
	// core is the only processor that the program may use; negative means all. The Go runtime counts only the allowed processors.
	core int
	// output is the file for its standard output; empty for none.
	output string
	// asWorker gives the program the token of a worker's pod.
	asWorker bool
}

// measure runs a program and returns its resource usage. It fails the test if the program fails.
func (s settings) measure(t *testing.T, p program) usage {
	t.Helper()
	result := filepath.Join(t.TempDir(), "taken.json")
	var args []string
	if p.asWorker {
		// The worker reads its token at a fixed path, which its own mount namespace keeps apart from other processes.
		args = append(args, "unshare", "--mount")
		if os.Getuid() != 0 {
			args = append(args, "--map-root-user")
		}
	}
	if p.core >= 0 {
		args = append(args, "taskset", "--cpu-list", strconv.Itoa(p.core))
	}
	args = append(args, s.program("measured"), "-out", result)
	if p.asWorker {
		args = append(args, "-secret", workerapi.TokenFile+"="+fixture.Token)
	}
	args = append(args, p.args...)
	command := exec.CommandContext(t.Context(), args[0], args[1:]...)
	command.Env = append(os.Environ(), p.environment...)
	if p.output != "" {
		out, err := os.Create(p.output)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		command.Stdout = out
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command.Stderr = log
	err = command.Run()
	raw, readErr := os.ReadFile(result)
	if readErr != nil {
		t.Fatalf("%q: %v, %v%s", args, err, readErr, tail(t, log.Name()))
	}
	var took usage
	if err := json.Unmarshal(raw, &took); err != nil {
		t.Fatal(err)
	}
	if took.ExitCode != 0 {
		t.Fatalf("%q ended with %d%s", p.args, took.ExitCode, tail(t, log.Name()))
	}
	return took
}

// tail returns the end of a log, in a form to append to a message.
func tail(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + string(raw[max(0, len(raw)-4096):])
}
