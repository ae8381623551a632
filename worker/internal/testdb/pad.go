package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// withoutIndexes is the share of an installed database that its rows take. The indexes take the rest. The value is slightly
// above the measured one, so that the installed file is larger rather than smaller than requested.
const withoutIndexes = 0.83

// copiedTables are the tables whose rows are copied, with the expressions of their columns in a copy. IDs are increased by a multiple of
// the original number of rows, so that copies refer to copies. Names get the copy's number (n.k).
// Operating systems and providers are not copied: copies refer to the original ones.
var copiedTables = []struct {
	table   string
	columns []column
}{
	{"blobs", []column{id("id", "blobs"), same("value")}},
	{"vulnerability_handles", []column{
		id("id", "vulnerability_handles"), named("name"), same("status"), same("published_date"), same("modified_date"),
		same("withdrawn_date"), same("provider_id"), id("blob_id", "blobs"),
	}},
	{"vulnerability_aliases", []column{named("name"), named("alias")}},
	{"packages", []column{id("id", "packages"), same("ecosystem"), named("name")}},
	{"affected_package_handles", []column{
		id("id", "affected_package_handles"), id("vulnerability_id", "vulnerability_handles"), same("operating_system_id"),
		id("package_id", "packages"), id("blob_id", "blobs"),
	}},
	{"cpes", []column{
		id("id", "cpes"), same("part"), same("vendor"), named("product"), same("edition"), same("language"),
		same("software_edition"), same("target_hardware"), same("target_software"), same("other"),
	}},
	{"affected_cpe_handles", []column{
		id("id", "affected_cpe_handles"), id("vulnerability_id", "vulnerability_handles"), id("cpe_id", "cpes"), id("blob_id", "blobs"),
	}},
	{"epss_handles", []column{id("id", "epss_handles"), named("cve"), same("epss"), same("percentile")}},
}

// column is a column of a table with the SQL expression of its copy.
type column struct{ name, expression string }

func same(name string) column  { return column{name, name} }
func named(name string) column { return column{name, name + " || '-copy-' || n.k"} }

// id returns a column that refers to a row of a table.
func id(name, table string) column {
	return column{name, fmt.Sprintf("%s + n.k * (SELECT rows FROM %s_before)", name, table)}
}

// pad adds copies until the file has at least the given number of bytes after indexing.
func pad(ctx context.Context, file string, bytes int64) (err error) {
	if bytes == 0 {
		return nil
	}
	// No journal is needed: after an error, the file is useless.
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(off)&_pragma=synchronous(off)&_pragma=foreign_keys(off)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // temporary tables belong to a connection
	for _, c := range copiedTables {
		if _, err := db.ExecContext(ctx, fmt.Sprintf("CREATE TEMP TABLE %[1]s_before AS SELECT ifnull(max(rowid), 0) AS rows FROM %[1]s", c.table)); err != nil {
			return err
		}
	}
	wanted := int64(float64(bytes) * withoutIndexes)
	// A few copies show the size of one.
	const first = 100
	before, err := size(ctx, db)
	if err != nil {
		return err
	}
	if err := addCopies(ctx, db, 1, first); err != nil {
		return err
	}
	after, err := size(ctx, db)
	if err != nil || after >= wanted {
		return err
	}
	return addCopies(ctx, db, first+1, first+(wanted-after)*first/(after-before)+1)
}

// addCopies adds the copies with the numbers from from to to.
func addCopies(ctx context.Context, db *sql.DB, from, to int64) error {
	for _, c := range copiedTables {
		var names, expressions []string
		for _, column := range c.columns {
			names, expressions = append(names, column.name), append(expressions, column.expression)
		}
		// Only the original rows are copied.
		if _, err := db.ExecContext(ctx, fmt.Sprintf(`
			WITH RECURSIVE n(k) AS (VALUES(?) UNION ALL SELECT k + 1 FROM n WHERE k < ?)
			INSERT INTO %[1]s (%[2]s) SELECT %[3]s FROM n, %[1]s WHERE %[1]s.rowid <= (SELECT rows FROM %[1]s_before)`,
			c.table, strings.Join(names, ", "), strings.Join(expressions, ", ")), from, to); err != nil {
			return fmt.Errorf("%s: %w", c.table, err)
		}
	}
	return nil
}

// size returns the size of the database in bytes.
func size(ctx context.Context, db *sql.DB) (bytes int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").Scan(&bytes)
	return bytes, err
}
