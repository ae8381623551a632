package store

import (
	"bytes"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestoreOfForeignSchema checks that a backup with a trigger, view, index or table that the migrations did not create is
// refused, and that the error names it. Tables that SQLite itself creates are accepted.
func TestRestoreOfForeignSchema(t *testing.T) {
	for name, tt := range map[string]struct {
		change, names string
	}{
		"as it was":            {"", ""},
		"with statistics":      {"ANALYZE", ""},
		"a trigger":            {"CREATE TRIGGER planted AFTER INSERT ON meta BEGIN DELETE FROM announcements; END", `trigger "planted"`},
		"a view":               {"CREATE VIEW planted AS SELECT value FROM meta", `view "planted"`},
		"an index":             {"CREATE INDEX planted ON meta (hex(value))", `index "planted"`},
		"a table":              {"CREATE TABLE planted (x)", `table "planted"`},
		"another column":       {"ALTER TABLE meta ADD COLUMN planted TEXT DEFAULT 'x'", `table "meta"`},
		"an index that is not": {"DROP INDEX findings_present", `index "findings_present"`},
		"a view for a table":   {"ALTER TABLE meta RENAME TO real; CREATE VIEW meta AS SELECT * FROM real", `table "real"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStore(t)
			if tt.change != "" {
				_, err := f.writer.ExecContext(t.Context(), tt.change)
				must(t, err)
			}
			path := filepath.Join(t.TempDir(), "store.db")
			_, err := StageRestore(t.Context(), bytes.NewReader(backupOf(t, f.Store)), path)
			if tt.names == "" {
				must(t, err)
				return
			}
			if !errors.Is(err, ErrForeignSchema) || !strings.Contains(err.Error(), tt.names) {
				t.Errorf("the error is %v, want one about a foreign schema that names %s", err, tt.names)
			}
			if left := files(t, path); len(left) > 0 {
				t.Errorf("it left %q", left)
			}
		})
	}
}

// TestSchemaIsNotTrusted checks that no connection runs functions with side effects from a table, view or trigger.
func TestSchemaIsNotTrusted(t *testing.T) {
	f := newStore(t)
	for name, db := range map[string]*sql.DB{"writer": f.writer, "reader": f.reader} {
		var trusted bool
		must(t, db.QueryRowContext(t.Context(), `PRAGMA trusted_schema`).Scan(&trusted))
		if trusted {
			t.Errorf("the %s trusts the schema", name)
		}
	}
}
