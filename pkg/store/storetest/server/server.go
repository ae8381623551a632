// Package server runs PostgreSQL and MariaDB for tests, from the programs that the machine has. Each server is private to one process of
// tests: it has its own folder below the folder for temporary files, and listens only on a loopback port and on a Unix socket in its
// folder. It trusts its administrator without a password, loses data when the machine crashes, and ends with the process that started it,
// however that process ends.
//
// PostgreSQL and MariaDB return the server that the tests of a process share, and a test makes its own databases there. StartPostgreSQL and
// StartMariaDB start one for a single test that stops it, kills it or configures it. A test is skipped if the programs are missing; with
// STORE_TEST_REQUIRE=1 in the environment it fails instead.
//
// The package does not import the store, so that the store's own tests can use it.
package server

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Require is the environment variable that makes a test fail, instead of being skipped, if a server is not installed.
const Require = "STORE_TEST_REQUIRE"

// timeout bounds each start and each stop of a server.
const timeout = time.Minute

// Options configure a server of a single test.
type Options struct {
	// Settings are set at each start of the server, by their names in its configuration file. They override those for tests.
	Settings map[string]string
	// Init are further arguments of initdb or mariadb-install-db, such as --locale=tr_TR.UTF-8.
	Init []string
}

// kind is what differs between PostgreSQL and MariaDB.
type kind struct {
	name, debianPackage string
	// external is the environment variable with the DSN of a running server that the tests share instead of their own.
	external string
	// create and serve are the programs that create the files of a server and serve them. folders is where they are besides PATH, as a glob.
	create, serve, folders string
	// account runs the server if the tests run as root, which the servers refuse.
	account string
	// files are written into the server's folder first.
	files      map[string]string
	createArgs func(dir string) []string
	serveArgs  func(dir string, port int, settings map[string]string) []string
	// settings trade durability for speed. They are the ones of all servers.
	settings map[string]string
	// stop ends the server in an orderly way, kill as a crash would.
	stop, kill syscall.Signal
	// driver and dsn are how the administrator connects.
	driver string
	dsn    func(port int) string
	// inDatabase returns the DSN for another database of the server.
	inDatabase func(dsn, database string) (string, error)
	// drop is the statement that drops a database, without its name.
	drop string
	// copies is true if CREATE DATABASE copies a database.
	copies bool
}

// Server is a database server. Its methods may be called concurrently, except for those that start and end it.
type Server struct {
	// Port is its port on 127.0.0.1. It stays the same when the server is started again. 0 means that the server is not one of this process.
	Port int
	// Dir is its folder: the socket is in it, and the files of the databases are in Dir/data.
	Dir string
	// LogFile is what the server logs, over all of its starts.
	LogFile string

	kind      *kind
	dsn       string // the administrator's
	admin     *sql.DB
	options   Options
	account   *syscall.Credential
	process   *os.Process
	ended     chan struct{} // closed when process has ended
	reaper    io.Closer
	databases atomic.Int64
	template  templateDatabase
	free      freeDatabases
}

var shared = map[*kind]func() (*Server, error){
	&postgreSQL: sync.OnceValues(func() (*Server, error) { return sharedServer(&postgreSQL) }),
	&mariaDB:    sync.OnceValues(func() (*Server, error) { return sharedServer(&mariaDB) }),
}

// PostgreSQL returns the PostgreSQL server that all tests of the process share: the one of the DSN in STORE_TEST_POSTGRESQL, if there is
// one. It skips the test if PostgreSQL is not installed.
func PostgreSQL(t testing.TB) *Server { t.Helper(); return get(t, &postgreSQL, shared[&postgreSQL]) }

// MariaDB returns the MariaDB server that all tests of the process share: the one of the DSN in STORE_TEST_MYSQL, which may be a MySQL
// server, if there is one. It skips the test if MariaDB is not installed.
func MariaDB(t testing.TB) *Server { t.Helper(); return get(t, &mariaDB, shared[&mariaDB]) }

