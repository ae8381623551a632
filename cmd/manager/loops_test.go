package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// TestStoreIsWatchedAtOnce: the first check detects that the file was replaced, and an integrity check that is cancelled is no error.
func TestStoreIsWatchedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	opened, err := store.OpenSQLite(t.Context(), path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	op := &operator{store: opened}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := op.watchStore(ctx); !errors.Is(err, store.ErrMovedAway) {
		t.Errorf("watching a store that was replaced: %v, want %v", err, store.ErrMovedAway)
	}
	cancel()
	if err := op.checkStoreIntegrity(ctx); err != nil {
		t.Errorf("the inspection that is broken off ends the process with: %v", err)
	}
}
