package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/server"
)

// TestMySQLTLS: without a word about TLS in the DSN, a connection is encrypted, the server's certificate is from the authority in the file and
// has the host's name. A server without TLS is an error, and gets no password in plain text.
func TestMySQLTLS(t *testing.T) {
	maria := server.StartMariaDB(t, server.Options{})
	maria.Exec(t, `CREATE DATABASE findings CHARACTER SET utf8mb4`, `CREATE USER 'app'@'127.0.0.1' IDENTIFIED BY '`+canary+`'`,
		`GRANT ALL ON findings.* TO 'app'@'127.0.0.1'`)
	with := serverOf(fmt.Sprintf("mysql://app:%s@localhost:%d/findings", canary, maria.Port))
	open := func() error {
		s, err := OpenMySQL(t.Context(), with, newClock().Now)
		if err != nil {
			return err
		}
		defer s.Close()
		var name, cipher string
		must(t, s.reader.QueryRowContext(t.Context(), `SHOW STATUS LIKE 'Ssl_cipher'`).Scan(&name, &cipher))
		if cipher == "" {
			t.Error("the connection is not encrypted")
		}
		return nil
	}
	refused := func(what, want string) {
		t.Helper()
		err := open()
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want ErrUnavailable with %q and without the password", what, err, want)
		}
	}
	refused("a server without TLS", "tls=false")

	first := newAuthority(t)
	serve := func(name string) {
		certificate, key := filepath.Join(maria.Dir, "server.crt"), filepath.Join(maria.Dir, "server.key")
		first.issue(t, certificate, key, name)
		maria.Stop(t)
		maria.Set(map[string]string{"ssl-cert": certificate, "ssl-key": key})
		maria.Start(t)
	}
	serve("localhost")
	refused("the well-known authorities", "store.tls.caFile")
	with.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(with.CAFile, first.certificate, 0o600))
	must(t, open())
	serve("another.example.com")
	refused("a certificate of another host", "another name")
}

// TestSilentMySQL: the timeout of a connection also bounds the wait for the server's first bytes, which a PostgreSQL server, or one that hangs,
// never sends.
func TestSilentMySQL(t *testing.T) {
	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := OpenMySQL(ctx, serverOf("mysql://app:x@"+listener.Addr().String()+"/findings?tls=false&timeout=100ms"), newClock().Now)
	if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("the error is %v, want ErrUnavailable after the timeout", err)
	}
}

// TestInvalidMySQLDSN: an error says what is wrong, and nothing of the data source name.
func TestInvalidMySQLDSN(t *testing.T) {
	for name, dsn := range map[string]string{
		"another database":          "postgresql://app:" + canary + "@db/app",
		"only a password":           canary,
		"a password with a /":       "mysql://app:" + canary + "/x@db/app",
		"a password with digits, /": "mysql://app:4711/" + canary + "@db/app",
		"a password with a %":       "mysql://app:%zz" + canary + "@db/app",
		"no database":               "mysql://app:" + canary + "@db",
		"an unknown setting of TLS": "mysql://app:x@db/app?tls=" + canary,
		"the driver's form":         "app:" + canary + "@tcp(db/app",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenMySQL(t.Context(), serverOf(dsn), newClock().Now)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "mysql://user:password@host:port/database") {
				t.Errorf("the error is %v, want ErrUnavailable and the form of a data source name", err)
			}
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

// TestImpatientCaller: a caller that does not wait for the server's answer is no fault of the server.
func TestImpatientCaller(t *testing.T) {
	eachDatabase(t, func(t *testing.T, f fixture) {
		for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithDeadline(ctx, time.Now().Add(-time.Second))
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			},
		} {
			ctx, cancel := end(t.Context())
			_, err := f.Revision(ctx)
			cancel()
			if err == nil || StorageFault(err) != nil {
				t.Errorf("the caller's error is %v, want one that is no fault of the store", err)
			}
			must(t, f.Health())
		}
	})
}

// freeAddress returns an address at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	return "127.0.0.1:" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// TestMySQLAddress: the driver's form and the URL lead to the same address.
func TestMySQLAddress(t *testing.T) {
	address := freeAddress(t)
	for _, dsn := range []string{"mysql://app:" + canary + "@" + address + "/app?tls=false", "mariadb://app@" + address + "/app", "app:" + canary + "@tcp(" + address + ")/app"} {
		_, err := OpenMySQL(t.Context(), serverOf(dsn), newClock().Now)
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "mysql://"+address+"/app") || strings.Contains(err.Error(), canary) {
			t.Errorf("the error is %v, want ErrUnavailable with the address %s", err, address)
		}
	}
}
