package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// The oldest supported versions: the first MySQL whose JSON_TABLE and names of derived columns the statements can use, and the first MariaDB
// with JSON_TABLE.
var (
	minMySQL   = [3]int{8, 0, 19}
	minMariaDB = [3]int{10, 6, 0}
)

// OpenMySQL opens the store on a MySQL or MariaDB server, and migrates it to the current schema. now returns the time for everything that the
// store dates itself. Errors never contain the password.
func OpenMySQL(ctx context.Context, server Server, now func() time.Time) (*Store, error) {
	config, err := server.mySQL()
	if err != nil {
		return nil, fmt.Errorf("store: %w", explained{ErrUnavailable, err})
	}
	s := newServer("mysql://"+config.Addr+"/"+config.DBName, dialect.MySQL, now)
	if s.writer, err = server.connectMySQL(config, 1); err == nil {
		s.reader, err = server.connectMySQL(config, max(1, server.MaxConnections-1))
	}
	var migrating *sql.DB
	if err == nil {
		// The lock of migrations needs a connection of its own.
		migrating, err = server.forMigrations().connectMySQL(config, 2)
	}
	if err == nil {
		defer migrating.Close()
		err = s.openServer(ctx, func(ctx context.Context) error { return s.migrateMySQL(ctx, migrating) })
	}
	if err != nil {
		return nil, errors.Join(s.wrapError(ctx, "open", err), s.Close())
	}
	return s, nil
}

// OpenMySQLReadOnly opens an existing store on a MySQL or MariaDB server for reading, as OpenPostgreSQLReadOnly does.
func OpenMySQLReadOnly(ctx context.Context, server Server) (*Store, error) {
	config, err := server.mySQL()
	if err != nil {
		return nil, fmt.Errorf("store: %w", explained{ErrUnavailable, err})
	}
	s := newServer("mysql://"+config.Addr+"/"+config.DBName, dialect.MySQL, time.Now)
	if s.reader, err = server.connectMySQL(config, 1); err == nil {
		err = s.reader.PingContext(ctx)
	}
	if err == nil {
		err = s.readIdentity(ctx)
	}
	if err != nil {
		return nil, errors.Join(s.wrapError(ctx, "open for reading", err), s.Close())
	}
	return s, nil
}

// connectMySQL returns a pool of connections. The data source name and the file of the authority are read for each of them.
func (s Server) connectMySQL(config *mysql.Config, connections int) (*sql.DB, error) {
	config = config.Clone()
	err := config.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
		fresh, err := s.mySQL()
		if err == nil {
			c.User, c.Passwd, c.Net, c.Addr, c.DBName = fresh.User, fresh.Passwd, fresh.Net, fresh.Addr, fresh.DBName
			c.TLS, c.AllowFallbackToPlaintext = fresh.TLS, fresh.AllowFallbackToPlaintext
		}
		return err
	}))
	if err != nil {
		return nil, err
	}
	made, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector{made, adviseMySQL, config.Timeout})
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// mySQL parses the DSN. Values are written into the statements, so that each takes one round trip and needs no prepared statement, which a
// pooler would have to know.
func (s Server) mySQL() (*mysql.Config, error) {
	dsn, err := s.DSN()
	if err != nil {
		return nil, err
	}
	dsn, err = plainMySQL(dsn)
	if err != nil {
		return nil, err
	}
	// The driver's error may contain a password.
	config, err := mysql.ParseDSN(dsn)
	if err != nil || config.DBName == "" {
		return nil, errors.New("the data source name is not one of MySQL: " + adviceMySQL)
	}
	config.InterpolateParams, config.ClientFoundRows, config.MultiStatements = true, true, false
	config.Logger = &mysql.NopLogger{}
	config.DialFunc = s.watched((&net.Dialer{Timeout: cmp.Or(config.Timeout, connectTimeout)}).DialContext)
	if config.Timeout == 0 {
		config.Timeout = connectTimeout
	}
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	// Each product ignores the comment of the other. The statements step through all repositories of a receiver.
	config.Params["sql_mode"] = "'" + dialect.MySQLMode + "' /*M! , max_recursive_iterations = 4294967295 */ /*!80003 , cte_max_recursion_depth = 4294967295 */"
	config.Params["group_concat_max_len"] = strconv.Itoa(maxRowsText)
	// By default texts are sorted by their first 1,024 bytes, so that records whose keys are longer would be left out between two pages. MariaDB
	// needs room for 15 rows, each with all the texts that it is sorted by.
	config.Params["max_sort_length"], config.Params["sort_buffer_size"] = strconv.Itoa(maxSortedText), strconv.Itoa(16*maxSortedTexts*maxSortedText)
	if verify := config.TLSConfig == "" && config.Net == "tcp" || config.TLSConfig == "true"; verify {
		config.TLS, config.TLSConfig = &tls.Config{ServerName: hostOf(config.Addr), MinVersion: tls.VersionTLS12}, ""
		if config.TLS.RootCAs, err = s.authorities(); err != nil {
			return nil, err
		}
	}
	return config, nil
}

