package store

import (
	"cmp"
	"context"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Server is how to reach a store on a database server.
//
// No lock of the server keeps a second process from writing the store: a lock of a session would be lost in a pooler, which gives each
// transaction another session, and a lock of a transaction would block every other one. Processes that have the same store open decide by a
// Lease which one leads (Store.Follow, Store.Lead). Migrations have a lock, on PostgreSQL a row, on MySQL and MariaDB one of the session.
type Server struct {
	// DSN returns the data source name with its password. It is called for each connection, so that a rotated password is used without
	// a restart. Its error must not contain the password.
	DSN func() (string, error)
	// CAFile is a file with the certificates of the authorities that may sign the server's certificate, in PEM; empty for the well-known
	// ones. It is read for each connection.
	CAFile string
	// MaxConnections bounds the connections to the server: one of them writes, the others read. At least 2, and 3 for a store with snapshots
	// (InSnapshot), of which each takes one that reads.
	MaxConnections int

	// silence replaces answerTimeout if it is not zero.
	silence time.Duration
}

// forMigrations returns the server with connections for migrations.
func (s Server) forMigrations() Server {
	s.silence = migrationTimeout
	return s
}

const (
	// answerTimeout is how long a statement waits for bytes of the server before its connection is closed. It bounds calls to a server that
	// hangs, and is longer than any statement of the store needs.
	answerTimeout = 2 * time.Minute
	// connectTimeout is how long the store waits for a connection, unless the DSN says otherwise.
	connectTimeout = 10 * time.Second
	// migrationTimeout is the same for statements of migrations, which can build an index of a large table.
	migrationTimeout = time.Hour
	// lossTimeout is how long sent bytes may stay unacknowledged before the connection counts as lost, such as that to a node that failed.
	// Without it the kernel tries for a quarter of an hour.
	lossTimeout = time.Minute
)

// dialer dials a connection, as a driver does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// watched returns a dialer whose connections end when the server hangs or is lost.
func (s Server) watched(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, isTCP := conn.(*net.TCPConn); isTCP {
			if err := setLossTimeout(tcp, lossTimeout); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
		}
		return &watchedConn{Conn: conn, silence: cmp.Or(s.silence, answerTimeout)}, nil
	}
}

// setLossTimeout sets TCP_USER_TIMEOUT (tcp(7)).
func setLossTimeout(conn *net.TCPConn, timeout time.Duration) error {
	const tcpUserTimeout = 18
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(timeout.Milliseconds()))
	})
	return errors.Join(err, set)
}

// watchedConn is a connection that is closed if the other side neither sends nor accepts bytes for some time. Drivers read only while they
// wait for an answer. Deadlines would not do: drivers set their own.
type watchedConn struct {
	net.Conn
	silence time.Duration
	hangs   atomic.Bool
}

// SyscallConn implements syscall.Conn, by which a driver finds out whether an idle connection was closed.
func (c *watchedConn) SyscallConn() (syscall.RawConn, error) {
	conn, isSystem := c.Conn.(syscall.Conn)
	if !isSystem {
		return nil, errors.ErrUnsupported
	}
	return conn.SyscallConn()
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) { return c.watch(c.Conn.Read, p) }

// Write implements net.Conn.
func (c *watchedConn) Write(p []byte) (int, error) { return c.watch(c.Conn.Write, p) }

func (c *watchedConn) watch(transfer func([]byte) (int, error), p []byte) (int, error) {
	defer time.AfterFunc(c.silence, func() { c.hangs.Store(true); _ = c.Close() }).Stop()
	n, err := transfer(p)
	if err != nil && c.hangs.Load() {
		err = noAnswerError{}
	}
	return n, err
}

// noAnswerError is the error of a connection that was closed because the server hangs. It implements net.Error: drivers keep timeouts apart
// from connections that have ended.
type noAnswerError struct{}

// Error implements error.
func (noAnswerError) Error() string { return "the database server has not answered" }

