package database

import "time"

// SetPatience is how long a server may send nothing.
func (s *Source) SetPatience(patience time.Duration) { s.patience = patience }

// Limit sets how many look-ups a generation holds.
func (l *Lookups) Limit(most int) { l.most = most }

// Remembered is how many look-ups are remembered, those included that are about to be forgotten.
func (l *Lookups) Remembered() int { return len(l.recent.found) + len(l.older.found) }
