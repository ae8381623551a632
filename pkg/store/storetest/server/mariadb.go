package server

import (
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

// administrator is created for connections over the network: the one that exists connects over the socket.
const administrator = `CREATE USER IF NOT EXISTS 'root'@'127.0.0.1'; GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
`

var mariaDB = kind{
	name: "MariaDB", debianPackage: "mariadb-server", external: "STORE_TEST_MYSQL",
	create: "mariadb-install-db", serve: "mariadbd", folders: "/usr/sbin", account: "mysql",
	files: map[string]string{"init.sql": administrator},
	createArgs: func(dir string) []string {
		return []string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"}
	},
	serveArgs: func(dir string, port int, settings map[string]string) []string {
		return append([]string{"--no-defaults"}, assignments("--", merged(settings, map[string]string{
			"datadir": filepath.Join(dir, "data"), "port": strconv.Itoa(port), "bind-address": "127.0.0.1", "socket": filepath.Join(dir, "mysql.sock"),
			"pid-file": filepath.Join(dir, "mariadbd.pid"), "init-file": filepath.Join(dir, "init.sql"),
			"tmpdir": dir, // at its start, a server deletes the temporary tables in it
		}))...)
	},
	settings: map[string]string{
		"innodb-flush-log-at-trx-commit": "0", "innodb-flush-method": "nosync", "innodb-doublewrite": "0", "skip-name-resolve": "1",
		"max-connections": "300",
	},
	stop: syscall.SIGTERM, kill: syscall.SIGKILL,
	driver: "mysql",
	dsn:    func(port int) string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/?tls=false", port) },
	inDatabase: func(dsn, database string) (string, error) {
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			return "", err
		}
		config.DBName = database
		return config.FormatDSN(), nil
	},
	drop: `DROP DATABASE IF EXISTS %s`,
}
