package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// fixture is an open store in its own database.
type fixture struct {
	*store.Store
	clock    *clock
	database Database
}

// newStore opens a store in a new database, and closes it at the end of the test.
func (on suite) newStore(t testing.TB) fixture {
	t.Helper()
	f := fixture{clock: newClock(), database: on.open(t)}
	f.Store = got[*store.Store](t)(f.database.Open(t.Context(), f.clock.Now))
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

// restart closes the store and opens it again.
func (f *fixture) restart(t rapid.TB) {
	t.Helper()
	must(t, f.Close())
	f.Store = got[*store.Store](t)(f.database.Open(context.Background(), f.clock.Now))
}

// eachCheck checks a property, each time with a new store.
func (on suite) eachCheck(t *testing.T, property func(*rapid.T, fixture)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		check := &checkTB{TB: t}
		defer check.end()
		property(rt, on.newStore(check))
	})
}

// checkTB is the test of a property during one check. Its cleanups run at the end of the check.
type checkTB struct {
	testing.TB
	cleanups []func()
}

// Cleanup implements testing.TB.
func (c *checkTB) Cleanup(cleanup func()) { c.cleanups = append(c.cleanups, cleanup) }

func (c *checkTB) end() {
	for i := range c.cleanups {
		c.cleanups[len(c.cleanups)-1-i]()
	}
}

// writes reports whether a call needs a write transaction in another process, which has nothing in memory. It changes nothing.
func (f fixture) writes(t rapid.TB, call func(*store.Store) error) bool {
	t.Helper()
	beside := got[*store.Store](t)(f.database.OpenReadOnly(context.Background(), f.clock.Now))
	defer beside.Close()
	err := call(beside)
	if errors.Is(err, store.ErrReadOnly) {
		return true
	}
	must(t, err)
	return false
}

// revision returns the number of write transactions until now.
func (f fixture) revision(t rapid.TB) int64 {
	t.Helper()
	return got[int64](t)(f.Revision(context.Background()))
}

// exec executes a statement beside those of the store.
func (f fixture) exec(t rapid.TB, statement string, args ...any) {
	t.Helper()
	got[sql.Result](t)(f.database.Session(f.Store).ExecContext(context.Background(), statement, args...))
}

// queryRow reads the only row of a statement.
func (f fixture) queryRow(t rapid.TB, statement string, args []any, into ...any) {
	t.Helper()
	rows, err := f.database.Session(f.Store).QueryContext(context.Background(), statement, args...)
	must(t, err)
	defer rows.Close()
	if !rows.Next() {
		must(t, rows.Err())
		t.Fatalf("no row: %s", statement)
	}
	must(t, rows.Scan(into...))
	must(t, rows.Err())
}

// count returns the number of rows of a table, and of a condition that may follow its name.
func (f fixture) count(t rapid.TB, from string) (n int) {
	t.Helper()
	f.queryRow(t, `SELECT count(*) FROM `+from, nil, &n)
	return n
}

// timeOf returns the time of a column, the zero time for NULL.
func timeOf(column sql.NullInt64) time.Time {
	if !column.Valid {
		return time.Time{}
	}
	return time.UnixMilli(column.Int64).UTC()
}

// requireContext fails the test if an error does not name the store and what was done.
func (f fixture) requireContext(t testing.TB, err error, action string) {
	t.Helper()
	if start := fmt.Sprintf("store %s: %s: ", f.database.Address(f.Store), action); !strings.HasPrefix(err.Error(), start) {
		t.Errorf("the error is %q, and does not start with %q", err, start)
	}
}
