package database

import (
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