// StartPostgreSQL starts a PostgreSQL server for this test, and stops it at the end of the test. It skips the test if PostgreSQL is not
// installed.
func StartPostgreSQL(t testing.TB, options Options) *Server {
	t.Helper()
	return startOwn(t, &postgreSQL, options)
}

// StartMariaDB starts a MariaDB server for this test, and stops it at the end of the test. It skips the test if MariaDB is not installed.
func StartMariaDB(t testing.TB, options Options) *Server {
	t.Helper()
	return startOwn(t, &mariaDB, options)
}

// New starts a server, PostgreSQL or MariaDB, for a program that is not a test, such as the crash test. The program must call Close.
func New(product string, options Options) (*Server, error) {
	for _, k := range []*kind{&postgreSQL, &mariaDB} {
		if k.name != product {
			continue
		}
		s, err := start(k, options)
		if errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%s is not installed (Debian: apt-get install %s)", k.name, k.debianPackage)
		}
		return s, err
	}
	return nil, fmt.Errorf("%q is not a server that is known here", product)
}

// Close ends the server and removes its folder.
func (s *Server) Close() error { return s.close() }

// Create creates an empty database, and returns its DSN as the administrator has it.
func (s *Server) Create(database string) (dsn string, err error) {
	if err := s.exec(`CREATE DATABASE ` + database); err != nil {
		return "", err
	}
	return s.kind.inDatabase(s.dsn, database)
}

func startOwn(t testing.TB, k *kind, options Options) *Server {
	t.Helper()
	s := get(t, k, func() (*Server, error) { return start(k, options) })
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t testing.TB, k *kind, open func() (*Server, error)) *Server {
	t.Helper()
	s, err := open()
	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv(Require) == "":
		t.Skipf("%s is not installed (Debian: apt-get install %s): the store's tests run without it", k.name, k.debianPackage)
	case err != nil:
		t.Fatal(err)
	}
	return s
}

func sharedServer(k *kind) (*Server, error) {
	dsn := os.Getenv(k.external)
	if dsn == "" {
		return start(k, Options{})
	}
	s := &Server{kind: k, dsn: dsn}
	return s, s.connect()
}

// start creates the files of a server in a new folder and starts it.
func start(k *kind, options Options) (s *Server, err error) {
	create, err := k.find(k.create)
	if err != nil {
		return nil, err
	}
	if _, err := k.find(k.serve); err != nil {
		return nil, err
	}
	s = &Server{kind: k, options: options}
	if s.Dir, err = os.MkdirTemp("", "store-test-"+k.serve+"-"); err != nil {
		return nil, err
	}
	s.LogFile = filepath.Join(s.Dir, "log")
	if err := s.startReaper(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.Dir))
	}
	if err := errors.Join(s.asAccount(), s.writeFiles()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if output, err := s.command(create, append(k.createArgs(s.Dir), options.Init...)).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %s", k.create, err, output), s.close())
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *Server) writeFiles() error {
	for name, text := range s.kind.files {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// asAccount lets another account run the server if the tests run as root.
func (s *Server) asAccount() error {
	if os.Geteuid() != 0 {
		return nil
	}
	account, err := user.Lookup(s.kind.account)
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return fmt.Errorf("%s does not run as root: %w", s.kind.name, err)
	}
	uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
	s.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(errUID, errGID, os.Chown(s.Dir, int(uid), int(gid)))
}

// reap waits until its standard input ends, then ends the server with signal $2 and removes its folder $1. Where nothing waits for a process
// without a parent, it stays as a zombie.
const reap = `cat >/dev/null
if read -r pid <"$1/pid" && kill -"$2" "$pid"; then
  for _ in $(seq 200); do
    if ! kill -0 "$pid" || grep -q "^State:.Z" "/proc/$pid/status"; then break; fi
    sleep 0.05
  done
fi
rm -rf "$1"`

// startReaper starts a program that ends the server and removes its folder as soon as this process has ended: that also works if the
// process is killed.
func (s *Server) startReaper() error {
	cmd := exec.CommandContext(context.Background(), "sh", "-c", reap, "reaper", s.Dir, strconv.Itoa(int(s.kind.kill)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it must outlive an interruption from the terminal
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.reaper = closer(func() error { return errors.Join(input.Close(), cmd.Wait()) })
	return nil
}

type closer func() error

func (c closer) Close() error { return c() }

func (s *Server) command(program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.account}
	return cmd
}

// close ends the server and removes its folder.
func (s *Server) close() error {
	return errors.Join(s.end(s.kind.kill), s.reaper.Close())
}

// Start starts the server after Stop or Kill, and returns when it accepts connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Stop ends the server in an orderly way: it disconnects its clients, writes its files and ends.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.end(s.kind.stop); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the server without an orderly shutdown, so that the next start is one after a crash.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.end(s.kind.kill); err != nil {
		t.Fatal(err)
	}
}

