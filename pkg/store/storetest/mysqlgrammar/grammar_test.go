// Package mysqlgrammar checks the statements that MySQL gets with a parser of MySQL's grammar, and for what MySQL refuses and MariaDB does
// not. MariaDB, on which they are tested, has a grammar of its own.
package mysqlgrammar

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dolthub/vitess/go/vt/sqlparser"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/statements"
)

const store = "../.."

// variants are expressions that the source alone does not tell. Of the statements for each table, the names are in the migrations.
var variants = map[string][]string{
	"(*session).ExecContext: s.expand(statement, args)": nil, "(*session).QueryContext: s.expand(statement, args)": nil,
	"(*session).QueryRowContext: s.expand(statement, args)": nil,

	"readTables: name": nil, "writeTable: selectTable(t)": nil, "(*loader).loadTable: statement": nil,
	"(serverBacking).check: databaseSize[b.dialect]": {
		`SELECT CAST(coalesce(sum(data_length + index_length), 0) AS SIGNED) FROM information_schema.tables WHERE table_schema = database()`,
	},
}

// otherDatabase are the files and functions with statements that MySQL does not get.
var otherDatabase = []string{
	"backup.go", "filehealth.go", "restore.go", "restoredstore.go", "schema_objects.go", "tables.go", "postgres.go", "migrate", "checkOwner",
}

// unknownToParser is what MySQL knows and the parser does not.
var unknownToParser = strings.NewReplacer(
	// A column of JSON_TABLE has a type with a character set: jt_column in https://github.com/mysql/mysql-server/blob/8.4/sql/sql_yacc.yy
	"LONGTEXT CHARACTER SET utf8mb4 PATH", "LONGTEXT PATH",
	// https://dev.mysql.com/doc/refman/8.4/en/do.html
	"DO release_lock(", "SELECT release_lock(",
)

// TestStatements checks the statements of the source.
func TestStatements(t *testing.T) {
	found, err := statements.Collect(store, variants)
	if err != nil {
		t.Fatal(err)
	}
	for _, unknown := range found.Unknown {
		t.Errorf("the statement cannot be evaluated from the source, add it to the variants: %s", unknown)
	}
	parsed := 0
	for _, s := range found.Statements {
		file, _, _ := strings.Cut(s.Position, ":")
		if slices.Contains(otherDatabase, file) || slices.Contains(otherDatabase, s.Function) || strings.HasSuffix(s.Text, " RETURNING id") {
			continue
		}
		text := s.Text
		if !s.Native {
			expanded, err := dialect.MySQL.Expand(text)
			if err != nil {
				t.Errorf("%s: %v", s.Position, err)
				continue
			}
			text = expanded.Text
		}
		if err := check(t, text); err != nil {
			t.Errorf("%s: %v\n%s", s.Position, err, text)
		}
		parsed++
	}
	t.Logf("%d statements", parsed)
	if parsed < 200 {
		t.Errorf("parsed only %d statements", parsed)
	}
}

// TestMigrations checks the statements of the migrations.
func TestMigrations(t *testing.T) {
	names, err := filepath.Glob(store + "/migrations/mysql/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatal("no migrations", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all := split(string(text))
		for _, statement := range all {
			if err := check(t, statement); err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(name), err, statement)
			}
		}
		t.Logf("%s: %d statements", filepath.Base(name), len(all))
	}
}

// split returns the statements of a migration, which end with a line's end or are marked.
func split(text string) (all []string) {
	var statement strings.Builder
	marked := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		switch {
		case strings.Contains(line, "+goose StatementBegin"):
			marked = true
		case strings.Contains(line, "+goose StatementEnd"):
			marked = false
			all = append(all, strings.TrimSuffix(statement.String(), ";\n"))
			statement.Reset()
		case strings.HasPrefix(line, "--") || line == "":
		case !marked && strings.HasSuffix(line, ";"):
			all = append(all, statement.String()+strings.TrimSuffix(line, ";"))
			statement.Reset()
		default:
			statement.WriteString(line + "\n")
		}
	}
	return all
}

// TestCheck checks that what MySQL refuses is found.
func TestCheck(t *testing.T) {
	for text, accepted := range map[string]bool{
		`DELETE FROM a WHERE id IN (SELECT id FROM b)`:                                                           true,
		`DELETE FROM a WHERE id IN (SELECT id FROM a)`:                                                           false,
		`DELETE FROM a WHERE id IN (SELECT id FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.id = b.id))`:          false,
		`DELETE FROM a WHERE id IN (SELECT id FROM (SELECT id FROM a) AS x)`:                                     false, // merged into the outer query
		`DELETE FROM a WHERE id IN (SELECT id FROM (SELECT id FROM a LIMIT 1) AS x)`:                             true,
		`UPDATE a SET v = (SELECT max(v) FROM a)`:                                                                false,
		`UPDATE a, (SELECT max(v) AS v FROM a) AS x SET a.v = x.v`:                                               true,
		`UPDATE a, (SELECT v FROM a) AS x SET a.v = x.v`:                                                         false,
		`WITH x AS (SELECT id FROM a) DELETE FROM a WHERE id IN (SELECT id FROM x)`:                              false,
		`CREATE TRIGGER t AFTER INSERT ON b FOR EACH ROW DELETE FROM a WHERE id IN (SELECT id FROM a)`:           false,
		`CREATE TRIGGER t AFTER INSERT ON b FOR EACH ROW BEGIN DELETE FROM a WHERE id = (SELECT 1 FROM a); END;`: false,
		`SELECT rank FROM a`:                    false,
		`SELECT system FROM a`:                  false,
		`SELECT parallel FROM a`:                false,
		`SELECT "rank", 'rank' FROM a`:          true,
		`SELECT a FROM b INNER JOIN`:            false,
		`SELECT max(a) FILTER (WHERE b) FROM c`: false,
	} {
		if err := check(t, text); (err == nil) != accepted {
			t.Errorf("%s: %v, want accepted %t", text, err, accepted)
		}
	}
}

