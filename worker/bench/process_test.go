package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/worker/fixture"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// taken is what a process took, as test/bench/measured writes it.
type taken struct {
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
	// core is the only processor that it may use; negative means all. The Go runtime counts processors by this.
	core int
	// output is the file for its standard output; empty for none.
	output string
	// asWorker gives it the token that a pod of the operator has.
	asWorker bool
}

// measure runs a program and reads what it took. It fails the test when the program fails.
func (s settings) measure(t *testing.T, p program) taken {
	t.Helper()
	result := filepath.Join(t.TempDir(), "taken.json")
	var args []string
	if p.asWorker {
		// The worker reads its token at a fixed path. In a mount namespace of its own, that path is nobody else's.
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
	var took taken
	if err := json.Unmarshal(raw, &took); err != nil {
		t.Fatal(err)
	}
	if took.ExitCode != 0 {
		t.Fatalf("%q ended with %d%s", p.args, took.ExitCode, tail(t, log.Name()))
	}
	return took
}

// tail is the end of a log, to be put after a message.
func tail(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + string(raw[max(0, len(raw)-4096):])
}
