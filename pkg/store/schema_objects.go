package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// ErrForeignSchema means that a backup's tables, indexes, views or triggers are not those of the operator: somebody has changed
// them.
var ErrForeignSchema = errors.New("the backup holds what no store of the operator has: somebody changed it; use another one")

// schemaObject identifies a row of a database's schema.
type schemaObject struct{ kind, name, table string }

// sqliteTables are the tables that SQLite itself creates, for AUTOINCREMENT and ANALYZE, with their normalized SQL.
var sqliteTables = map[string]string{
	"sqlite_sequence": "CREATETABLEsqlite_sequence(name,seq)",
	"sqlite_stat1":    "CREATETABLEsqlite_stat1(tbl,idx,stat)",
	"sqlite_stat4":    "CREATETABLEsqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}

// plainSQL removes what versions of SQLite write differently after a rename: white space and the quotes of names.
var plainSQL = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "", `"`, "", "`", "")

// schemaObjects returns a database's tables, indexes, views and triggers with their normalized SQL. It reads only the schema
// table, so it executes no view or trigger.
func schemaObjects(ctx context.Context, db *sql.DB) (map[schemaObject]string, error) {
	objects := map[schemaObject]string{}
	err := eachRow(ctx, &session{conn: db, dialect: dialect.SQLite}, `SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema`, nil, func(rows *sql.Rows) error {
		var o schemaObject
		var text string
		if err := rows.Scan(&o.kind, &o.name, &o.table, &text); err != nil {
			return err
		}
		if text = plainSQL.Replace(text); o.kind != "table" || sqliteTables[o.name] != text {
			objects[o] = text
		}
		return nil
	})
	return objects, err
}

// migratedObjects returns the schema objects that the migrations up to a version create.
func migratedObjects(ctx context.Context, version int64) (objects map[schemaObject]string, err error) {
	err = withMigrated(ctx, version, func(db *sql.DB) error {
		objects, err = schemaObjects(ctx, db)
		return err
	})
	return objects, err
}

// withMigrated calls use with an SQLite database in memory that has the schema of a version. The database has one connection.
func withMigrated(ctx context.Context, version int64, use func(*sql.DB) error) (err error) {
	db, err := connect("file::memory:")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // each connection has its own database
	provider, err := migrationsOf(db, dialect.SQLite)
	if err != nil {
		return err
	}
	if _, err := provider.UpTo(ctx, version); err != nil {
		return err
	}
	return use(db)
}

// checkSchemaObjects returns ErrForeignSchema unless a database has exactly the schema objects of a version of the store. A
// foreign trigger would run with the manager's writes.
func checkSchemaObjects(ctx context.Context, db *sql.DB, version int64) error {
	found, err := schemaObjects(ctx, db)
	if err != nil {
		return err
	}
	wanted, err := migratedObjects(ctx, version)
	if err != nil {
		return err
	}
	for _, o := range slices.SortedFunc(maps.Keys(found), func(a, b schemaObject) int { return strings.Compare(a.kind+a.name, b.kind+b.name) }) {
		if text, known := wanted[o]; !known || text != found[o] {
			return fmt.Errorf("%w (the %s %q is not that of schema %d)", ErrForeignSchema, o.kind, o.name, version)
		}
		delete(wanted, o)
	}
	for o := range wanted {
		return fmt.Errorf("%w (the %s %q of schema %d is missing)", ErrForeignSchema, o.kind, o.name, version)
	}
	return nil
}
