package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/scanner-operator/scanner-operator/registry/failure"
	"github.com/scanner-operator/scanner-operator/worker/clock"
	"github.com/scanner-operator/scanner-operator/worker/version"
	"github.com/scanner-operator/scanner-operator/workerapi"
)

// kept is how many versions stay installed: the newest, and the one before in case the newest turns out
// to be damaged.
const kept = 2

// refusedFor is how long a build that could not be installed is left alone, unless the listing changes.
const refusedFor = 5 * time.Minute

// Updater keeps the newest good build open. It is not safe for concurrent use, and no match may be running
// while Refresh or Recheck is called, since both may close the open database.
type Updater struct {
	store  *Store
	source *Source
	clock  clock.Clock
	log    *slog.Logger

	db      *DB
	refused refusal
}

// refusal remembers the build that could not be installed.
type refusal struct {
	database workerapi.Database
	err      error
	at       time.Time
}

// NewUpdater returns an updater with the newest installed build open, if there is one.
func NewUpdater(store *Store, source *Source, clock clock.Clock, log *slog.Logger) (*Updater, error) {
	u := &Updater{store: store, source: source, clock: clock, log: log}
	return u, u.openNewest()
}

// openNewest opens the newest installed build that can be opened.
func (u *Updater) openNewest() error {
	versions, err := u.store.Versions()
	if err != nil {
		return err
	}
	for _, v := range versions {
		db, err := Open(v)
		if err == nil {
			u.log.Info("database opened", "built", v.Built, "bytes", v.Size)
			u.db = db
			return nil
		}
		u.log.Error("an installed database cannot be opened", "built", v.Built, "error", err)
	}
	return nil
}

// DB is the open database, nil if there is none.
func (u *Updater) DB() *DB { return u.db }

// Close closes the open database.
func (u *Updater) Close() error {
	if u.db == nil {
		return nil
	}
	return u.db.Close()
}

// Refresh reads the listing, installs and opens a newer build if there is one, and says where things
// stand. The build that was open stays open if the newer one is not usable.
func (u *Updater) Refresh(ctx context.Context) workerapi.DatabaseStatus {
	// The listing is small, and is read every time: what it says may have changed although nothing else did.
	listing, err := u.source.Latest(ctx)
	if err != nil {
		u.log.Error("the database listing cannot be read", "from", u.source.String(), "error", err)
		return u.status(err)
	}
	if listing.Status == "eol" || listing.Status == "deprecated" {
		u.log.Warn("the database's publisher wants a newer worker: update the operator", "status", listing.Status)
	}
	// An older listing is no reason to go back: mirrors lag behind.
	if u.db != nil && !listing.Built.After(u.db.Built) {
		u.refused = refusal{}
		return u.status(nil)
	}
	if u.refused.database == listing.Database && u.clock.Now().Sub(u.refused.at) < refusedFor {
		return u.status(u.refused.err)
	}
	if err := u.install(ctx, listing); err != nil {
		u.log.Error("the newest database is refused", "built", listing.Built, "error", err)
		u.refused = refusal{database: listing.Database, err: err, at: u.clock.Now()}
		return u.status(err)
	}
	u.refused = refusal{}
	return u.status(nil)
}

// install makes the listing's build the open one.
func (u *Updater) install(ctx context.Context, listing Listing) error {
	installed, err := u.store.Install(ctx, u.source, listing)
	if err != nil {
		return err
	}
	next, err := Open(installed)
	if err != nil {
		return errors.Join(err, u.store.Discard(ctx, installed))
	}
	// Side by side for a moment; no match is running that would need the previous one.
	previous := u.db
	u.db = next
	if previous != nil {
		if err := previous.Close(); err != nil {
			u.log.Warn("closing the previous database", "error", err)
		}
	}
	if err := u.store.Prune(ctx, kept); err != nil {
		u.log.Warn("old databases could not be removed", "error", err)
	}
	return nil
}

// Recheck is for after a failed query: it reads the whole database and, if that is damaged, removes it
// and falls back to the next older build. It reports whether it was damaged.
func (u *Updater) Recheck(ctx context.Context) bool {
	if u.db == nil {
		return false
	}
	damage := u.db.Damaged(ctx)
	if damage == nil || ctx.Err() != nil {
		return false
	}
	u.log.Error("the installed database is damaged", "built", u.db.Built, "error", damage)
	// Closed before it is removed: nobody may go on reading what is known to be damaged.
	damaged := u.db.Version
	if err := errors.Join(u.db.Close(), u.store.Discard(ctx, damaged)); err != nil {
		u.log.Error("the damaged database could not be removed", "error", err)
	}
	u.db = nil
	if err := u.openNewest(); err != nil {
		u.log.Error("no other database could be opened", "error", err)
	}
	return true
}

// status says where things stand; err is why the newest build is not the open one.
func (u *Updater) status(err error) workerapi.DatabaseStatus {
	status := workerapi.DatabaseStatus{Tool: version.Grype()}
	if u.db != nil {
		installed := u.db.Database
		status.Installed = &installed
	}
	if err == nil {
		return status
	}
	status.Error = failure.Line(err.Error())
	// Without a refused build it is the listing that could not be read.
	if u.refused.err != nil {
		refused := u.refused.database
		status.Refused = &refused
		status.Error = failure.Line(fmt.Sprintf("the database built at %s is refused: %v", refused.Built.Format(time.RFC3339), err))
	}
	return status
}
