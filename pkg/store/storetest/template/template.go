// Package template opens new SQLite stores for tests. The migrations run once per test binary; every further store starts as a copy.
// It does not import the store, so that the store's own tests can use it. Other tests use storetest.Open.
package template

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// Opener is store.OpenSQLite.
type Opener[S interface{ Close() error }] func(ctx context.Context, path string, now func() time.Time) (S, error)

var template struct {
	sync.Mutex
	file []byte
}

// Open opens the store at path with open. If there is no file, the store starts as a copy of an empty store with its schema. Its ID is
// its own.
func Open[S interface{ Close() error }](ctx context.Context, path string, now func() time.Time, open Opener[S]) (store S, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := copyTemplate(ctx, path, open); err != nil {
			return store, err
		}
	}
	return open(ctx, path, now)
}

func copyTemplate[S interface{ Close() error }](ctx context.Context, path string, open Opener[S]) (err error) {
	template.Lock()
	defer template.Unlock()
	if template.file == nil {
		if template.file, err = newTemplate(ctx, open); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, template.file, 0o600)
}

// newTemplate returns the file of a new store without its ID: opening the store gives it one.
func newTemplate[S interface{ Close() error }](ctx context.Context, open Opener[S]) ([]byte, error) {
	dir, err := os.MkdirTemp("", "store-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "store.db")
	created, err := open(ctx, path, time.Now)
	if err != nil {
		return nil, err
	}
	if err := created.Close(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `DELETE FROM meta WHERE name = 'id'`)
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
