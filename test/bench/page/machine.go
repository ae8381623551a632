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

// Machine describes the machine of a measurement.
type Machine struct {
	// Processor is the name of the model.
	Processor  string
	Processors int
	// Memory is in bytes.
	Memory int64
	// Kernel is the kernel release, Go the compiler version.
	Kernel, Go string
}

// ThisMachine describes this machine from Linux's /proc.
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

// Load returns the load average of the last minute, from /proc/loadavg.
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

// valueIn returns the value of "name : value" in a file, or "unknown" if there is none: some processors have no model name.
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

// Commit returns the commit of the source in dir, with a "+" if a file other than the page differs from it.
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