// check returns why MySQL would refuse a statement.
func check(t *testing.T, text string) error {
	if word := reserved.FindString(literals.ReplaceAllString(text, "''")); word != "" {
		return fmt.Errorf("%s is a reserved word of MySQL: put it in double quotes", word)
	}
	tree, err := sqlparser.ParseWithOptions(t.Context(), unknownToParser.Replace(text), sqlparser.ParserOptions{AnsiQuotes: true})
	if err != nil {
		return err
	}
	return findSelfReads(tree)
}

// literals matches texts and names in quotes.
var literals = regexp.MustCompile(`'[^']*'|"[^"]*"`)

// reserved matches the words that MySQL 8.4 reserves and MariaDB 10.6 does not, but for those that the statements use in their meaning
// (https://dev.mysql.com/doc/refman/8.4/en/keywords.html). The parser takes some of them for names.
var reserved = regexp.MustCompile(`(?i)\b(?:CUBE|CUME_DIST|DENSE_RANK|EMPTY|FIRST_VALUE|FUNCTION|GET|GROUPING|GROUPS|IO_AFTER_GTIDS|IO_BEFORE_GTIDS|LAG|` +
	`LAST_VALUE|LATERAL|LEAD|MANUAL|MASTER_BIND|NTH_VALUE|NTILE|OF|OPTIMIZER_COSTS|PARALLEL|PERCENT_RANK|QUALIFY|RANK|ROWS|ROW_NUMBER|SYSTEM|` +
	`TABLESAMPLE|VIRTUAL|WINDOW)\b`)

// findSelfReads returns an error if a statement reads, in a subquery, the table that it changes: MySQL refuses that (error 1093) unless the
// subquery's result is kept in a temporary table.
func findSelfReads(tree sqlparser.SQLNode) error {
	return sqlparser.Walk(func(node sqlparser.SQLNode) (bool, error) {
		switch n := node.(type) {
		case *sqlparser.DDL:
			if n.TriggerSpec != nil {
				return false, findSelfReads(n.TriggerSpec.Body)
			}
			if n.ProcedureSpec != nil {
				return false, findSelfReads(n.ProcedureSpec.Body)
			}
		case *sqlparser.BeginEndBlock:
			return false, eachStatement(n.Statements)
		case *sqlparser.IfStatement:
			for _, condition := range n.Conditions {
				if err := eachStatement(condition.Statements); err != nil {
					return false, err
				}
			}
			return false, eachStatement(n.Else)
		case *sqlparser.Update:
			return false, findReads(n, changed(n.TableExprs), false)
		case *sqlparser.Delete:
			return false, findReads(n, changed(n.TableExprs), false)
		}
		return true, nil
	}, tree)
}

func eachStatement(all sqlparser.Statements) error {
	for _, statement := range all {
		if err := findSelfReads(statement); err != nil {
			return err
		}
	}
	return nil
}

// changed returns the name of the table that a statement changes: the first one.
func changed(from sqlparser.TableExprs) (name string) {
	_ = sqlparser.Walk(func(node sqlparser.SQLNode) (bool, error) {
		if table, isTable := node.(sqlparser.TableName); isTable && name == "" {
			name = table.Name.String()
		}
		return name == "", nil
	}, from)
	return name
}

// findReads returns an error if a subquery below a node reads a table. within is true if the node is in a subquery already.
func findReads(tree sqlparser.SQLNode, table string, within bool) error {
	return sqlparser.Walk(func(node sqlparser.SQLNode) (bool, error) {
		switch n := node.(type) {
		case *sqlparser.AliasedTableExpr:
			name, isName := n.Expr.(sqlparser.TableName)
			if isName && within && strings.EqualFold(name.Name.String(), table) {
				return false, fmt.Errorf("a subquery reads %s, which the statement changes", table)
			}
			if derived, isDerived := n.Expr.(*sqlparser.Subquery); isDerived && isMaterialized(derived.Select) {
				return false, nil
			}
		case *sqlparser.Subquery:
			if !within {
				return false, findReads(n.Select, table, true)
			}
		}
		return true, nil
	}, tree)
}

// isMaterialized is true for a derived table that MySQL does not merge into the query around it
// (https://dev.mysql.com/doc/refman/8.4/en/derived-table-optimization.html).
func isMaterialized(query sqlparser.SelectStatement) bool {
	s, isSelect := query.(*sqlparser.Select)
	if !isSelect || s.QueryOpts.Distinct || len(s.GroupBy) > 0 || s.Having != nil || s.Limit != nil || len(s.Window) > 0 {
		return true
	}
	aggregates := false
	_ = sqlparser.Walk(func(node sqlparser.SQLNode) (bool, error) {
		function, isFunction := node.(*sqlparser.FuncExpr)
		aggregates = aggregates || isFunction && function.IsAggregate()
		_, isSubquery := node.(*sqlparser.Subquery)
		return !isSubquery, nil
	}, s.SelectExprs)
	return aggregates
}
