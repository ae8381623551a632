package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// application is the user of an application, which owns a database, and the file with its data source name.
type application struct {
	file, database, password string
	port                     int
	options                  string
}

// newApplication creates a user with a password, and a database that the user owns.
func newApplication(t *testing.T, postgres *server.Server, options string) *application {
	t.Helper()
	a := &application{file: filepath.Join(t.TempDir(), "dsn"), database: "findings", password: canary, port: postgres.Port, options: options}
	postgres.Exec(t, `CREATE ROLE app LOGIN PASSWORD '`+a.password+`'`, `CREATE DATABASE `+a.database+` OWNER app`)
	a.write(t)
	return a
}

// write writes the file as kubectl and CloudNativePG do, with a line end.
func (a *application) write(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(a.file, fmt.Appendf(nil, "postgresql://app:%s@localhost:%d/%s%s\n", a.password, a.port, a.database, a.options), 0o600))
}

func (a *application) server() Server { return Server{DSN: DSNFromFile(a.file), MaxConnections: 3} }

func (a *application) open(t *testing.T) *Store {
	t.Helper()
	s := got[*Store](t)(OpenPostgreSQL(t.Context(), a.server(), newClock().Now))
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// disconnect ends all connections of the application, as a restart of the server does.
func disconnect(t *testing.T, postgres *server.Server) {
	t.Helper()
	postgres.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
}

// TestRotatedPassword: the store works on with connections that it has, and uses a new password from the file for new ones. Meanwhile the
// error says where to look. The password is in no error.
func TestRotatedPassword(t *testing.T) {
	postgres := server.StartPostgreSQL(t, server.Options{})
	a := newApplication(t, postgres, "?sslmode=disable")
	s := a.open(t)
	must(t, s.CheckHealth(t.Context()))

	const rotated = canary + "-rotated"
	postgres.Exec(t, `ALTER ROLE app PASSWORD '`+rotated+`'`)
	must(t, s.CheckHealth(t.Context()))
	disconnect(t, postgres)
	var err error
	for range 3 { // the first calls end what is left of the old connections
		err = s.CheckHealth(t.Context())
		_, readErr := s.Revision(t.Context())
		err = errors.Join(err, readErr)
	}
	if !errors.Is(s.Health(), ErrServerPermission) {
		t.Errorf("with the old password, the health is %v, want ErrServerPermission", s.Health())
	}
	if err == nil || !strings.Contains(err.Error(), "store.dsnFile") || strings.Contains(err.Error(), canary) {
		t.Errorf("with the old password: %v, want where to look and no password", err)
	}

	a.password = rotated
	a.write(t)
	requireRecovery(t, s)
	if _, err = s.Revision(t.Context()); err != nil {
		t.Errorf("with the new password: %v", err)
	}
}

// requireRecovery fails the test unless the fault of a store ends by itself, within the checks of a minute and a half.
func requireRecovery(t *testing.T, s *Store) {
	t.Helper()
	var err error
	for range 3 {
		if err = s.CheckHealth(t.Context()); err == nil {
			return
		}
	}
	t.Errorf("the fault has not ended: %v", err)
}

// TestPostgreSQLReadOnly: a second process reads what the first has committed, and can change nothing.
func TestPostgreSQLReadOnly(t *testing.T) {
	postgres := server.StartPostgreSQL(t, server.Options{})
	a := newApplication(t, postgres, "?sslmode=disable")
	if _, err := OpenPostgreSQLReadOnly(t.Context(), a.server()); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("before there is a store: %v, want to try again", err)
	}
	s := a.open(t)
	must(t, s.CheckHealth(t.Context()))
	beside := got[*Store](t)(OpenPostgreSQLReadOnly(t.Context(), a.server()))
	defer beside.Close()
	if beside.ID() != s.ID() {
		t.Errorf("the ID is %s, want %s", beside.ID(), s.ID())
	}
	want := got[int64](t)(s.Revision(t.Context()))
	if revision := got[int64](t)(beside.Revision(t.Context())); revision != want || want == 0 {
		t.Errorf("the revision is %d, want %d", revision, want)
	}
	if err := beside.CheckHealth(t.Context()); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a write: %v, want ErrReadOnly", err)
	}
}

