package dialect

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MySQL is the dialect of MySQL 8.4 (8.0.19 and newer are accepted and not tested), MariaDB 10.6 or newer, with the sql_mode of
// MySQLMode. Every text column is binary, so texts compare bytewise; texts from JSON are converted.
var MySQL = &Dialect{
	Name: "MySQL", Snapshot: sql.LevelRepeatableRead,
	placeholder: func(int) string { return "?" },
	repeats:     true,
	orderedJoin: "STRAIGHT_JOIN",
	indexedBy:   func(index string) string { return "FORCE INDEX (" + index + ")" },
	macros: map[string]macro{
		"ids":       format(1, `(SELECT value FROM JSON_TABLE(%s, '$[*]' COLUMNS (value BIGINT PATH '$')) AS j)`),
		"texts":     format(1, `(SELECT CAST(value AS BINARY) AS value FROM JSON_TABLE(%s, '$[*]' COLUMNS (value LONGTEXT CHARACTER SET utf8mb4 PATH '$')) AS j)`),
		"records":   mysqlRecords,
		"greatest":  call("GREATEST"),
		"least":     call("LEAST"),
		"group_key": listed,
		"key_of":    mysqlKey,
		"id_array":  format(1, `coalesce(json_arrayagg(%s), '[]')`),
		// lower also folds letters beyond ASCII here, so contains does that with what it looks for.
		"fold":      format(1, `CAST(lower(CONVERT(%s USING utf8mb4)) AS BINARY)`),
		"contains":  format(2, "instr(%s, CAST(lower(CONVERT(%s USING utf8mb4)) AS BINARY)) > 0"),
		"unindexed": format(1, "%s"),
		"unjoined":  format(1, "%s"),
		"differs":   format(2, "NOT (%s <=> %s)"),
		"hexed":     format(1, "hex(%s)"),
		"joined":    format(1, "group_concat(DISTINCT %s)"),
		"integer":   format(1, "%s"),
		"key_part":  format(1, "%s"),
		"whole":     format(2, "(%s DIV %s)"),
		// A character has several bytes: a text is cut between two of them, and compares bytewise again.
		"substr": func(args []string) (string, error) {
			return "CAST(substr(CONVERT(" + args[0] + " USING utf8mb4), " + strings.Join(args[1:], ", ") + ") AS BINARY)", nil
		},
	},
	rewrite: rewriteMySQL,
}

// MySQLMode is the sql_mode of every session (https://dev.mysql.com/doc/refman/8.4/en/sql-mode.html): double quotes for names, || for texts,
// backslashes as they are, and errors instead of changed values.
const MySQLMode = "ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

// mysqlKey returns a short text that stands for others of any length. MariaDB cannot look up a BLOB in the result of a query: it would run the
// query again for a few rows at a time.
func mysqlKey(args []string) (string, error) {
	return "sha2(concat_ws(x'00', " + strings.Join(args, ", ") + "), 256)", nil
}

func mysqlRecords(args []string) (string, error) {
	columns, err := columnsOf(args[1:])
	if err != nil {
		return "", err
	}
	var declared, selected []string
	for i, c := range columns {
		name := `"` + c.name + `"` // it may be a reserved word
		kind, value := strings.ToUpper(c.kind), name
		switch c.kind {
		case "text":
			kind, value = "LONGTEXT CHARACTER SET utf8mb4", "CAST("+name+" AS BINARY)"
		case "bytes":
			kind, value = "LONGTEXT CHARACTER SET utf8mb4", "unhex(concat("+name+", ''))" // MariaDB 10.11 updates a row with NUL bytes without the concat
		}
		declared = append(declared, fmt.Sprintf("%s %s PATH '$[%d]'", name, kind, i))
		selected = append(selected, value+" AS "+name)
	}
	return "(SELECT " + strings.Join(selected, ", ") + " FROM JSON_TABLE(" + args[0] + ", '$[*]' COLUMNS (" + strings.Join(declared, ", ") + ")) AS j)", nil
}

// rewriteMySQL translates ON CONFLICT, UPDATE … FROM, and UPDATE and DELETE of rows that a query selects, and removes MATERIALIZED, which is the
// default.
func rewriteMySQL(text string) (string, error) {
	tokens, err := tokensOf(text)
	if err != nil {
		return "", err
	}
	tokens = slices.DeleteFunc(tokens, func(t token) bool { return t.kind == tokenWord && strings.EqualFold(t.text, "MATERIALIZED") })
	first := tokens.word(0)
	if tokens.is(first, "UPDATE") {
		return rewriteUpdate(tokens, first)
	}
	if tokens.is(first, "DELETE") {
		return rewriteDelete(tokens, first), nil
	}
	return rewriteInsert(tokens)
}