// Timeout implements net.Error.
func (noAnswerError) Timeout() bool { return true }

// Temporary implements net.Error.
func (noAnswerError) Temporary() bool { return false }

// maxDSN bounds the bytes that are read from a file with a data source name.
const maxDSN = 64 << 10

// DSNFromFile returns a function for Server.DSN that reads the name from a file, such as one of a mounted Secret. Blanks and line ends
// around the name are ignored.
func DSNFromFile(path string) func() (string, error) {
	return func() (string, error) {
		const advice = "mount the Secret with the data source name there (store.dsnFile)"
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, advice)
		}
		dsn := strings.TrimSpace(string(text))
		switch {
		case dsn == "":
			return "", fmt.Errorf("%s is empty: %s", path, advice)
		case len(dsn) > maxDSN || strings.ContainsAny(dsn, "\n\r\x00"):
			return "", fmt.Errorf("%s has more than a data source name, which is one line: %s", path, advice)
		}
		return dsn, nil
	}
}

// authorities returns the certificates of CAFile; nil for the well-known ones. Its errors name the file, which the drivers' own do not.
func (s Server) authorities() (*x509.CertPool, error) {
	if s.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("%w: mount the certificates of the server's authority there (store.tls.caFile)", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM: mount those of the server's authority there (store.tls.caFile)", s.CAFile)
	}
	return pool, nil
}

// connector makes connections to a server. Its errors have a fault of the server, and say what the user can do if advise knows it.
type connector struct {
	driver.Connector
	advise func(error) (advice string)
	// timeout bounds each attempt; zero means that the driver does.
	timeout time.Duration
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	connection, err := c.Connector.Connect(ctx)
	if err == nil {
		return connection, nil
	}
	fault := serverFault(err)
	if fault == nil {
		fault = ErrUnavailable
	}
	advice := c.advise(err)
	if advice == "" {
		advice = adviseTLS(err)
	}
	if advice != "" {
		return nil, explained{fault, fmt.Errorf("%s: %w", advice, err)}
	}
	return nil, fmt.Errorf("%w: %w", fault, err)
}

// Advice on errors of connections. It names settings of the operator's configuration.
const (
	adviceAuthority = "the server's certificate is from an unknown authority: set store.tls.caFile (of migrate-store: --ca-file) to the certificates of that authority"
	adviceName      = "the server's certificate has another name: use a host of that certificate in the data source name"
)

func adviseTLS(err error) string {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &authority):
		return adviceAuthority
	case errors.As(err, &name):
		return adviceName
	}
	return ""
}

// openServer migrates a database to the current schema, and reads what the store remembers of its previous run.
func (s *Store) openServer(ctx context.Context, migrate func(context.Context) error) error {
	began := time.Now()
	if err := migrate(ctx); err != nil {
		return err
	}
	s.metrics.migration.Set(time.Since(began).Seconds())
	tx := session{conn: s.writer, dialect: s.dialect}
	if _, err := tx.ExecContext(ctx, `INSERT INTO meta (name, value) VALUES ('id', ?) ON CONFLICT DO NOTHING`, randomID()); err != nil {
		return err
	}
	err := s.readIdentity(ctx)
	if err == nil {
		var before time.Time
		before, err = readMetaTime(ctx, s.reading(), lastPresent)
		s.presence.begin(before)
	}
	return err
}

// readIdentity refuses a database whose schema is not the current one, and reads what every store is identified by.
func (s *Store) readIdentity(ctx context.Context) error {
	schema, err := checkSchema(ctx, s.reader)
	if err != nil {
		return err
	}
	s.schema = schema
	s.metrics.schema.Set(float64(schema))
	var id identity
	if err := s.reader.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'id'`).Scan(&id.id); err != nil {
		return err
	}
	if id.restoredFrom, err = readMetaTime(ctx, s.reading(), restoredFrom); err != nil {
		return err
	}
	s.identity.Store(&id)
	return nil
}
