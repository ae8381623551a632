package database

import (
	"context"
	"database/sql"
	"time"

	"github.com/anchore/grype/grype/vulnerability"
)

// Provider returns Grype's view of the database, which counts failures.
func (db *DB) Provider() vulnerability.Provider { return db.provider }

// SetStallTimeout sets how long a server may send nothing.
func (s *Source) SetStallTimeout(stallTimeout time.Duration) { s.stallTimeout = stallTimeout }

// Limit sets the size of a generation of lookups.
func (l *Lookups) Limit(most int) { l.found.limit = most }

// CachedLookups returns the number of cached lookups in both generations.
func (l *Lookups) CachedLookups() int { return len(l.found.recent) + len(l.found.older) }

// FindablePlan returns the steps in which SQLite reads the advisories that name something they affect.
func (v Version) FindablePlan(ctx context.Context) (steps []string, err error) {
	err = query(v.file(), func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, `EXPLAIN QUERY PLAN `+selectFindable)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				return err
			}
			steps = append(steps, step)
		}
		return rows.Err()
	})
	return steps, err
}
