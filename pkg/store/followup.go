package store

import "context"

// FollowUp implements Announcements.
func (s *SQLite) FollowUp(ctx context.Context, scanner, receiver string, f NewsFilter) error {
	return nil
}
