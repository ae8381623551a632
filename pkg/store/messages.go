package store

import (
	"context"
	"time"
)

// Messages implements Announcements.
func (s *SQLite) Messages(ctx context.Context, scanner, receiver string, before int64, limit int) ([]Message, error) {
	return nil, nil
}

// SweepMessages implements Announcements.
func (s *SQLite) SweepMessages(ctx context.Context, before time.Time) (int, error) { return 0, nil }
