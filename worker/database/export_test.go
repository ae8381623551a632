package database

import "time"

// SetPatience sets how long a server may send nothing.
func (s *Source) SetPatience(patience time.Duration) { s.patience = patience }

// Limit sets how many lookups a generation holds.
func (l *Lookups) Limit(most int) { l.most = most }

// Remembered returns the number of cached lookups in both generations.
func (l *Lookups) Remembered() int { return len(l.recent.found) + len(l.older.found) }
