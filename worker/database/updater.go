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

// keptVersions is how many versions stay installed: the newest, and the previous one in case the newest turns out
// to be damaged.
const keptVersions = 2

// refusedRetryInterval is how long Refresh does not retry a build that could not be installed, unless the listing changes.
const refusedRetryInterval = 5 * time.Minute

// Updater keeps the newest good build open. It is not safe for concurrent use. No match may be running
// during Refresh or Recheck, since both may close the open database.
type Updater struct {
	store  *Store
	source *Source
	clock  clock.Clock
	log    *slog.Logger

	db      *DB
	refused refusal
}

// refusal is the last build that could not be installed, with the error and the time.
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

// DB returns the open database; nil if there is none.
func (u *Updater) DB() *DB { return u.db }

// Close closes the open database.
func (u *Updater) Close() error {
	if u.db == nil {
		return nil
	}
	return u.db.Close()
}

// Refresh reads the listing, installs and opens a newer build if there is one, and returns the
// status of the database. If the newer build is not usable, the open build stays open.
func (u *Updater) Refresh(ctx context.Context) workerapi.DatabaseStatus {
	// The listing is small and read every time, since its status may change without a new build.
	listing, err := u.source.Latest(ctx)
	if err != nil {
		u.log.Error("the database listing cannot be read", "from", u.source.String(), "error", failure.Line(err.Error()))
		return u.status(err)
	}
	if listing.Status == "eol" || listing.Status == "deprecated" {
		u.log.Warn("the database's publisher wants a newer worker: update the operator", "status", listing.Status)
	}
	// An older listing does not lead back to an older build, since mirrors lag behind.
	if u.db != nil && !listing.Built.After(u.db.Built) {
		u.refused = refusal{}
		return u.status(nil)
	}
	if u.refused.database == listing.Database && u.clock.Now().Sub(u.refused.at) < refusedRetryInterval {
		return u.status(u.refused.err)
	}
	if err := u.install(ctx, listing); err != nil {
		u.log.Error("the newest database is refused", "built", listing.Built, "error", failure.Line(err.Error()))
		u.refused = refusal{database: listing.Database, err: err, at: u.clock.Now()}
		return u.status(err)
	}
	u.refused = refusal{}
	return u.status(nil)
}

// install installs and opens the listing's build, and closes the previous one.
func (u *Updater) install(ctx context.Context, listing Listing) error {
	installed, err := u.store.Install(ctx, u.source, listing)
	if err != nil {
		return err
	}
	next, err := Open(installed)
	if err != nil {
		return errors.Join(err, u.store.Discard(ctx, installed))
	}
	// Both are open for a moment. No match is running that needs the previous one.
	previous := u.db
	u.db = next
	if previous != nil {
		if err := previous.Close(); err != nil {
			u.log.Warn("closing the previous database", "error", err)
		}
	}
	if err := u.store.Prune(ctx, keptVersions); err != nil {
		u.log.Warn("old databases could not be removed", "error", err)
	}
	return nil
}

// Recheck reads the whole database after a failed query. If the database is damaged, Recheck removes it
// and opens the next older build. It reports whether the database was damaged.
func (u *Updater) Recheck(ctx context.Context) bool {
	if u.db == nil {
		return false
	}
	damage := quickCheck(ctx, u.db.file())
	if damage == nil || ctx.Err() != nil {
		return false
	}
	u.log.Error("the installed database is damaged", "built", u.db.Built, "error", damage)
	// Closed before it is removed, since no match may continue to read a damaged database.
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

// status returns the status of the database. err is why the newest build is not the open one; nil if it is.
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
	// Without a refused build, the error is that the listing could not be read.
	if u.refused.err != nil {
		refused := u.refused.database
		status.Refused = &refused
		status.Error = failure.Line(fmt.Sprintf("the database built at %s is refused: %v", refused.Built.Format(time.RFC3339), err))
	}
	return status
}
