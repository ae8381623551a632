package store

import "context"

// Suspicion implements Reports.
func (s *SQLite) Suspicion(ctx context.Context, engine string) (*Suspicion, error) { return nil, nil }