// Set changes settings from the next start on.
func (s *Server) Set(settings map[string]string) {
	s.options.Settings = merged(s.options.Settings, settings)
}

// start starts the server on its files. Another program may take the port between its choice and the start, so a new server tries others.
func (s *Server) start() (err error) {
	if s.process != nil {
		return errors.New("the server runs already")
	}
	isNew := s.Port == 0
	for range 3 {
		if isNew {
			if s.Port, err = freePort(); err != nil {
				return err
			}
			s.dsn = s.kind.dsn(s.Port)
		}
		if err = s.serve(); err == nil || !isNew {
			return err
		}
	}
	return err
}

func freePort() (int, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

func (s *Server) serve() error {
	program, err := s.kind.find(s.kind.serve)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command(program, s.kind.serveArgs(s.Dir, s.Port, merged(s.kind.settings, s.options.Settings)))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process, s.ended = cmd.Process, make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // how it has ended is in its log
	}()
	err = os.WriteFile(filepath.Join(s.Dir, "pid"), []byte(strconv.Itoa(s.process.Pid)+"\n"), 0o600)
	if err == nil {
		err = s.connect()
	}
	if err == nil {
		err = s.awaitReady()
	}
	if err != nil {
		return errors.Join(err, s.end(s.kind.kill))
	}
	return nil
}

// awaitReady returns when the server accepts connections.
func (s *Server) awaitReady() error {
	deadline, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for again := time.NewTicker(20 * time.Millisecond); ; {
		err := s.admin.PingContext(deadline)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-s.ended:
			return fmt.Errorf("%s has ended: %s", s.kind.name, s.lastLog())
		case <-deadline.Done():
			return fmt.Errorf("%s does not accept connections: %w: %s", s.kind.name, err, s.lastLog())
		}
	}
}

// lastLog returns the end of the server's log.
func (s *Server) lastLog() []byte {
	text, _ := os.ReadFile(s.LogFile)
	lines := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], nil)
}

// end ends the server with a signal, and does nothing if it does not run.
func (s *Server) end(signal syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(timeout):
		return fmt.Errorf("%s has not ended: %s", s.kind.name, s.lastLog())
	}
	s.process = nil
	if s.admin != nil {
		s.admin.Close()
	}
	return os.Remove(filepath.Join(s.Dir, "pid"))
}

// find returns the path of a program: the one in PATH, or else the one of the newest version.
func (k *kind) find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if found, _ := filepath.Glob(filepath.Join(k.folders, program)); len(found) > 0 {
		return slices.Max(found), nil
	}
	return "", err
}

// merged returns settings with those of more.
func merged(settings, more map[string]string) map[string]string {
	all := maps.Clone(settings)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, more)
	return all
}

// assignments returns settings as name=value, each after the prefix.
func assignments(prefix string, settings map[string]string) (args []string) {
	for name, value := range settings {
		args = append(args, prefix+name+"="+value)
	}
	slices.Sort(args)
	return args
}
