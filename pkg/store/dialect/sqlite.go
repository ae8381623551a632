package dialect

import (
	"fmt"
	"strings"
)

// SQLite is the dialect of SQLite (https://www.sqlite.org/lang.html). Its CROSS JOIN fixes the order of the tables. A NULL parameter
// of ids, texts and records has no rows, and so has the empty text.
var SQLite = &Dialect{
	Name: "SQLite", ReturnsID: true, native: true,
	orderedJoin: "CROSS JOIN",
	indexedBy: func(index string) string {
		if strings.HasSuffix(index, "_by_key") {
			return "" // here it is the primary key, which has no name
		}
		return "INDEXED BY " + index
	},
	macros: map[string]macro{
		"ids":       format(1, "json_each(%s)"),
		"texts":     format(1, "json_each(%s)"),
		"records":   sqliteRecords,
		"greatest":  call("max"),
		"least":     call("min"),
		"group_key": call("key_hash"),
		"key_of":    listed,
		"id_array":  format(1, "json_group_array(%s)"),
		"fold":      format(1, "lower(%s)"),
		"contains":  format(2, "instr(%s, %s) > 0"),
		"unindexed": format(1, "+%s"),
		"unjoined":  format(1, "%s"),
		"differs":   format(2, "%s IS NOT %s"),
		"hexed":     format(1, "hex(%s)"),
		"joined":    format(1, "group_concat(DISTINCT %s)"),
		"integer":   format(1, "%s"),
		"key_part":  format(1, "%s"),
		"whole":     format(2, "(%s / %s)"),
	},
}

// sqliteRecords uses jsonb_each: json_each would turn each row back to text, and ->> parse it once more.
func sqliteRecords(args []string) (string, error) {
	columns, err := columnsOf(args[1:])
	if err != nil {
		return "", err
	}
	var selected []string
	for i, c := range columns {
		value := fmt.Sprint("value ->> ", i)
		if c.kind == "bytes" {
			value = "unhex(" + value + ")"
		}
		selected = append(selected, value+" AS "+c.name)
	}
	return "(SELECT " + strings.Join(selected, ", ") + " FROM jsonb_each(" + args[0] + "))", nil
}
