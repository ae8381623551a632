package dialect

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// PostgreSQL is the dialect of PostgreSQL 14 and newer. Every text column is declared with COLLATE "C", so texts compare bytewise;
// texts from JSON get the same collation.
var PostgreSQL = &Dialect{
	Name: "PostgreSQL", ReturnsID: true, Snapshot: sql.LevelRepeatableRead,
	AfterLoad: func(table string, hasIDs bool) []string {
		statements := []string{`ANALYZE ` + table}
		if hasIDs {
			statements = append(statements, fmt.Sprintf(`SELECT setval(pg_get_serial_sequence('%s', 'id'), max(id)) FROM %[1]s`, table))
		}
		if table == "findings" {
			// The schema leaves this constraint out, since it takes a lock of a row for each new finding.
			statements = append(statements, `ALTER TABLE findings ADD CONSTRAINT loaded FOREIGN KEY (vulnerability_id) REFERENCES vulnerabilities (id)`,
				`ALTER TABLE findings DROP CONSTRAINT loaded`)
		}
		return statements
	},
	placeholder: func(n int) string { return fmt.Sprint("$", n) },
	orderedJoin: "JOIN",
	indexedBy:   func(string) string { return "" },
	macros: map[string]macro{
		"ids":       format(1, `(SELECT value::bigint AS value FROM jsonb_array_elements_text(%s::jsonb) AS e(value))`),
		"texts":     format(1, `(SELECT value COLLATE "C" AS value FROM jsonb_array_elements_text(%s::jsonb) AS e(value))`),
		"records":   postgresRecords,
		"greatest":  call("GREATEST"),
		"least":     call("LEAST"),
		"group_key": listed,
		"key_of":    listed,
		"id_array":  format(1, `coalesce(jsonb_agg(%s), '[]')::text`),
		"fold":      format(1, `lower((%s) COLLATE "C")`),
		"contains":  format(2, "strpos(%s, %s) > 0"),
		"unindexed": format(1, "%s"),
		"unjoined":  format(1, "(%s) IS TRUE"),
		"differs":   format(2, "%s IS DISTINCT FROM %s"),
		"hexed":     format(1, "upper(encode(%s, 'hex'))"),
		"joined":    format(1, "string_agg(DISTINCT %s, ',')"),
		"integer":   format(1, "(%s)::bigint"),
		"key_part":  call("short_key"),
		"whole":     format(2, "(%s / %s)"),
	},
	rewrite: rewritePostgreSQL,
}

// rewritePostgreSQL turns NESTED JOIN t a ON … into a join with a subquery that OFFSET 0 keeps as it is
// (https://www.postgresql.org/docs/current/explicit-joins.html binds no more than the order). Without statistics the planner takes each
// condition for true of a fixed share of the rows, and prefers to read whole tables.
func rewritePostgreSQL(text string) (string, error) {
	tokens, err := tokensOf(text)
	if err != nil {
		return "", err
	}
	for nested := tokens.word(0); nested >= 0; nested = tokens.word(nested + 1) {
		if !tokens.is(nested, "NESTED") {
			continue
		}
		join := tokens.word(nested + 1)
		if tokens.is(join, "LEFT") {
			join = tokens.word(join + 1)
		}
		table := tokens.word(join + 1)
		alias := tokens.word(table + 1)
		on := tokens.topLevel(alias, "ON")
		if !tokens.is(join, "JOIN") || on < 0 {
			return "", errors.New("NESTED JOIN without a table, its alias and ON")
		}
		end := tokens.endOfCondition(on + 1)
		subquery := fmt.Sprintf(" LATERAL (SELECT * FROM %s WHERE%s OFFSET 0) %s ON true ",
			tokens[table:on].join(), tokens[on+1:end].join(), tokens[alias].text)
		tokens = slices.Concat(tokens[:nested], tokens[nested+1:join+1], []token{{tokenOther, subquery}}, tokens[end:])
	}
	return tokens.join(), nil
}

// endOfCondition returns the index of what follows a condition of a join.
func (t tokens) endOfCondition(from int) int {
	depth := 0
	for i := from; i < len(t); i++ {
		switch {
		case t[i].text == "(":
			depth++
		case t[i].text == ")" && depth == 0:
			return i
		case t[i].text == ")":
			depth--
		case depth == 0 && slices.ContainsFunc(afterCondition, func(word string) bool { return t.is(i, word) }):
			return i
		}
	}
	return len(t)
}

// afterCondition are the words that can follow a condition of a join.
var afterCondition = []string{"JOIN", "LEFT", "ORDERED", "NESTED", "WHERE", "GROUP", "ORDER", "LIMIT", "UNION"}

func postgresRecords(args []string) (string, error) {
	columns, err := columnsOf(args[1:])
	if err != nil {
		return "", err
	}
	var selected []string
	for i, c := range columns {
		value := fmt.Sprintf("(v ->> %d)", i)
		switch c.kind {
		case "text":
			value += ` COLLATE "C"`
		case "bytes":
			value = "decode(" + value + ", 'hex')"
		case "double":
			value += "::double precision"
		default:
			value += "::bigint"
		}
		selected = append(selected, value+" AS "+c.name)
	}
	return "(SELECT " + strings.Join(selected, ", ") + " FROM jsonb_array_elements(" + args[0] + "::jsonb) AS e(v))", nil
}
