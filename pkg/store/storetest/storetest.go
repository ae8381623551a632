// Package storetest is for tests. Open opens a new store for the tests of other packages. Run is the contract of the store: the tests that hold
// for each database.
//
// The tests of the contract use what the store exports. Those that look into the store, or that concern only SQLite, are in the store's own
// package.
package storetest

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/pkg/store/storetest/template"
)

// Open opens the SQLite store at path with open, which is store.OpenSQLite. If there is no file, the store starts as a copy of an empty store
// with its schema, which is faster than the migrations. Its ID is its own.
func Open(ctx context.Context, path string, now func() time.Time, open template.Opener[*store.Store]) (*store.Store, error) {
	return template.Open(ctx, path, now, open)
}

// Database is the database of a test.
type Database struct {
	// Address returns how errors of the store name its database.
	Address func(s *store.Store) string
	// Open opens the store. It is new the first time. A test closes it before it opens it again.
	Open func(ctx context.Context, now func() time.Time) (*store.Store, error)
	// OpenReadOnly opens the store beside one that is open, as another process does that only reads.
	OpenReadOnly func(ctx context.Context, now func() time.Time) (*store.Store, error)
	// Size returns the bytes of the database's files.
	Size func(ctx context.Context, s *store.Store) (int64, error)
	// Session returns a connection on which a test executes statements of its own, in the language of the store's statements.
	Session func(s *store.Store) Session
}

// Session executes statements in the language of package dialect.
type Session interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
}

// Opener creates an empty database, which is removed in a cleanup of the test.
type Opener func(t testing.TB) Database

// suite has the tests of the contract as methods.
type suite struct{ open Opener }

// contractTest is one test of the contract. A test that measures memory runs alone.
type contractTest struct {
	name  string
	run   func(suite, *testing.T)
	alone bool
}

// Run runs tests of the contract as subtests, on databases that open creates: those with the given names, or all without a name. Tests that do not
// measure anything run in parallel.
func Run(t *testing.T, open Opener, names ...string) {
	t.Helper()
	for _, test := range contract {
		if len(names) > 0 && !slices.Contains(names, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			if !test.alone {
				t.Parallel()
			}
			test.run(suite{open}, t)
		})
	}
}
