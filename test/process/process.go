// Package process runs programs for the benchmarks and the crash test: those under test, and those that they need.
//
// The log of each program is kept in a file and is part of the error when the program ends too early. The package knows nothing about
// the purpose of the programs.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/scanner-operator/scanner-operator/test/wait"
)

// Process is a child process.
type Process struct {
	name    string
	command *exec.Cmd
	log     string
	ended   chan struct{}
}

// Start starts a command. Its log is the file <name>.log in dir.
func Start(dir, name string, command *exec.Cmd) (*Process, error) {
	p := &Process{name: name, command: command, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = command.Wait() // only the end matters, not the exit code
		close(p.ended)
	}()
	return p, nil
}

// Alive returns an error with the end of the log if the process has ended. The error makes Eventually return at once.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		log, _ := os.ReadFile(p.log)
		return wait.Final(fmt.Errorf("%s has ended: %s", p.name, log[max(0, len(log)-2000):]))
	default:
		return nil
	}
}

// Logged returns how often a text is in the log.
func (p *Process) Logged(text string) int {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return 0
	}
	return bytes.Count(log, []byte(text))
}

// Stop terminates the process, and kills it after 30 seconds. A nil Process is stopped already.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
		return nil
	case <-time.After(30 * time.Second):
		return p.command.Process.Kill()
	}
}

// Kill kills the process with SIGKILL and waits for its end.
func (p *Process) Kill() error {
	err := p.command.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.ended
	return err
}

// Suspend suspends the process for a time, as a node does whose processors are taken away.
func (p *Process) Suspend(d time.Duration) error {
	if err := p.command.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d)
	return p.command.Process.Signal(syscall.SIGCONT)
}

// PID returns the process ID.
func (p *Process) PID() int { return p.command.Process.Pid }

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Memory returns the current and the peak resident memory in bytes. The peak is measured since the start or the last ResetPeak.
func (p *Process) Memory() (current, peak int64, err error) {
	values, err := p.status("VmRSS", "VmHWM")
	if err != nil {
		return 0, 0, err
	}
	return values[0], values[1], nil
}

// AnonymousMemory returns the part of the current resident memory, in bytes, that is no part of a file: pages of the program's file do not count.
func (p *Process) AnonymousMemory() (int64, error) {
	values, err := p.status("RssAnon")
	if err != nil {
		return 0, err
	}
	return values[0], nil
}

// status returns values of /proc/PID/status in bytes (https://man7.org/linux/man-pages/man5/proc_pid_status.5.html).
func (p *Process) status(names ...string) ([]int64, error) {
	status, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return nil, err
	}
	values := make([]int64, len(names))
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		i := slices.Index(names, name)
		if i < 0 {
			continue
		}
		if _, err := fmt.Sscan(value, &values[i]); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		values[i] <<= 10 // kibibytes
	}
	return values, nil
}

// ResetPeak resets the peak to the current resident memory (5 in clear_refs,
// https://man7.org/linux/man-pages/man5/proc_pid_clear_refs.5.html).
func (p *Process) ResetPeak() error { return os.WriteFile(p.proc("clear_refs"), []byte("5"), 0) }

// ticks is the number of clock ticks per second in /proc/PID/stat, on all of Linux' architectures
// (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
const ticks = 100

// CPU returns the processor time of the process, in user and in kernel mode.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := os.ReadFile(p.proc("stat"))
	if err != nil {
		return 0, err
	}
	// The program name, in parentheses, may contain any character. The state follows it as the third field.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const userTime, systemTime = 14 - 3, 15 - 3
	var user, system int64
	if len(fields) <= systemTime {
		return 0, fmt.Errorf("%q is no /proc/PID/stat", stat)
	}
	if _, err := fmt.Sscan(fields[userTime]+" "+fields[systemTime], &user, &system); err != nil {
		return 0, fmt.Errorf("%q: %w", stat, err)
	}
	return time.Duration(user+system) * time.Second / ticks, nil
}

func (p *Process) proc(file string) string {
	return fmt.Sprintf("/proc/%d/%s", p.command.Process.Pid, file)
}

// FreeAddress returns a loopback address, host:port, that is not in use, and its port. The port is below those that Linux gives to connections
// (32768 and higher) and to Services of type NodePort (30000 and higher), so it stays free until the caller listens.
func FreeAddress() (address, port string, err error) {
	const first, end, attempts = 16384, 30000, 100
	for range attempts {
		port = strconv.Itoa(first + rand.IntN(end-first))
		address = net.JoinHostPort("127.0.0.1", port)
		var listener net.Listener
		if listener, err = net.Listen("tcp", address); err == nil {
			return address, port, listener.Close()
		}
	}
	return "", "", err
}
