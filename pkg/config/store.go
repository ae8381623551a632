package config

import (
	"cmp"
	"path/filepath"
)

// StoreType is where the store is.
type StoreType string

// Types of a store.
const (
	// SQLite is a file in the manager's data directory.
	SQLite StoreType = "SQLite"
	// PostgreSQL is a database on a server, PostgreSQL 14 or newer.
	PostgreSQL StoreType = "PostgreSQL"
	// MySQL is a database on a server, MySQL 8.4 (8.0.19 and newer are accepted and not tested), MariaDB 10.6 or newer.
	MySQL StoreType = "MySQL"
)

// Store configures where findings and the record of announcements are kept. With type SQLite, no other field may be set.
type Store struct {
	// Type is SQLite, PostgreSQL or MySQL. Default SQLite.
	Type StoreType `json:"type"`
	// DSNFile is the absolute path of the file with the data source name, which has the password. It comes from a Secret that is mounted,
	// and is read again for each new connection. Default /etc/scanner-operator/store/dsn.
	DSNFile string `json:"dsnFile,omitempty"`
	// MaxConnections is the maximum number of connections to the server, 3 to 1000: one writes, and a list that is exported has one for itself.
	// Default 10. A manager that starts uses two more while it migrates the store.
	MaxConnections int `json:"maxConnections,omitempty"`
	// TLS configures the connections to the server. They are encrypted and the server's certificate and name are verified, unless the data
	// source name says otherwise.
	TLS StoreTLS `json:"tls"`
}

// StoreTLS configures the TLS connections to a database server.
type StoreTLS struct {
	// CAFile is the absolute path of a file with the PEM certificates of the authorities that may sign the server's certificate, instead of
	// the well-known ones. It is read again for each new connection.
	CAFile string `json:"caFile,omitempty"`
}

// Defaults of a store on a server.
const (
	defaultDSNFile        = "/etc/scanner-operator/store/dsn"
	defaultMaxConnections = 10
)

// complete sets the defaults of a store on a server. A store in a file has none.
func (s *Store) complete() {
	if s.Type == SQLite {
		return
	}
	s.DSNFile = cmp.Or(s.DSNFile, defaultDSNFile)
	s.MaxConnections = cmp.Or(s.MaxConnections, defaultMaxConnections)
}

func (s Store) validate(errs *fieldErrors) {
	switch s.Type {
	case SQLite:
		const only = "must not be set with store.type SQLite, which needs no server: set store.type to PostgreSQL or MySQL, or remove this field"
		errs.check(s.DSNFile == "", "store.dsnFile", only)
		errs.check(s.MaxConnections == 0, "store.maxConnections", only)
		errs.check(s.TLS.CAFile == "", "store.tls.caFile", only)
	case PostgreSQL, MySQL:
		errs.check(filepath.IsAbs(s.DSNFile), "store.dsnFile", "must be the absolute path of a file, not a data source name itself")
		errs.checkRange("store.maxConnections", s.MaxConnections, 3, 1000)
		errs.check(s.TLS.CAFile == "" || filepath.IsAbs(s.TLS.CAFile), "store.tls.caFile", "must be the absolute path of a file")
	default:
		errs.add("store.type", "must be SQLite, PostgreSQL or MySQL")
	}
}
