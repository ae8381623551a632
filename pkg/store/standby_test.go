package store

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// standby is a PostgreSQL server that follows another one until it is promoted.
type standby struct {
	port     int
	dir, bin string
	account  *syscall.SysProcAttr
}

// startStandby starts a standby of a server, and stops it at the end of the test.
func startStandby(t *testing.T, primary *server.Server) *standby {
	t.Helper()
	owner := got[os.FileInfo](t)(os.Stat(primary.Dir)).Sys().(*syscall.Stat_t)
	s := &standby{dir: filepath.Join(primary.Dir, "standby"), account: &syscall.SysProcAttr{}}
	if os.Geteuid() == 0 {
		s.account.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	found := got[[]string](t)(filepath.Glob("/usr/lib/postgresql/*/bin/pg_basebackup"))
	if len(found) == 0 {
		t.Skip("pg_basebackup is not installed (Debian: apt-get install postgresql)")
	}
	s.bin = filepath.Dir(found[len(found)-1])
	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	s.port = listener.Addr().(*net.TCPAddr).Port
	must(t, listener.Close())
	s.run(t, "pg_basebackup", "-h", "127.0.0.1", "-p", fmt.Sprint(primary.Port), "-U", "postgres", "-D", s.dir, "-R", "--checkpoint=fast", "--no-sync")
	// A standby must take as many connections as its primary.
	s.run(t, "pg_ctl", "start", "-w", "-D", s.dir, "-l", s.dir+".log", "-o", fmt.Sprintf("-p %d -h 127.0.0.1 -k %s -c fsync=off -c max_connections=300 -c hba_file=%s", s.port, s.dir, filepath.Join(primary.Dir, "pg_hba.conf")))
	t.Cleanup(func() { s.run(t, "pg_ctl", "stop", "-w", "-m", "immediate", "-D", s.dir) })
	return s
}

func (s *standby) run(t *testing.T, program string, args ...string) {
	t.Helper()
	command := exec.Command(filepath.Join(s.bin, program), args...)
	command.Dir, command.SysProcAttr = filepath.Dir(s.dir), s.account
	log := got[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "log")))
	defer log.Close()
	command.Stdout, command.Stderr = log, log // no pipe, which a server that stays would keep open
	if err := command.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%s: %v: %s", program, err, text)
	}
}

// promote makes the standby the primary.
func (s *standby) promote(t *testing.T) {
	t.Helper()
	s.run(t, "pg_ctl", "promote", "-w", "-D", s.dir)
}

// waitUntil waits for what another process does.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 30 seconds: %s", what)
		}
	}
}
