package dialect

import (
	"database/sql"
	"fmt"
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
		"differs":   format(2, "%s IS DISTINCT FROM %s"),
		"hexed":     format(1, "upper(encode(%s, 'hex'))"),
		"joined":    format(1, "string_agg(DISTINCT %s, ',')"),
		"integer":   format(1, "(%s)::bigint"),
		"key_part":  call("short_key"),
		"whole":     format(2, "(%s / %s)"),
	},
}

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
