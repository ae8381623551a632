package store

import (
	"context"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// Server is how to reach a store on a database server.
//
// No lock of the server keeps a second process from writing the store: a lock of a session would be lost in a pooler, which gives each
// transaction another session, and a lock of a transaction would block every other one. The caller must make sure that only one process
// works with the store at a time, as the operator does by its Lease. Opening the store twice is harmless: migrations are locked by a row.
type Server struct {
	// DSN returns the data source name with its password. It is called for each connection, so that a rotated password is used without
	// a restart. Its error must not contain the password.
	DSN func() (string, error)
	// CAFile is a file with the certificates of the authorities that may sign the server's certificate, in PEM; empty for the well-known
	// ones. It is read for each connection.
	CAFile string
	// MaxConnections bounds the connections to the server: one of them writes, the others read. At least 2.
	MaxConnections int
}

// ErrUnavailable means that the database server could not be reached, refused a connection or ended one. It ends by itself as soon as the
// cause does.
var ErrUnavailable = errors.New("no connection to the database server; check that it runs, that network policies let the manager reach it, and " +
	"the manager's log, then work goes on by itself")

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

// checkCA returns an error that names the file if it has no certificate. The drivers' own errors do not.
func (s Server) checkCA() error {
	if s.CAFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.CAFile)
	if err != nil {
		return fmt.Errorf("%w: mount the certificates of the server's authority there (store.tls.caFile)", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%s has no certificate in PEM: mount those of the server's authority there (store.tls.caFile)", s.CAFile)
	}
	return nil
}

// connector makes connections to a server. Its errors are ErrUnavailable, and say what the user can do if advise knows it.
type connector struct {
	driver.Connector
	advise func(error) (advice string)
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	connection, err := c.Connector.Connect(ctx)
	if err == nil {
		return connection, nil
	}
	advice := c.advise(err)
	if advice == "" {
		advice = adviseTLS(err)
	}
	if advice != "" {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, advice, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// Advice on errors of connections. It names settings of the operator's configuration.
const (
	adviceCredentials = "the server refuses the user or the password: compare the Secret that is mounted at store.dsnFile with the server's user; " +
		"a new password in it is used without a restart"
	adviceAuthority = "the server's certificate is from an unknown authority: set store.tls.caFile to the certificates of that authority"
	adviceName      = "the server's certificate has another name: use a host of that certificate in the data source name"
)

// isConnectionLost reports whether a statement failed because its connection ended.
func isConnectionLost(err error) bool {
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) ||
		isPostgreSQLEnding(err)
}

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

// connectTimeout is how long the store waits for a connection, unless the DSN says otherwise.
const connectTimeout = 10 * time.Second

// openServer migrates a database to the current schema, and reads what the store remembers of its previous run.
func (s *Store) openServer(ctx context.Context, migrate func(context.Context) error) error {
	began := time.Now()
	if err := migrate(ctx); err != nil {
		return err
	}
	s.metrics.migration.Set(time.Since(began).Seconds())
	tx := session{s.writer, s.dialect}
	if _, err := tx.ExecContext(ctx, `INSERT INTO meta (name, value) VALUES ('id', ?) ON CONFLICT DO NOTHING`, randomID()); err != nil {
		return err
	}
	err := s.readIdentity(ctx)
	if err == nil {
		s.presence.before, err = readMetaTime(ctx, s.reading(), lastPresent)
	}
	return err
}

// readIdentity refuses a database whose schema is not the current one, and reads what every store is identified by.
func (s *Store) readIdentity(ctx context.Context) error {
	schema, err := checkSchema(ctx, s.reader)
	if err != nil {
		return err
	}
	s.metrics.schema.Set(float64(schema))
	if err := s.reader.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = 'id'`).Scan(&s.id); err != nil {
		return err
	}
	s.restoredFrom, err = readMetaTime(ctx, s.reading(), restoredFrom)
	return err
}
