package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	v6 "github.com/anchore/grype/grype/db/v6"

	// The driver that Grype itself uses, under the name "sqlite".
	_ "github.com/glebarez/sqlite"
)

// verify reads a whole installed database once, through a separate connection, and compares it with its listing.
func verify(ctx context.Context, file string, want Listing) error {
	if err := quickCheck(ctx, file); err != nil {
		return err
	}
	return query(file, func(db *sql.DB) error {
		var model int
		var built time.Time
		if err := db.QueryRowContext(ctx, "SELECT model, build_timestamp FROM db_metadata").Scan(&model, &built); err != nil {
			return fmt.Errorf("the database has no readable metadata: %w", err)
		}
		// Listings have times in seconds, databases more precise ones.
		if difference := built.Sub(want.Built).Abs(); difference > time.Second {
			return fmt.Errorf("the database was built at %s, the listing has %s", built.UTC().Format(time.RFC3339), want.Built.Format(time.RFC3339))
		}
		// The listing names the schema as well, but another program wrote the listing.
		if model != v6.ModelVersion {
			return fmt.Errorf("the database has schema %d, this worker reads %d", model, v6.ModelVersion)
		}
		// With an empty database, every image would appear clean.
		var some bool
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM vulnerability_handles)").Scan(&some); err != nil {
			return fmt.Errorf("the database cannot be searched: %w", err)
		}
		if !some {
			return errors.New("the database holds no vulnerability")
		}
		return nil
	})
}

// quickCheck makes SQLite read all pages (https://www.sqlite.org/pragma.html#pragma_quick_check).
func quickCheck(ctx context.Context, file string) error {
	return query(file, func(db *sql.DB) error {
		var verdict string
		if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
			return fmt.Errorf("the database is damaged: %w", err)
		}
		if verdict != "ok" {
			return fmt.Errorf("the database is damaged: %s", verdict)
		}
		return nil
	})
}

// query opens the file read-only, and without the cache that connections to the same path share.
func query(file string, use func(*sql.DB) error) error {
	// immutable: SQLite does not look for a journal, and the directory may be read-only.
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: "mode=ro&immutable=1"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return err
	}
	return errors.Join(use(db), db.Close())
}
