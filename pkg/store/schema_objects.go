package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrForeignSchema says that somebody changed what a backup's tables are, and what else runs or is read with them.
var ErrForeignSchema = errors.New("the backup holds what no store of the operator has: somebody changed it; use another one")

// schemaObject is a row of a database's schema.
type schemaObject struct{ kind, name, table string }

// sqliteTables are those that SQLite makes itself, for AUTOINCREMENT and ANALYZE, and their text.
var sqliteTables = map[string]string{
	"sqlite_sequence": "CREATETABLEsqlite_sequence(name,seq)",
	"sqlite_stat1":    "CREATETABLEsqlite_stat1(tbl,idx,stat)",
	"sqlite_stat4":    "CREATETABLEsqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
}

// plainSQL drops what versions of SQLite write differently when they rename: white space and quotes of names.
var plainSQL = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "", `"`, "", "`", "")

// schemaObjects lists a database's tables, indexes, views and triggers with their text. It reads the schema alone, so that nothing
// that a view or trigger says is done.
func schemaObjects(ctx context.Context, db *sql.DB) (map[schemaObject]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	objects := map[schemaObject]string{}
	for rows.Next() {
		var o schemaObject
		var text string
		if err := rows.Scan(&o.kind, &o.name, &o.table, &text); err != nil {
			return nil, err
		}
		if text = plainSQL.Replace(text); o.kind != "table" || sqliteTables[o.name] != text {
			objects[o] = text
		}
	}
	return objects, rows.Err()
}

// migratedObjects are the schema objects that the migrations up to a version make.
func migratedObjects(ctx context.Context, version int64) (_ map[schemaObject]string, err error) {
	db, err := connect("file::memory:")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // each connection has a database of its own
	provider, err := migrationsOf(db)
	if err != nil {
		return nil, err
	}
	if _, err := provider.UpTo(ctx, version); err != nil {
		return nil, err
	}
	return schemaObjects(ctx, db)
}

// checkSchemaObjects wants a database to have the objects of a version of the store, and no others: a trigger of somebody else would
// run with each write of the manager.
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
