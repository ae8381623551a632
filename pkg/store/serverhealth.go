package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// Faults of a database server. Their messages say what the user can do. All of them end by themselves once that is done.
var (
	// ErrUnavailable means that the database server could not be reached, ended a connection or did not answer in time.
	ErrUnavailable = errors.New("no connection to the database server; check that it runs, that network policies let the manager reach it, and " +
		"the manager's log, then work goes on by itself")
	// ErrServerFull means that the server has no space for what is written.
	ErrServerFull = errors.New("the disk of the database server is full; enlarge it or free space on it, then work goes on by itself")
	// ErrTooManyConnections means that the server accepts no further connection.
	ErrTooManyConnections = errors.New("the database server has too many connections; raise its limit (max_connections), or lower store.maxConnections, " +
		"then work goes on by itself")
	// ErrServerReadOnly means that the server takes no writes. The connection is closed, since the next one may reach the server that does.
	ErrServerReadOnly = errors.New("the database server can only be read: it is a standby, or was set to read-only; check that the data source name " +
		"leads to the primary, then work goes on by itself")
	// ErrServerPermission means that the server refuses the user, or what the user does.
	ErrServerPermission = errors.New("the database server refuses access; compare the Secret that is mounted at store.dsnFile with the server's user and its " +
		"password, and make that user the owner of the database (MySQL, MariaDB: grant it all privileges on the database), then work goes on by itself: " +
		"a new password is used without a restart")
	// ErrServerTooOld means that the server is older than the oldest supported version.
	ErrServerTooOld = errors.New("the version of the database server is not supported; upgrade the server, then work goes on by itself")
	// ErrWrongCollation means that a PostgreSQL database cannot hold every text. MySQL and MariaDB store all texts as bytes.
	ErrWrongCollation = errors.New("the database has an encoding that cannot hold every text; create it again with the encoding UTF8, " +
		"then work goes on by itself")
	// ErrPacketTooSmall means that a MySQL or MariaDB server takes only statements that are too short for the store.
	ErrPacketTooSmall = errors.New("the database server takes only short statements; set its max_allowed_packet to 16M or more, then work goes on by itself")
)

// serverFaults are the faults of a database server, the more specific ones first: an error of a connection can be ErrUnavailable as well.
var serverFaults = []error{
	ErrServerFull, ErrTooManyConnections, ErrServerReadOnly, ErrServerPermission, ErrServerTooOld, ErrWrongCollation,
	ErrPacketTooSmall, ErrUnavailable,
}

// explained is an error with a fault of the server and its cause, which says what to do. The general advice of the fault is left out.
type explained struct{ fault, cause error }

// Error implements error.
func (e explained) Error() string {
	fault, _, _ := strings.Cut(e.fault.Error(), ";")
	return fault + ": " + e.cause.Error()
}

// Unwrap returns the fault and its cause.
func (e explained) Unwrap() []error { return []error{e.fault, e.cause} }

