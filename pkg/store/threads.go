package store

import (
	"context"
	"database/sql"
)

// MaxThreads is how many threads of one receiver the store keeps, the latest ones. It bounds what a receiver takes: changes of findings that
// an older message announced are sent to the channel.
const MaxThreads = 1000

// Thread locates a message in a receiver's channel, to which replies can be sent.
type Thread struct {
	// Channel is the channel as the settings named it when the message was sent.
	Channel string `json:"channel"`
	// Timestamp identifies the message in the channel. Only the receiver's service interprets it.
	Timestamp string `json:"timestamp"`
}

const (
	// selectThreads selects the threads of the messages that announced some findings.
	selectThreads = `
		SELECT a.repository, a.canonical_id, a.package, t.channel, t.timestamp
		FROM receivers r ORDERED JOIN records(@keys, repository text, id text, package text) k ON k.id <> ''
		ORDERED JOIN announcements a ON a.receiver_id = r.id AND a.repository = k.repository AND a.canonical_id = k.id AND a.package = k.package
		ORDERED JOIN threads t ON t.receiver_id = r.id AND t.message_id = a.digest_id
		WHERE r.scanner = @scanner AND r.name = @receiver`

	saveThread = `INSERT INTO threads (receiver_id, message_id, channel, timestamp) VALUES (?, ?, ?, ?)
		ON CONFLICT (receiver_id, message_id) DO UPDATE SET channel = excluded.channel, timestamp = excluded.timestamp`

	moveThread = `UPDATE threads SET timestamp = ? WHERE receiver_id = ? AND channel = ? AND timestamp = ?`

	trimThreads = `DELETE FROM threads WHERE receiver_id = ?1 AND id <= (SELECT id FROM (
		SELECT id FROM threads WHERE receiver_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2) AS last)`
)

// Threads returns the threads of the messages that announced the findings with these keys to a receiver. A finding is missing in the result
// if no message announced it, or if its message has no thread any more.
func (s *Store) Threads(ctx context.Context, scanner, receiver string, keys []AnnouncementKey) (map[AnnouncementKey]Thread, error) {
	threads := map[AnnouncementKey]Thread{}
	if len(keys) == 0 {
		return threads, nil
	}
	rows := make([][3]string, len(keys))
	for i, key := range keys {
		rows[i] = [3]string{key.Repository, key.ID, key.Package}
	}
	err := s.read(ctx, "look up threads", func(ctx context.Context, q query) error {
		args := []any{sql.Named("keys", jsonArray(rows)), sql.Named("scanner", scanner), sql.Named("receiver", receiver)}
		return eachRow(ctx, q, selectThreads, args, func(rows *sql.Rows) error {
			var key AnnouncementKey
			var thread Thread
			err := rows.Scan(&key.Repository, &key.ID, &key.Package, &thread.Channel, &thread.Timestamp)
			threads[key] = thread
			return err
		})
	})
	return threads, err
}

// recordThread records where the announcement's message is. A reply that found no thread replaces the thread's first message.
func recordThread(ctx context.Context, tx *session, receiver int64, announcement Announcement) error {
	thread := announcement.Thread
	if thread == nil {
		return nil
	}
	if announcement.LostThread != "" {
		_, err := tx.ExecContext(ctx, moveThread, thread.Timestamp, receiver, thread.Channel, announcement.LostThread)
		return err
	}
	if _, err := tx.ExecContext(ctx, saveThread, receiver, announcement.MessageID, thread.Channel, thread.Timestamp); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, trimThreads, receiver, MaxThreads)
	return err
}
