package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// connectPostgreSQL returns a pool of connections.
func (s Server) connectPostgreSQL(config *pgx.ConnConfig, connections int) *sql.DB {
	return openPool(s.postgreSQLConnector(config), connections)
}

// postgreSQLConnector reads the data source name and the file of the authority for each connection.
func (s Server) postgreSQLConnector(config *pgx.ConnConfig) driver.Connector {
	refresh := func(_ context.Context, c *pgx.ConnConfig) error {
		fresh, err := s.postgreSQL()
		if err == nil {
			*c = *fresh
		}
		return err
	}
	// To compile a statement takes up to a second, more than any statement of the store gains by it. A pooler refuses this as a parameter of
	// the connection.
	withoutJIT := func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SET jit = off`)
		return err
	}
	return connector{stdlib.GetConnector(*config, stdlib.OptionBeforeConnect(refresh), stdlib.OptionAfterConnect(withoutJIT)), advisePostgreSQL, 0}
}

func openPool(from driver.Connector, connections int) *sql.DB {
	db := sql.OpenDB(from)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// postgreSQL parses the DSN. Statements are sent without a name: a pooler may give each transaction another connection.
func (s Server) postgreSQL() (*pgx.ConnConfig, error) {
	dsn, err := s.DSN()
	if err != nil {
		return nil, err
	}
	if _, err := s.authorities(); err != nil {
		return nil, err
	}
	// The driver's error may contain a password.
	const advice = "want postgresql://user:password@host:port/database, with special characters percent-encoded, or key=value pairs"
	if hasMisplacedPassword(dsn) {
		return nil, errors.New("the data source name has an @ after a /: " + advice)
	}
	config, err := pgx.ParseConfig(withDefaults(dsn, postgreSQLDefaults(s.CAFile)))
	if err != nil {
		return nil, errors.New("the data source name is not one of PostgreSQL: " + advice)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.DialFunc = pgconn.DialFunc(s.watched(dialer(config.DialFunc)))
	return config, nil
}

// postgreSQLDefaults returns the settings of connections that the DSN may override
// (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS). A server that can only be read is one that was replaced
// by another.
func postgreSQLDefaults(caFile string) url.Values {
	defaults := url.Values{"sslmode": {"verify-full"}, "connect_timeout": {"10"}, "target_session_attrs": {"read-write"}, "application_name": {"scanner-operator"}}
	if caFile != "" {
		defaults.Set("sslrootcert", caFile)
	}
	return defaults
}

// withDefaults puts settings before those of the DSN: of a setting that is there twice, the driver uses the last one.
func withDefaults(dsn string, defaults url.Values) string {
	scheme, address := cutScheme(dsn)
	if scheme == "" {
		var pairs strings.Builder
		for key := range defaults {
			pairs.WriteString(key + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(defaults.Get(key)) + "' ")
		}
		return pairs.String() + dsn
	}
	var user string
	if i := strings.IndexAny(address, "@/"); i >= 0 && address[i] == '@' {
		user, address = address[:i+1], address[i+1:]
	}
	address, settings, found := strings.Cut(address, "?")
	if found && settings != "" {
		settings = "&" + settings
	}
	return scheme + user + address + "?" + strings.ReplaceAll(defaults.Encode(), "+", "%20") + settings
}

// hasMisplacedPassword reports whether a URL has an @ in the name of its database but no user. Its password has a / then: what is before
// it would be taken for a host, and appear in errors.
func hasMisplacedPassword(dsn string) bool {
	scheme, address := cutScheme(dsn)
	address, _, _ = strings.Cut(address, "?")
	host, database, _ := strings.Cut(address, "/")
	return scheme != "" && !strings.Contains(host, "@") && strings.Contains(database, "@")
}

// cutScheme returns the scheme of a URL and the rest of it. scheme is empty if the DSN is not a URL of PostgreSQL.
func cutScheme(dsn string) (scheme, rest string) {
	for _, scheme := range []string{"postgresql://", "postgres://"} {
		if rest, found := strings.CutPrefix(dsn, scheme); found {
			return scheme, rest
		}
	}
	return "", dsn
}

// advisePostgreSQL returns what the user can do about an error of a connection besides its fault's own words; empty if that is not known.
func advisePostgreSQL(err error) string {
	var refused *pgconn.PgError
	switch {
	case !errors.As(err, &refused) && strings.Contains(err.Error(), "server refused TLS connection"): // the driver has no error of its own for it
		return "the server has no TLS: switch it on, or add sslmode=disable to the data source name if nobody else can read the traffic"
	case refused != nil && refused.Code == "3D000":
		return "the server has no such database: create it, or correct the data source name in the Secret that is mounted at store.dsnFile"
	}
	return ""
}
