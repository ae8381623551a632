package dialect_test

import (
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/pkg/store/dialect"
)

// TestNestedJoin checks that each database looks up the rows of a table for each row before it.
func TestNestedJoin(t *testing.T) {
	const (
		inner = `SELECT (SELECT 1 FROM a NESTED JOIN b x INDEXED BY i ON x.n = a.n AND x.m IN (?, 2)) FROM a ORDERED JOIN c ON c.n = a.n WHERE a.n = ?`
		outer = `SELECT 1 FROM a NESTED JOIN b x ON x.n = a.n NESTED LEFT JOIN c y ON y.n = x.n WHERE x.m = ?`
	)
	for _, test := range []struct {
		dialect   *dialect.Dialect
		statement string
		want      string
	}{
		{dialect.SQLite, inner, `SELECT (SELECT 1 FROM a CROSS JOIN b x INDEXED BY i ON x.n = a.n AND x.m IN (?, 2)) FROM a CROSS JOIN c ON c.n = a.n WHERE a.n = ?`},
		{dialect.SQLite, outer, `SELECT 1 FROM a CROSS JOIN b x ON x.n = a.n LEFT JOIN c y ON y.n = x.n WHERE x.m = ?`},
		{dialect.MySQL, inner, `SELECT (SELECT 1 FROM a STRAIGHT_JOIN b x FORCE INDEX (i) ON x.n = a.n AND x.m IN (?, 2)) FROM a STRAIGHT_JOIN c ON c.n = a.n WHERE a.n = ?`},
		{dialect.MySQL, outer, `SELECT 1 FROM a STRAIGHT_JOIN b x ON x.n = a.n LEFT JOIN c y ON y.n = x.n WHERE x.m = ?`},
		{dialect.PostgreSQL, inner, `SELECT (SELECT 1 FROM a JOIN LATERAL (SELECT * FROM b x WHERE x.n = a.n AND x.m IN ($1, 2) OFFSET 0) x ON true )
			FROM a JOIN c ON c.n = a.n WHERE a.n = $2`},
		{dialect.PostgreSQL, outer, `SELECT 1 FROM a JOIN LATERAL (SELECT * FROM b x WHERE x.n = a.n OFFSET 0) x ON true
			LEFT JOIN LATERAL (SELECT * FROM c y WHERE y.n = x.n OFFSET 0) y ON true WHERE x.m = $1`},
	} {
		expanded, err := test.dialect.Expand(test.statement)
		if err != nil {
			t.Errorf("%s: %v", test.dialect.Name, err)
			continue
		}
		if got, want := words(expanded.Text), words(test.want); got != want {
			t.Errorf("%s:\n got %s\nwant %s", test.dialect.Name, got, want)
		}
	}
	for _, wrong := range []string{`SELECT 1 FROM a NESTED JOIN b x WHERE b.n = 1`, `SELECT 1 FROM a NESTED JOIN`, `SELECT 1 FROM a NESTED b x ON true`} {
		if expanded, err := dialect.PostgreSQL.Expand(wrong); err == nil {
			t.Errorf("%s became %s, want an error", wrong, expanded.Text)
		}
	}
}

// words replaces white space by single blanks.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
