package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// applicationID is the ID that the first migration writes into the file's header
// (https://www.sqlite.org/pragma.html#pragma_application_id).
const applicationID = 1399017328

//go:embed migrations/*/*.sql
var migrations embed.FS

// migrate brings an empty or older SQLite file to the current schema, in one transaction per migration, and gives a new store its ID.
func migrate(ctx context.Context, db *sql.DB) error {
	if err := checkOwner(ctx, db); err != nil {
		return err
	}
	if err := migrateWith(ctx, db, dialect.SQLite); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `INSERT INTO meta (name, value) VALUES ('id', ?) ON CONFLICT DO NOTHING`, randomID())
	return err
}

// migrateWith runs the migrations of a dialect that the database does not have. It refuses a database that a newer version has written, unless
// that version has only added to the schema.
func migrateWith(ctx context.Context, db *sql.DB, d *dialect.Dialect, options ...goose.ProviderOption) error {
	provider, err := migrationsOf(db, d, options...)
	if err != nil {
		return err
	}
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	if latest := latestSchema(); current > latest {
		if isExpanded(ctx, db) {
			return nil
		}
		wayOut := "move the file away"
		if d != dialect.SQLite {
			wayOut = "give the operator an empty database"
		}
		return fmt.Errorf("the store was written by a newer version of the operator (schema %d, this one knows %d): "+
			"run that version, or %s and let the operator rebuild it from the cluster", current, latest, wayOut)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// checkOwner refuses a database that another program created.
func checkOwner(ctx context.Context, db *sql.DB) error {
	var application, tables int
	err := db.QueryRowContext(ctx, `SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id`).
		Scan(&application, &tables)
	if err != nil {
		return err
	}
	if application != applicationID && (application != 0 || tables > 0) {
		return fmt.Errorf("the file is another program's database: give the operator a path of its own")
	}
	return nil
}

// isExpanded reports whether a newer version has only added to the schema that this program knows: its migrations have left oldest_schema. While
// the replicas of a new version replace those of the old one, both work with one database, so each version adds what it needs, and what is not
// needed any more is removed by the version after that.
func isExpanded(ctx context.Context, db *sql.DB) bool {
	var oldest int64
	err := db.QueryRowContext(ctx, `SELECT oldest_schema FROM store_revision`).Scan(&oldest)
	return err == nil && oldest <= latestSchema()
}

// checkSchema returns the schema's version. It refuses any version but the current one and those that have only added to it.
func checkSchema(ctx context.Context, db *sql.DB) (current int64, err error) {
	if err := db.QueryRowContext(ctx, `SELECT max(version_id) FROM `+goose.DefaultTablename).Scan(&current); err != nil {
		return 0, fmt.Errorf("the store is not ready, the manager is still making it: try again: %w", err)
	}
	switch latest := latestSchema(); {
	case current < latest:
		return 0, fmt.Errorf("the store has version %d and this program needs %d: the manager brings it there when it starts", current, latest)
	case current > latest && !isExpanded(ctx, db): // the version of a running manager: the store itself is fine
		return 0, fmt.Errorf("the store was written by a newer version of the operator (schema %d, this one knows %d): use the program of that version", current, latest)
	}
	return current, nil
}

// migrationFolders are the folders of the dialects' migrations, and goose's names of the dialects.
var migrationFolders = map[*dialect.Dialect]struct {
	folder string
	goose  goose.Dialect
}{
	dialect.SQLite:     {"migrations/sqlite", goose.DialectSQLite3},
	dialect.PostgreSQL: {"migrations/postgres", goose.DialectPostgres},
	dialect.MySQL:      {"migrations/mysql", goose.DialectMySQL},
}

func migrationsOf(db *sql.DB, d *dialect.Dialect, options ...goose.ProviderOption) (*goose.Provider, error) {
	of := migrationFolders[d]
	files, err := fs.Sub(migrations, of.folder)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(of.goose, db, files, append(options, goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))...)
}

// latestSchema returns the schema version that this program writes: the number of the last migration, which is the same in all dialects.
func latestSchema() (latest int64) {
	files, _ := migrations.ReadDir(migrationFolders[dialect.SQLite].folder) // an embedded folder can always be read
	for _, file := range files {
		version, _ := goose.NumericComponent(file.Name()) // the name of each migration begins with its number
		latest = max(latest, version)
	}
	return latest
}

// randomID returns 128 random bits as 32 hexadecimal digits. It cannot be guessed, so it can serve as a lease ID.
func randomID() string {
	id := make([]byte, 16)
	// Read never fails (crypto/rand).
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}
