package page

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Machine is what the figures depend on.
type Machine struct {
	// Processor is the model's name.
	Processor  string
	Processors int
	// Memory in bytes.
	Memory int64
	// Kernel is its release, Go the version of the compiler.
	Kernel, Go string
}

// ThisMachine reads what Linux says about it.
func ThisMachine() (Machine, error) {
	processor, err := valueIn("/proc/cpuinfo", "model name")
	if err != nil {
		return Machine{}, err
	}
	memory, err := valueIn("/proc/meminfo", "MemTotal")
	if err != nil {
		return Machine{}, err
	}
	var kibibytes int64
	if _, err := fmt.Sscan(memory, &kibibytes); err != nil {
		return Machine{}, fmt.Errorf("/proc/meminfo: MemTotal is %q: %w", memory, err)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return Machine{}, err
	}
	return Machine{
		Processor: processor, Processors: runtime.NumCPU(), Memory: kibibytes << 10,
		Kernel: strings.TrimSpace(string(kernel)), Go: runtime.Version(),
	}, nil
}

// Load is the load average of the last minute, as Linux says it: how many programs wanted a processor.
func Load() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 0, fmt.Errorf("/proc/loadavg: %q: %w", text, err)
	}
	return load, nil
}

// valueIn finds "name : value" in a file. Some processors have no model's name: that is no error.
func valueIn(file, name string) (string, error) {
	opened, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer opened.Close()
	lines := bufio.NewScanner(opened)
	for lines.Scan() {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "unknown", lines.Err()
}

// Commit names the source in dir: the commit, and a "+" when something else than the page itself differs from it.
func Commit(ctx context.Context, dir, page string) (string, error) {
	commit, err := git(ctx, dir, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git(ctx, dir, "status", "--porcelain", "--", ".", ":!"+page)
	if err != nil {
		return "", err
	}
	if changed != "" {
		commit += "+"
	}
	return "commit " + commit, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
