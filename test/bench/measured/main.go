// Command measured runs another command and writes the resources that it used.
//
//	measured -out FILE [-secret PATH=CONTENT] COMMAND [ARGUMENT…]
//
// It is a separate program because the kernel counts the memory of the parent process towards the child's peak. This program is too
// small to affect the result.
//
// With -secret it mounts an empty file system over /run and creates a file there, where a pod would have it. This requires a mount
// namespace of its own (unshare --mount).
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// measurement is the result. The benchmarks read these fields.
type measurement struct {
	Wall     time.Duration `json:"wall"`
	CPU      time.Duration `json:"cpu"`
	PeakRSS  int64         `json:"peakRSS"` // bytes
	ExitCode int           `json:"exitCode"`
}

func main() {
	out := flag.String("out", "", "`file` for what was measured")
	secret := flag.String("secret", "", "`path=content` of a file below /run")
	flag.Parse()
	if err := run(*out, *secret, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "measured:", err)
		os.Exit(1)
	}
}

func run(out, secret string, command []string) error {
	if len(command) == 0 {
		return errors.New("usage: measured -out FILE [-secret PATH=CONTENT] COMMAND [ARGUMENT…]")
	}
	if secret != "" {
		if err := place(secret); err != nil {
			return err
		}
	}
	result, err := measure(command)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return os.WriteFile(out, raw, 0o600)
}

// place writes the secret's file to a new file system at /run.
func place(secret string) error {
	path, content, found := strings.Cut(secret, "=")
	if !found || path == "" {
		return errors.New("-secret must be PATH=CONTENT")
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("covering /run (is this a mount namespace of its own?): %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

// measure runs the command to its end. A failure of the command is a result, not an error.
func measure(command []string) (measurement, error) {
	run := exec.Command(command[0], command[1:]...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The kernel sends the death signal when the thread that started the command ends, so the goroutine must stay on its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	start := time.Now()
	err := run.Run()
	wall := time.Since(start)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return measurement{}, err
	}
	usage, ok := run.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return measurement{}, errors.New("this system does not tell what a process used")
	}
	return measurement{
		Wall: wall, CPU: run.ProcessState.UserTime() + run.ProcessState.SystemTime(),
		PeakRSS: usage.Maxrss << 10, ExitCode: run.ProcessState.ExitCode(), // Linux counts in KiB
	}, nil
}
