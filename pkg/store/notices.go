package store

import (
	"context"
	"database/sql"
)

// Notice is what a replica of the manager has seen and the leader has to know.
type Notice struct {
	// Kind is what it is about, and Subject which one: of several notices about the same, the last one counts. At most 64 and 255 bytes.
	Kind, Subject string
	// Content is what the leader has to know beyond that.
	Content string
}

const (
	saveNotice = `INSERT INTO notices (kind, subject, content, store_revision) VALUES (?, ?, ?, ` + currentRevision + `)
		ON CONFLICT (kind, subject) DO UPDATE SET content = excluded.content, store_revision = excluded.store_revision`
	selectNotices = `SELECT kind, subject, content FROM notices ORDER BY store_revision, kind, subject`
)

// Notify leaves a notice for the leader. The context must be one of ForAnyReplica.
func (s *Store) Notify(ctx context.Context, n Notice) error {
	return s.exec(ctx, "leave a notice", saveNotice, n.Kind, n.Subject, n.Content)
}

// TakeNotices returns all notices, in the order in which they were left, and deletes them. While there are none, it costs one read.
func (s *Store) TakeNotices(ctx context.Context) (notices []Notice, err error) {
	var some bool
	if err := s.queryRow(ctx, "look for notices", `SELECT EXISTS (SELECT 1 FROM notices)`).Scan(&some); err != nil || !some {
		return nil, err
	}
	err = s.write(ctx, "take the notices", func(ctx context.Context, tx *session) error {
		notices, err = collect(ctx, tx, selectNotices, nil, func(rows *sql.Rows) (n Notice, err error) {
			err = rows.Scan(&n.Kind, &n.Subject, &n.Content)
			return n, err
		})
		if err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM notices`)
		return err
	})
	if err != nil {
		return nil, err
	}
	return notices, nil
}
