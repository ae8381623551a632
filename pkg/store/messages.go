package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
)

// MaxMessages is how many messages to one receiver the log keeps.
const MaxMessages = 1000

// Message is an entry of the message log.
type Message struct {
	// ID rises with time.
	ID int64
	// Receiver is the receiver's name, with a slash and the channel if namespaces have chosen the channel.
	Scanner, Receiver string
	MessageID         string
	Kind, Title       string
	// Findings is how many findings the message announced.
	Findings int
	At       time.Time
	// Unconfirmed means that the message was sent and the receiver never answered.
	Unconfirmed bool
	// Body is the message as JSON (announce.Message).
	Body []byte
}

// maxMessageBytes bounds the decompressed size of an entry of the log.
const maxMessageBytes = 16 << 20

// saveMessage adds an entry to the message log, if the announcement has one. A message with the same ID is added only once.
func saveMessage(ctx context.Context, tx *session, scanner, receiver string, announcement Announcement, at time.Time) error {
	entry := announcement.LogEntry
	if entry == nil {
		return nil
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO messages (scanner, receiver, digest_id, kind, title, findings, said_at, message, unconfirmed, store_revision)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, `+currentRevision+`
		WHERE NOT EXISTS (SELECT 1 FROM messages WHERE scanner = ?1 AND receiver = ?2 AND digest_id = ?3)`,
		scanner, receiver, announcement.MessageID, entry.Kind, entry.Title, entry.Findings, millis{at}, encoder.EncodeAll(entry.Body, nil), entry.Unconfirmed)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		DELETE FROM messages WHERE scanner = ?1 AND receiver = ?2 AND id <= (SELECT id FROM (
			SELECT id FROM messages WHERE scanner = ?1 AND receiver = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3) AS last)`,
		scanner, receiver, MaxMessages)
	return err
}

// selectMessages selects log entries, latest first. Those to a receiver include those to its channels.
const selectMessages = `
	SELECT id, scanner, receiver, digest_id, kind, title, findings, said_at, message, unconfirmed FROM messages
	WHERE scanner = @scanner AND (@receiver = '' OR receiver = @receiver OR substr(receiver, 1, length(@channels)) = @channels) AND (@before = 0 OR id < @before)
	ORDER BY id DESC LIMIT @limit`

// Messages returns a Scanner's message log, latest first: at most limit entries, older than the one with the ID before (0 for the
// latest), to one receiver with its channels, or (empty) to all.
func (s *Store) Messages(ctx context.Context, scanner, receiver string, before int64, limit int) ([]Message, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMessageBytes))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	args := []any{
		sql.Named("scanner", scanner), sql.Named("receiver", receiver), sql.Named("channels", receiver+"/"), sql.Named("before", before), sql.Named("limit", limit),
	}
	return queryRows(ctx, s, "list messages", selectMessages, args, func(rows *sql.Rows) (m Message, err error) {
		var at millis
		var packed []byte
		if err := rows.Scan(&m.ID, &m.Scanner, &m.Receiver, &m.MessageID, &m.Kind, &m.Title, &m.Findings, &at, &packed, &m.Unconfirmed); err != nil {
			return m, err
		}
		m.At = at.Time
		if m.Body, err = decoder.DecodeAll(packed, nil); err != nil {
			return m, fmt.Errorf("message %d: %w", m.ID, err)
		}
		return m, nil
	})
}

// SweepMessages deletes the log entries from before a time, and returns their number. Entries beyond MaxMessages for a receiver are
// deleted with each new message.
func (s *Store) SweepMessages(ctx context.Context, before time.Time) (swept int, err error) {
	return s.execCounted(ctx, "sweep messages", `DELETE FROM messages WHERE said_at < ?`, millis{before})
}
