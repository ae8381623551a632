package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// table is a table of the schema. Every dialect has the same tables with the same columns.
type table struct {
	name    string
	columns []tableColumn
	// key are the names of the columns that identify a row.
	key []string
	// parents are the tables that foreign keys refer to.
	parents []string
	// triggered is true if triggers write the table.
	triggered bool
}

// tableColumn is a column with its kind: text, bigint, double or bytes, as in the macro records.
type tableColumn struct {
	name, kind string
	// required is true if the column is NOT NULL.
	required bool
}

// columnKinds are the kinds of the types of SQLite's columns.
var columnKinds = map[string]string{"TEXT": "text", "INTEGER": "bigint", "REAL": "double", "BLOB": "bytes"}

// schemaTables returns all tables of the current schema, but not that of the migrations. They are read from what the migrations of SQLite
// create, so no list of tables can be outdated. Their order is one in which they can be loaded: a table comes after its parents, and a
// table that triggers write comes after all others.
func schemaTables(ctx context.Context) (tables []table, err error) {
	err = withMigrated(ctx, latestSchema(), func(db *sql.DB) error {
		schema := &session{conn: db, dialect: dialect.SQLite}
		if tables, err = readTables(ctx, schema); err != nil {
			return err
		}
		return markTriggered(ctx, schema, tables)
	})
	if err != nil {
		return nil, err
	}
	ordered := inLoadOrder(tables)
	if len(ordered) < len(tables) {
		return nil, errors.New("foreign keys of the schema refer to each other in a circle")
	}
	return ordered, nil
}

const (
	selectTables = `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' AND name <> '` + goose.DefaultTablename + `'
		ORDER BY name`
	selectColumns = `SELECT name, type, "notnull" FROM pragma_table_info(?) ORDER BY cid`
	// selectKey selects the columns of the primary key or, without one, of the unique index.
	selectKey = `SELECT name FROM pragma_table_info(?1) WHERE pk > 0
		UNION ALL SELECT i.name FROM pragma_index_list(?1) l, pragma_index_info(l.name) i
			WHERE l."unique" AND NOT EXISTS (SELECT 1 FROM pragma_table_info(?1) WHERE pk > 0)`
	selectParents  = `SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)`
	selectTriggers = `SELECT sql FROM sqlite_schema WHERE type = 'trigger'`
)

func readTables(ctx context.Context, schema query) (tables []table, err error) {
	names, err := collect(ctx, schema, selectTables, nil, scanValue[string])
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		t := table{name: name}
		if t.columns, err = collect(ctx, schema, selectColumns, []any{name}, scanColumn); err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		if t.key, err = collect(ctx, schema, selectKey, []any{name}, scanValue[string]); err != nil {
			return nil, err
		}
		if t.parents, err = collect(ctx, schema, selectParents, []any{name}, scanValue[string]); err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func scanColumn(rows *sql.Rows) (c tableColumn, err error) {
	var declared string
	if err := rows.Scan(&c.name, &declared, &c.required); err != nil {
		return c, err
	}
	if c.kind = columnKinds[declared]; c.kind == "" {
		return c, fmt.Errorf("column %s has the type %q", c.name, declared)
	}
	return c, nil
}

// written finds the table that a statement of a trigger writes.
var written = regexp.MustCompile(`\b(?:INTO|UPDATE|FROM)\s+(\w+)`)

func markTriggered(ctx context.Context, schema query, tables []table) error {
	triggers, err := collect(ctx, schema, selectTriggers, nil, scanValue[string])
	if err != nil {
		return err
	}
	for _, trigger := range triggers {
		_, body, _ := strings.Cut(trigger, "BEGIN")
		for statement := range strings.SplitSeq(body, ";") {
			if word := written.FindStringSubmatch(statement); word != nil {
				for i := range tables {
					tables[i].triggered = tables[i].triggered || tables[i].name == word[1]
				}
			}
		}
	}
	return nil
}

// inLoadOrder leaves out tables whose parents come in no order.
func inLoadOrder(tables []table) (ordered []table) {
	placed := map[string]bool{}
	for _, triggered := range []bool{false, true} {
		for before := -1; before < len(ordered); {
			before = len(ordered)
			for _, t := range tables {
				waits := slices.ContainsFunc(t.parents, func(parent string) bool { return !placed[parent] })
				if t.triggered == triggered && !placed[t.name] && !waits {
					ordered, placed[t.name] = append(ordered, t), true
				}
			}
		}
	}
	return ordered
}

// columnNames returns the names of the columns.
func (t table) columnNames() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// quoted returns names as a list in SQL: a name may be a keyword.
func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }
