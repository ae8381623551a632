package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"

	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

const (
	// defaultDataDir is where all installers mount the store's volume.
	defaultDataDir = "/var/lib/scanner-operator"
	// storeFile is the database's name in the data directory.
	storeFile = "store.db"
	// installedConfig is where all installers mount the configuration.
	installedConfig = "/etc/scanner-operator/config.yaml"
)

// storeLocation is where the store is: a file in a directory, or a database on a server.
type storeLocation struct {
	dataDir string
	// file is used instead of the one in dataDir, unless it is empty.
	file     string
	settings config.Store
}

func (l storeLocation) isFile() bool { return l.settings.Type == config.SQLite }

func (l storeLocation) path() string { return cmp.Or(l.file, filepath.Join(l.dataDir, storeFile)) }

func (l storeLocation) server() store.Server {
	return store.Server{
		DSN: store.DSNFromFile(l.settings.DSNFile), CAFile: l.settings.TLS.CAFile, MaxConnections: l.settings.MaxConnections,
	}
}

// open opens the store for this process, and creates or migrates it.
func (l storeLocation) open(ctx context.Context, log logr.Logger) (*store.Store, error) {
	switch l.settings.Type {
	case config.PostgreSQL:
		return store.OpenPostgreSQL(ctx, l.server(), time.Now)
	case config.MySQL:
		return store.OpenMySQL(ctx, l.server(), time.Now)
	}
	opened, err := store.OpenSQLite(ctx, l.path(), time.Now)
	if err == nil && opened.Replaced() {
		log.Info("Took the restored store", "backupOf", opened.RestoredFrom(), "id", opened.ID(), "before", l.path()+store.PreviousSuffix)
	}
	return opened, err
}

// openReadOnly opens the store beside the manager that writes it.
func (l storeLocation) openReadOnly(ctx context.Context) (*store.Store, error) {
	switch l.settings.Type {
	case config.PostgreSQL:
		return store.OpenPostgreSQLReadOnly(ctx, l.server())
	case config.MySQL:
		return store.OpenMySQLReadOnly(ctx, l.server())
	}
	return store.OpenSQLiteReadOnly(l.path())
}

// checkFile returns an error if the store is on a server, which a command cannot back up or restore as a file.
func (l storeLocation) checkFile() error {
	if l.isFile() {
		return nil
	}
	return fmt.Errorf("the store is on a %s server, which has a backup of its own; for a copy that any type of store can load, use %s",
		l.settings.Type, commandName("migrate-store"))
}

// storeFlags are the flags by which a subcommand finds the manager's store.
type storeFlags struct{ config, dataDir *string }

func addStoreFlags(flags *flag.FlagSet) storeFlags {
	return storeFlags{
		config:  flags.String("config", installedConfig, "the operator's configuration file, which says where the store is; without such a file: in --data-dir"),
		dataDir: flags.String("data-dir", defaultDataDir, "directory of a store in a file"),
	}
}

// location returns where the manager's store is.
func (f storeFlags) location() (storeLocation, error) {
	path := *f.config
	if _, err := os.Stat(path); path == installedConfig && errors.Is(err, os.ErrNotExist) {
		path = ""
	}
	settings, err := config.Load(path)
	return storeLocation{dataDir: *f.dataDir, settings: settings.Store}, err
}
