package vulndb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// withoutIndexes is the share of an installed database that its rows take; the indexes take the rest. A little more
// than measured, so that the installed file is rather larger than asked for.
const withoutIndexes = 0.83

// copied are the tables of which rows are copied, each with how a column of its copy differs: ids move on by the
// number of rows that there are, so that copies refer to copies; names get the copy's number (n.k).
// Operating systems and providers stay: the copies belong to the same ones.
var copied = []struct {
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

// column of a table with the SQL expression of its copy.
type column struct{ name, expression string }

func same(name string) column  { return column{name, name} }
func named(name string) column { return column{name, name + " || '-copy-' || n.k"} }

// id is a column that refers to a row of a table.
func id(name, table string) column {
	return column{name, fmt.Sprintf("%s + n.k * (SELECT rows FROM %s_before)", name, table)}
}

// pad adds copies until the file will have at least the given number of bytes once its indexes are there.
func pad(ctx context.Context, file string, bytes int64) (err error) {
	if bytes == 0 {
		return nil
	}
	// No journal: after an error the file is of no use, whatever is in it.
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(off)&_pragma=synchronous(off)&_pragma=foreign_keys(off)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // temporary tables belong to a connection
	for _, c := range copied {
		if _, err := db.ExecContext(ctx, fmt.Sprintf("CREATE TEMP TABLE %[1]s_before AS SELECT ifnull(max(rowid), 0) AS rows FROM %[1]s", c.table)); err != nil {
			return err
		}
	}
	wanted := int64(float64(bytes) * withoutIndexes)
	// A few copies tell how large one is.
	const first = 100
	before, err := size(ctx, db)
	if err != nil {
		return err
	}
	if err := copies(ctx, db, 1, first); err != nil {
		return err
	}
	after, err := size(ctx, db)
	if err != nil || after >= wanted {
		return err
	}
	return copies(ctx, db, first+1, first+(wanted-after)*first/(after-before)+1)
}

// copies makes the copies with these numbers.
func copies(ctx context.Context, db *sql.DB, from, to int64) error {
	for _, c := range copied {
		var names, expressions []string
		for _, column := range c.columns {
			names, expressions = append(names, column.name), append(expressions, column.expression)
		}
		// Rows that were there before, and none of the copies.
		if _, err := db.ExecContext(ctx, fmt.Sprintf(`
			WITH RECURSIVE n(k) AS (VALUES(?) UNION ALL SELECT k + 1 FROM n WHERE k < ?)
			INSERT INTO %[1]s (%[2]s) SELECT %[3]s FROM n, %[1]s WHERE %[1]s.rowid <= (SELECT rows FROM %[1]s_before)`,
			c.table, strings.Join(names, ", "), strings.Join(expressions, ", ")), from, to); err != nil {
			return fmt.Errorf("%s: %w", c.table, err)
		}
	}
	return nil
}

// size of the database in bytes.
func size(ctx context.Context, db *sql.DB) (bytes int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").Scan(&bytes)
	return bytes, err
}
