package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// largeStore is one whose file takes forever to read, and has been replaced.
type largeStore struct {
	store.Store
	inspected chan struct{}
}

func (s *largeStore) LookInside(ctx context.Context) error {
	close(s.inspected)
	<-ctx.Done()
	return ctx.Err()
}

func (s *largeStore) Look(context.Context) error { return store.ErrMovedAway }

// TestStoreIsWatchedAtOnce: reading the whole file does not keep the process from noticing that it was replaced.
func TestStoreIsWatchedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of the test's own time
		defer cancel()
		large := &largeStore{inspected: make(chan struct{})}
		op := &operator{store: large}
		inspection := make(chan error, 1)
		go func() { inspection <- op.inspectStore(ctx) }()
		<-large.inspected
		if err := op.watchStore(ctx); !errors.Is(err, store.ErrMovedAway) {
			t.Errorf("watching a store that was replaced: %v, want %v", err, store.ErrMovedAway)
		}
		cancel()
		if err := <-inspection; err != nil {
			t.Errorf("the inspection that is broken off ends the process with: %v", err)
		}
	})
}

// TestLockedStoreWithoutProbes: a manager that serves no probes waits for its store all the same.
func TestLockedStoreWithoutProbes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	first, err := store.OpenSQLite(t.Context(), path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, off := range []string{"0", ""} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := openStore(ctx, path, off); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("with --health-probe-bind-address=%q: %v, want that it waits", off, err)
		}
		stop, err := serveWaiting(t.Context(), off, "locked")
		if err != nil {
			t.Fatalf("with --health-probe-bind-address=%q: %v, want no probes", off, err)
		}
		stop()
	}
}
