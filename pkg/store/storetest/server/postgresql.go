package server

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
)

// hba trusts the administrator, also as a replica. All other users need a password.
const hba = `local all         postgres              trust
host  all         postgres 127.0.0.1/32 trust
host  replication postgres 127.0.0.1/32 trust
host  all         all      127.0.0.1/32 scram-sha-256
`

var postgreSQL = kind{
	name: "PostgreSQL", debianPackage: "postgresql", external: "STORE_TEST_POSTGRESQL",
	create: "initdb", serve: "postgres", folders: "/usr/lib/postgresql/*/bin", account: "postgres",
	files: map[string]string{"pg_hba.conf": hba},
	createArgs: func(dir string) []string {
		return []string{"--pgdata=" + filepath.Join(dir, "data"), "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"}
	},
	serveArgs: func(dir string, port int, settings map[string]string) []string {
		return append([]string{"-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", dir}, assignments("--", merged(settings,
			map[string]string{"hba_file": filepath.Join(dir, "pg_hba.conf")}))...)
	},
	settings: map[string]string{
		"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "300", "wal_level": "replica",
		"autovacuum": "off", // statistics that come at any time make plans that nobody can repeat
	},
	stop: syscall.SIGINT, kill: syscall.SIGQUIT,
	driver: "pgx",
	dsn: func(port int) string {
		return fmt.Sprintf("postgresql://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	},
	inDatabase: func(dsn, database string) (string, error) {
		address, err := url.Parse(dsn)
		if err != nil {
			return "", err
		}
		address.Path = "/" + database
		return address.String(), nil
	},
	drop: `DROP DATABASE IF EXISTS %s WITH (FORCE)`, copies: true,
}
