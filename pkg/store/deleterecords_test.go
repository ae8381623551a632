package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestLongKeysArePaged checks that no record is left out at the end of a page, even if names of packages differ only far behind their beginning.
func TestLongKeysArePaged(t *testing.T) {
	const records = 2*maxPageKeys + 1
	eachDatabase(t, func(t *testing.T, f fixture) {
		rows := make([][]any, records)
		for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(records) {
			rows[i] = []any{"repository", "CVE-2026-0001", strings.Repeat("a", 1<<10) + fmt.Sprint(n), 1, 1, 1, "", nil}
		}
		var left int
		must(t, f.write(t.Context(), "add and delete records", func(ctx context.Context, tx *session) error {
			receiver, err := ensureReceiver(ctx, tx, "scanner", "team")
			if err != nil {
				return err
			}
			if err := tx.execRows(ctx, saveRecords, rows, sql.Named("receiver", receiver), sql.Named("digest", ""), sql.Named("at", 1)); err != nil {
				return err
			}
			if err := deleteRecords(ctx, tx, selectKeysAfter, sql.Named("receiver", receiver)); err != nil {
				return err
			}
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM announcements`).Scan(&left)
		}))
		if left > 0 {
			t.Errorf("%d of %d records are left", left, records)
		}
	})
}