// IsServerFault reports whether an error has a fault of a database server as its cause. Such faults end without a restart of this process.
func IsServerFault(err error) bool {
	for _, fault := range serverFaults {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

// faultsBySQLState are the faults by the SQLSTATE of PostgreSQL's errors, or the first characters of it
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
var faultsBySQLState = map[string]error{
	"08":    ErrUnavailable, // connection exceptions, and what PgBouncer reports
	"25P03": ErrUnavailable, // idle_in_transaction_session_timeout
	"25P04": ErrUnavailable, // transaction_timeout
	"53200": ErrUnavailable, // out of memory
	"57P":   ErrUnavailable, // shutdown, crash, start, dropped database, idle_session_timeout
	"58":    ErrUnavailable, // errors of the server's system
	"53100": ErrServerFull,
	"53300": ErrTooManyConnections,
	"25006": ErrServerReadOnly,
	"28":    ErrServerPermission, // user or password
	"3D000": ErrServerPermission, // no such database
	"42501": ErrServerPermission,
}

// faultsByNumber are the faults by the numbers of MySQL's and MariaDB's errors
// (https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html). 2002, 2006 and 2013 are numbers of clients in C.
var faultsByNumber = map[uint16]error{
	1021: ErrServerFull, 1114: ErrServerFull,
	1153: ErrPacketTooSmall,
	1040: ErrTooManyConnections, 1203: ErrTooManyConnections, 1226: ErrTooManyConnections,
	1290: ErrServerReadOnly, 1792: ErrServerReadOnly, 1836: ErrServerReadOnly,
	1044: ErrServerPermission, 1045: ErrServerPermission, 1049: ErrServerPermission, 1142: ErrServerPermission, 1143: ErrServerPermission,
	1227: ErrServerPermission, 1370: ErrServerPermission, 1419: ErrServerPermission, 1698: ErrServerPermission,
	1037: ErrUnavailable, 1041: ErrUnavailable, 1053: ErrUnavailable, 1152: ErrUnavailable, 1158: ErrUnavailable, 1159: ErrUnavailable,
	1160: ErrUnavailable, 1161: ErrUnavailable, 1927: ErrUnavailable, 2002: ErrUnavailable, 2006: ErrUnavailable, 2013: ErrUnavailable,
}

// conflictNumbers are the numbers of MySQL's and MariaDB's errors that say that a transaction can be run again: a deadlock, a lock that was
// not released in time, and a row that has changed since the transaction's snapshot.
var conflictNumbers = map[uint16]bool{1213: true, 1205: true, 1020: true}

// serverFault returns the fault behind an error of a driver; nil if the server and the connection work.
func serverFault(err error) error {
	for _, fault := range serverFaults {
		if fault != ErrUnavailable && errors.Is(err, fault) { //nolint:errorlint // which one it is
			return fault
		}
	}
	var postgres *pgconn.PgError
	var other *mysql.MySQLError
	switch {
	case errors.As(err, &postgres):
		for _, length := range []int{5, 3, 2} {
			if fault := faultsBySQLState[postgres.Code[:min(length, len(postgres.Code))]]; fault != nil {
				return fault
			}
		}
	case errors.As(err, &other):
		if fault := faultsByNumber[other.Number]; fault != nil {
			return fault
		}
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return ErrServerReadOnly
	case isConnectionLost(err):
		return ErrUnavailable
	}
	if errors.Is(err, ErrUnavailable) {
		return ErrUnavailable
	}
	return nil
}

// isConnectionLost reports whether a statement failed because its connection ended, and not because the caller did not wait longer.
func isConnectionLost(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	for _, ended := range []error{
		driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed, mysql.ErrInvalidConn,
	} {
		if errors.Is(err, ended) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}

// isServerConflict reports whether a transaction was rolled back only because of another one.
func isServerConflict(err error) bool {
	var postgres *pgconn.PgError
	var other *mysql.MySQLError
	switch {
	case errors.As(err, &postgres):
		return postgres.Code == "40001" || postgres.Code == "40P01" // serialization_failure, deadlock_detected
	case errors.As(err, &other):
		return conflictNumbers[other.Number]
	}
	return false
}

// serverBacking is the backing of a store in a database on a server.
type serverBacking struct{ *Store }

// checkTimeout bounds the time in which a server answers a check.
const checkTimeout = 30 * time.Second

// databaseSize selects the bytes of the database.
var databaseSize = map[*dialect.Dialect]string{
	dialect.PostgreSQL: `SELECT pg_database_size(current_database())`,
	dialect.MySQL:      `SELECT CAST(coalesce(sum(data_length + index_length), 0) AS SIGNED) FROM information_schema.tables WHERE table_schema = database()`,
}

// check implements backing. A server that accepts connections and answers nothing is unavailable.
func (b serverBacking) check(ctx context.Context) (fault, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("%w: it has not answered within %s", ErrUnavailable, checkTimeout))
	defer cancel()
	var size int64
	err = b.queryRow(ctx, "measure the database", databaseSize[b.dialect]).Scan(&size)
	if err != nil {
		if fault := StorageFault(err); fault != nil {
			return fault, nil
		}
		return nil, err
	}
	b.metrics.size.WithLabelValues("database").Set(float64(size))
	b.health.setSize(size)
	return nil, nil
}

// checkIntegrity implements backing. A database server checks its files itself.
func (serverBacking) checkIntegrity(context.Context) error { return nil }

// classify implements backing.
func (serverBacking) classify(err error) error { return serverFault(err) }

// met implements backing. All connections that nobody uses are closed: the others of a server that has ended one have ended as well, and after
// a failover new ones reach the present primary.
func (b serverBacking) met(fault error) {
	if !errors.Is(fault, ErrUnavailable) && !errors.Is(fault, ErrServerReadOnly) {
		return
	}
	for _, db := range []*sql.DB{b.writer, b.reader} {
		if db != nil {
			db.SetMaxIdleConns(-1)
			db.SetMaxIdleConns(db.Stats().MaxOpenConnections)
		}
	}
}

// isLost implements backing. A server that hangs is not tried again: the caller has waited long enough.
func (serverBacking) isLost(err error) bool {
	fault := serverFault(err)
	return (errors.Is(fault, ErrUnavailable) || errors.Is(fault, ErrServerReadOnly)) && !errors.Is(err, noAnswerError{})
}

// isConflict implements backing.
func (serverBacking) isConflict(err error) bool { return isServerConflict(err) }

// collectors implements backing.
func (serverBacking) collectors() []prometheus.Collector { return nil }

// newServer returns a store on a server without connections.
func newServer(address string, d *dialect.Dialect, now func() time.Time) *Store {
	s := newClosed(address, d, now)
	s.backing = serverBacking{s}
	return s
}