const (
	// maxSortedText is how many bytes of a text a server sorts by: more than any package manager takes for a name.
	maxSortedText = 8 << 10

	// maxSortedTexts is more than the texts that any statement sorts by. Sessions of both products have a buffer of 256 KiB or 2 MiB by default.
	maxSortedTexts = 16
)

const adviceMySQL = "want mysql://user:password@host:port/database, with special characters percent-encoded, or user:password@tcp(host:port)/database"

// adviseMySQL returns what the user can do about an error of a connection
// (https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html); empty if that is not known.
func adviseMySQL(err error) string {
	if errors.Is(err, mysql.ErrNoTLS) {
		return "the server has no TLS: switch it on, or add tls=false to the data source name if nobody else can read the traffic"
	}
	var refused *mysql.MySQLError
	switch {
	case !errors.As(err, &refused):
	case refused.Number == 1049:
		return "the server has no such database: create it, or correct the data source name in the Secret that is mounted at store.dsnFile"
	case refused.Number == 1419:
		return "the server's binary log keeps this user from creating triggers: set log_bin_trust_function_creators = 1 on the server"
	}
	return ""
}

// minPacket is the smallest max_allowed_packet in bytes. A statement has maxRowsText and one more row, and each byte may be escaped.
const minPacket = 16 << 20

// migrateMySQL runs the migrations, one process at a time. The server releases the lock if its connection ends.
func (s *Store) migrateMySQL(ctx context.Context, migrating *sql.DB) error {
	var text string
	var packet int64
	if err := s.writer.QueryRowContext(ctx, `SELECT version(), @@max_allowed_packet`).Scan(&text, &packet); err != nil {
		return err
	}
	if err := checkMySQLVersion(text); err != nil {
		return err
	}
	if packet < minPacket {
		return fmt.Errorf("%w: it takes %d bytes", ErrPacketTooSmall, packet)
	}
	lock, err := migrating.Conn(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	const name = `concat('scanner-operator ', md5(database()))`
	var taken int
	if err := lock.QueryRowContext(ctx, `SELECT coalesce(get_lock(`+name+`, ?), 0)`, migrationWait).Scan(&taken); err != nil {
		return err
	}
	if taken != 1 {
		return fmt.Errorf("%w, which migrates it", ErrLocked)
	}
	err = migrateWith(ctx, migrating, s.dialect)
	if advice := adviseMySQL(err); advice != "" {
		err = explained{serverFault(err), fmt.Errorf("%s: %w", advice, err)}
	}
	_, released := lock.ExecContext(context.WithoutCancel(ctx), `DO release_lock(`+name+`)`)
	return errors.Join(err, released)
}

// checkMySQLVersion refuses servers that are too old. text is such as "8.4.3" or "10.11.19-MariaDB-0+deb12u1".
func checkMySQLVersion(text string) error {
	product, oldest := "MySQL", minMySQL
	if strings.Contains(text, "MariaDB") {
		product, oldest = "MariaDB", minMariaDB
	}
	number, _, _ := strings.Cut(text, "-")
	var version [3]int
	for i, part := range strings.SplitN(number, ".", 3) {
		version[i], _ = strconv.Atoi(part)
	}
	for i := range version {
		if version[i] != oldest[i] {
			if version[i] < oldest[i] {
				return fmt.Errorf("%w: it is %s %s, want %d.%d.%d or newer", ErrServerTooOld, product, number, oldest[0], oldest[1], oldest[2])
			}
			break
		}
	}
	return nil
}

// plainMySQL returns the driver's form of a data source name that may be a URL.
func plainMySQL(dsn string) (string, error) {
	if !strings.HasPrefix(dsn, "mysql://") && !strings.HasPrefix(dsn, "mariadb://") {
		return dsn, nil
	}
	address, err := url.Parse(dsn)
	if err != nil || address.Host == "" {
		return "", errors.New("the data source name is not a URL: " + adviceMySQL) // the parser's error contains the password
	}
	// Of a password with a / the beginning would be taken for a port, and appear in errors.
	if address.User == nil && strings.Contains(address.Path, "@") {
		return "", errors.New("the data source name has an @ after a /: " + adviceMySQL)
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = address.User.Username(), "tcp", address.Host, strings.TrimPrefix(address.Path, "/")
	config.Passwd, _ = address.User.Password()
	if address.Port() == "" {
		config.Addr = net.JoinHostPort(address.Hostname(), "3306")
	}
	plain := config.FormatDSN()
	if address.RawQuery == "" {
		return plain, nil
	}
	if strings.Contains(plain[strings.LastIndexByte(plain, '/'):], "?") {
		return plain + "&" + address.RawQuery, nil
	}
	return plain + "?" + address.RawQuery, nil
}

// hostOf returns the host of an address with a port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