// rewriteUpdate turns UPDATE t SET a = … FROM x WHERE … into UPDATE t, x SET t.a = … WHERE …. That changes the order of the parameters, so
// these must have names if there are several. If a query in the condition selects the rows, x is a table with one row.
func rewriteUpdate(tokens tokens, update int) (string, error) {
	set, from, where := tokens.topLevel(update, "SET"), tokens.topLevel(update, "FROM"), tokens.topLevel(update, "WHERE")
	if from < 0 && !tokens.selectsRows(where) {
		return tokens.join(), nil
	}
	if set < 0 || where < from {
		return "", errors.New("UPDATE … FROM without SET or WHERE")
	}
	other := "(SELECT 1 AS one) AS single "
	if from < 0 {
		from = where
	} else {
		other = tokens[from+1 : where].join()
		if strings.Count(tokens.join(), "?") > 1 {
			return "", errors.New("UPDATE … FROM with several parameters without names")
		}
	}
	table := tokens[tokens.word(update+1)].text
	var assignments strings.Builder
	depth, atName := 0, true
	for _, t := range tokens[set+1 : from] {
		switch {
		case atName && strings.TrimSpace(t.text) != "":
			assignments.WriteString(table + ".")
			atName = false
		case t.text == "(":
			depth++
		case t.text == ")":
			depth--
		case t.text == "," && depth == 0:
			atName = true
		}
		assignments.WriteString(t.text)
	}
	return tokens[:set].join() + ", " + other + "SET" + assignments.String() + tokens[where:].join(), nil
}

// rewriteDelete turns DELETE FROM t into DELETE t FROM t if a query in the condition selects the rows.
func rewriteDelete(tokens tokens, first int) string {
	if !tokens.selectsRows(tokens.topLevel(first, "WHERE")) {
		return tokens.join()
	}
	from := tokens.topLevel(first, "FROM")
	return "DELETE " + tokens[tokens.word(from+1)].text + " " + tokens[from:].join()
}

// selectsRows reports whether a condition has IN with a query. MariaDB before 11.1 makes a join of that only in a statement with the form for
// several tables. In the other it goes through the rows of the query for each row of the table.
func (t tokens) selectsRows(where int) bool {
	for i := max(where, 0); i < len(t) && where >= 0; i++ {
		if query := t.word(i + 1); t.is(i, "IN") && (t.is(query, "SELECT") || t.is(query, "WITH")) {
			return true
		}
	}
	return false
}

// rewriteInsert turns ON CONFLICT into ON DUPLICATE KEY UPDATE.
func rewriteInsert(tokens tokens) (string, error) {
	on := tokens.conflict()
	if on < 0 {
		return tokens.join(), nil
	}
	action := tokens.topLevel(on, "DO")
	if action < 0 {
		return "", errors.New("ON CONFLICT without DO")
	}
	into := tokens.topLevel(0, "INTO")
	table := tokens.word(into + 1)
	before := tokens[:on].join() + "ON DUPLICATE KEY UPDATE "
	if tokens.is(tokens.word(action+1), "NOTHING") {
		column := tokens[table].text + "." + tokens[tokens.word(table+1)].text
		return before + column + " = " + column, nil
	}
	var out strings.Builder
	out.WriteString(before)
	values := tokens[tokens.topLevel(action, "SET")+1:]
	for i := 0; i < len(values); i++ {
		if values.is(i, "excluded") && i+2 < len(values) && values[i+1].text == "." {
			out.WriteString("VALUES(" + values[i+2].text + ")")
			i += 2
			continue
		}
		out.WriteString(values[i].text)
	}
	return out.String(), nil
}

type token struct {
	kind tokenKind
	text string
}

// tokens is a statement in parts.
type tokens []token

func tokensOf(text string) (all tokens, err error) {
	s := scanner{text: text}
	for s.next() {
		all = append(all, token{s.kind, s.token})
	}
	return all, s.err
}

func (t tokens) join() string {
	var text strings.Builder
	for _, one := range t {
		text.WriteString(one.text)
	}
	return text.String()
}

func (t tokens) is(i int, word string) bool {
	return i >= 0 && i < len(t) && t[i].kind == tokenWord && strings.EqualFold(t[i].text, word)
}

// word returns the index of the first word from an index on, -1 for none.
func (t tokens) word(from int) int {
	for i := from; i < len(t); i++ {
		if t[i].kind == tokenWord {
			return i
		}
	}
	return -1
}

// topLevel returns the index of a word outside of parentheses, from an index on; -1 if there is none.
func (t tokens) topLevel(from int, word string) int {
	depth := 0
	for i := from; i < len(t); i++ {
		switch {
		case t[i].text == "(":
			depth++
		case t[i].text == ")":
			depth--
		case depth == 0 && t.is(i, word):
			return i
		}
	}
	return -1
}

// conflict returns the index of ON CONFLICT, -1 if there is none.
func (t tokens) conflict() int {
	for on := t.topLevel(0, "ON"); on >= 0; on = t.topLevel(on+1, "ON") {
		if t.is(t.word(on+1), "CONFLICT") {
			return on
		}
	}
	return -1
}