// TestPostgreSQLTLS: the server's certificate must be from the authority in the file and have the host's name. The file is read for each
// connection.
func TestPostgreSQLTLS(t *testing.T) {
	postgres := server.StartPostgreSQL(t, server.Options{})
	first, second := newAuthority(t), newAuthority(t)
	serve := func(by authority, name string) {
		certificate, key := filepath.Join(postgres.Dir, "server.crt"), filepath.Join(postgres.Dir, "server.key")
		by.issue(t, certificate, key, name)
		postgres.Stop(t)
		postgres.Set(map[string]string{"ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": key})
		postgres.Start(t)
	}
	serve(first, "localhost")
	a := newApplication(t, postgres, "")
	with := a.server()
	revision := func() error {
		s, err := OpenPostgreSQL(t.Context(), with, newClock().Now)
		if err != nil {
			return err
		}
		defer s.Close()
		var encrypted bool
		must(t, s.reader.QueryRowContext(t.Context(), `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`).Scan(&encrypted))
		if !encrypted {
			t.Error("the connection is not encrypted")
		}
		return s.CheckHealth(t.Context())
	}
	with.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(with.CAFile, second.certificate, 0o600))
	if err := revision(); err == nil || !strings.Contains(err.Error(), "store.tls.caFile") {
		t.Errorf("with another authority: %v, want what to set", err)
	}
	must(t, os.WriteFile(with.CAFile, first.certificate, 0o600))
	must(t, revision())

	s := got[*Store](t)(OpenPostgreSQL(t.Context(), with, newClock().Now))
	defer s.Close()
	serve(second, "localhost")
	must(t, os.WriteFile(with.CAFile, second.certificate, 0o600))
	requireRecovery(t, s)
	serve(second, "another.example.com")
	if err := revision(); err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("with a certificate of another host: %v, want an error", err)
	}
}

// TestWithoutTLS: a server without TLS is an error, not a connection in plain text.
func TestWithoutTLS(t *testing.T) {
	postgres := server.StartPostgreSQL(t, server.Options{})
	a := newApplication(t, postgres, "")
	if _, err := OpenPostgreSQL(t.Context(), a.server(), newClock().Now); err == nil || !strings.Contains(err.Error(), "sslmode=disable") {
		t.Errorf("the error is %v, want that the server has no TLS", err)
	}
}

// TestPgBouncer: the store works through a pooler that gives each transaction another connection, and knows no prepared statements.
func TestPgBouncer(t *testing.T) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
	}
	postgres := server.StartPostgreSQL(t, server.Options{})
	a := newApplication(t, postgres, "?sslmode=disable")
	a.port = startPgBouncer(t, program, postgres, a)
	a.write(t)

	f := openIn(t, TestDatabase{Open: func(ctx context.Context, now func() time.Time) (*Store, error) {
		return OpenPostgreSQL(ctx, Server{DSN: DSNFromFile(a.file), MaxConnections: 6}, now)
	}})
	failed := make(chan error)
	for worker := range 4 {
		go func() {
			var errs []error
			for i := range 25 {
				name := fmt.Sprintf("image-%d-%d", worker, i)
				errs = append(errs, f.SaveCatalog(t.Context(), catalogOf(name, f.clock.Now()), nil))
				_, err := f.Revision(t.Context())
				errs = append(errs, err)
			}
			failed <- errors.Join(errs...)
		}()
	}
	for range 4 {
		must(t, <-failed)
	}
	if revision := got[int64](t)(f.Revision(t.Context())); revision < 100 {
		t.Errorf("the revision is %d after 100 transactions", revision)
	}
}

// startPgBouncer starts a pooler in transaction mode with two connections to the server, and returns its port.
func startPgBouncer(t *testing.T, program string, postgres *server.Server, a *application) (port int) {
	t.Helper()
	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	port = listener.Addr().(*net.TCPAddr).Port
	must(t, listener.Close())
	dir := got[string](t)(os.MkdirTemp("", "pgbouncer-"))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "users"), fmt.Appendf(nil, "%q %q\n", "app", a.password), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "pgbouncer.ini"), fmt.Appendf(nil, `[databases]
%s = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = plain
auth_file = %s/users
pool_mode = transaction
default_pool_size = 2
`, a.database, postgres.Port, port, dir), 0o644))
	command := exec.CommandContext(t.Context(), program, filepath.Join(dir, "pgbouncer.ini"))
	if os.Geteuid() == 0 {
		// It refuses to run as root.
		owner := got[os.FileInfo](t)(os.Stat(postgres.Dir)).Sys().(*syscall.Stat_t)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	log := got[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "log")))
	command.Stdout, command.Stderr = log, log
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("PgBouncer: %s", text)
		}
		must(t, log.Close())
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			must(t, connection.Close())
			return port
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not listen: %v", err)
		}
	}
}

// authority signs the certificates of servers.
type authority struct {
	certificate []byte // PEM
	parent      *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key := got[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	parent := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: fmt.Sprint("authority ", time.Now().UnixNano())},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := got[[]byte](t)(x509.CreateCertificate(rand.Reader, parent, parent, key.Public(), key))
	return authority{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), parent, key}
}

// issue writes the certificate of a host and its key, which belong to the owner of their folder.
func (a authority) issue(t *testing.T, certificateFile, keyFile, host string) {
	t.Helper()
	key := got[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := got[[]byte](t)(x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.parent, key.Public(), a.key))
	text := got[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))
	owner := got[os.FileInfo](t)(os.Stat(filepath.Dir(keyFile))).Sys().(*syscall.Stat_t)
	for file, block := range map[string]*pem.Block{certificateFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: text}} {
		must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
		must(t, os.Chown(file, int(owner.Uid), int(owner.Gid)))
	}
}
