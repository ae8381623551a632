// Command measured runs another command and writes what it took.
//
//	measured -out FILE [-secret PATH=CONTENT] COMMAND [ARGUMENT…]
//
// It is a program of its own because the kernel counts the memory of the process that starts another one as that one's
// peak: this one is so small that it does not matter.
//
// With -secret it covers /run by an empty file system first and puts a file there, where a pod would have it. That is
// meant for a mount namespace of its own (unshare --mount).
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

// taken is what is written. The fields are those that the benchmarks read.
type taken struct {
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

// place writes the file, on a file system of its own.
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

// measure runs the command to its end. That it fails is a result, too.
func measure(command []string) (taken, error) {
	run := exec.Command(command[0], command[1:]...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The signal comes when the thread ends that started the command, so this one must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	start := time.Now()
	err := run.Run()
	wall := time.Since(start)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return taken{}, err
	}
	usage, ok := run.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return taken{}, errors.New("this system does not tell what a process used")
	}
	return taken{
		Wall: wall, CPU: run.ProcessState.UserTime() + run.ProcessState.SystemTime(),
		PeakRSS: usage.Maxrss << 10, ExitCode: run.ProcessState.ExitCode(), // Linux counts in KiB
	}, nil
}
