package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/statements"
)

// statementVariants returns the values of the expressions that the source alone does not tell, and the database of the texts that are not for
// all: by the file that they are in, the function that passes them on, or themselves.
func statementVariants(t *testing.T) (variants map[string][]string, only map[string]*dialect.Dialect) {
	only = map[string]*dialect.Dialect{
		"backup.go": dialect.SQLite, "filehealth.go": dialect.SQLite, "restore.go": dialect.SQLite, "restoredstore.go": dialect.SQLite,
		"schema_objects.go": dialect.SQLite, "tables.go": dialect.SQLite, "migrate": dialect.SQLite, "checkOwner": dialect.SQLite,
		"postgres.go": dialect.PostgreSQL, "mysql.go": dialect.MySQL,
	}
	var names, selects, inserts, after, sizes []string
	for _, table := range got[[]table](t)(schemaTables(t.Context())) {
		names = append(names, table.name)
		selects = append(selects, selectTable(table))
		inserts = append(inserts, insertRecords(table))
	}
	for _, d := range []*dialect.Dialect{dialect.SQLite, dialect.PostgreSQL, dialect.MySQL} {
		if d.AfterLoad != nil {
			for _, text := range d.AfterLoad("findings", true) {
				after, only[text] = append(after, text), d
			}
		}
		if text := databaseSize[d]; text != "" {
			sizes, only[text] = append(sizes, text), d
		}
	}
	return map[string][]string{
		// These functions get every statement.
		"(*session).ExecContext: s.expand(statement, args)":     nil,
		"(*session).QueryContext: s.expand(statement, args)":    nil,
		"(*session).QueryRowContext: s.expand(statement, args)": nil,

		"readTables: name":                               names,
		"writeTable: selectTable(t)":                     selects,
		"(*loader).loadTable: statement":                 append(inserts, after...),
		"(serverBacking).check: databaseSize[b.dialect]": sizes,
	}, only
}

// TestStatements prepares every statement of the source, also those that no other test runs, on each database.
func TestStatements(t *testing.T) {
	variants, only := statementVariants(t)
	found := got[statements.Found](t)(statements.Collect(".", variants))
	for _, unknown := range found.Unknown {
		t.Errorf("the statement cannot be evaluated from the source, add it to the variants: %s", unknown)
	}
	for _, unused := range found.Unused {
		t.Errorf("no function runs this statement, or it is not found: %s", unused)
	}
	for _, unused := range found.UnusedVariants {
		t.Errorf("the variant stands for no expression: %s", unused)
	}
	eachDatabase(t, func(t *testing.T, f fixture) {
		prepared := 0
		for _, s := range found.Statements {
			file, _, _ := strings.Cut(s.Position, ":")
			if d := cmp.Or(only[file], only[s.Function], only[s.Text]); d != nil && d != f.dialect || strings.HasSuffix(s.Text, " RETURNING id") && !f.dialect.ReturnsID {
				continue
			}
			text := s.Text
			if !s.Native {
				expanded, err := f.dialect.Expand(text)
				if err != nil {
					t.Errorf("%s: %v", s.Position, err)
					continue
				}
				text = expanded.Text
			}
			if err := prepareStatement(t.Context(), f.writer, text); err != nil {
				t.Errorf("%s, run by %s: %v\n%s", s.Position, s.Function, err, text)
				continue
			}
			if f.dialect == dialect.MySQL {
				requireParametersOnce(t, f, s.Position, text)
			}
			prepared++
		}
		t.Logf("%d statements", prepared)
		if prepared < 300 {
			t.Errorf("prepared only %d statements", prepared)
		}
	})
}

func prepareStatement(ctx context.Context, db *sql.DB, text string) (err error) {
	statement, err := db.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	return nil
}

// requireParametersOnce fails the test if an UPDATE or DELETE on MariaDB reads a parameter in JSON again for each row of its table: it goes
// through the whole table then.
func requireParametersOnce(t *testing.T, f fixture, position, text string) {
	t.Helper()
	if begin := strings.TrimSpace(text); !strings.HasPrefix(begin, "UPDATE") && !strings.HasPrefix(begin, "DELETE") {
		return
	}
	args := make([]any, strings.Count(text, "?"))
	for i := range args {
		args[i] = 1
	}
	plan := strings.Join(explain(t, f.writer, text, args), "\n")
	if regexp.MustCompile(`DEPENDENT SUBQUERY.*json_table`).MatchString(plan) {
		t.Errorf("%s: the statement goes through a whole table:\n%s\n%s", position, text, plan)
	}
}

// explain returns the query plan of a statement on MySQL: a line for each table.
func explain(t *testing.T, db *sql.DB, text string, args []any) (plan []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+text, args...)
	must(t, err)
	defer rows.Close()
	columns := got[[]string](t)(rows.Columns())
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		must(t, rows.Scan(into...))
		line := ""
		for _, value := range values {
			line += value.String + " "
		}
		plan = append(plan, line)
	}
	must(t, rows.Err())
	return plan
}
