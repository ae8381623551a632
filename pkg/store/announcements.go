package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// AnnouncementKey identifies an announcement.
type AnnouncementKey struct {
	Repository string `json:"repository"`
	ID         string `json:"id"`
	Package    string `json:"package"`
}

// AnnouncedFinding is what was announced of one finding. From then on only differences from it are announced.
type AnnouncedFinding struct {
	AnnouncementKey
	Change         diff.Change      `json:"change"`
	Severity       finding.Severity `json:"severity"`
	Fixable        bool             `json:"fixable,omitempty"`
	KnownExploited bool             `json:"knownExploited,omitempty"`
	Aliases        []string         `json:"aliases,omitempty"`
}

// Announcement is what one message announced, or what a silent baseline recorded without a message.
type Announcement struct {
	// MessageID of the message; empty for a silent baseline.
	MessageID string
	At        time.Time
	// Findings replaces earlier announcements of the same findings. Entries with diff.ChangeFixed are recorded as fixed.
	Findings []AnnouncedFinding
	// Snapshot also records everything that passes a filter, without loading it into memory; nil for none.
	Snapshot *FilteredSnapshot
	// Counted also records which findings the message counts, for CountSummary; nil for none.
	Counted *CountedFindings
	// ResetRepositories resets the repositories that the receiver knows: with another engine, each is new. It also deletes the
	// announcements of findings that are not present by the Snapshot's filter: that the other engine does not find them does not mean that
	// they are fixed.
	ResetRepositories bool
	// DeleteAbsent deletes announcements of findings that are not present; nil for none.
	DeleteAbsent *AbsentFindings
	// Repositories that the receiver knows from then on, in addition to those of the keys. The repositories of the
	// Snapshot must be named here.
	Repositories []string
	// Retract is the MessageID of a message that was recorded before it was sent and was never delivered. Its announcements are
	// deleted. Empty for none.
	Retract string
	// Thread is where the message is in the receiver's channel; nil if that is unknown or nothing replies to it.
	Thread *Thread
	// LostThread is the timestamp of a thread to which the message was meant as a reply. The thread is gone, so the message is in the channel
	// itself: Thread takes the place of the lost one. Empty for none.
	LostThread string
	State      []byte
	// LogEntry is the entry for the message log; nil for none. The store fills in its ID, Scanner, receiver, MessageID and time.
	LogEntry *Message
}

// KnownRepositories lists the repositories that a receiver knows: their findings were announced to it, or RecordAnnouncement
// recorded them. The result is in alphabetical order.
func (s *Store) KnownRepositories(ctx context.Context, scanner, receiver string) ([]string, error) {
	return queryRows(ctx, s, "list known repositories", `
		SELECT k.repository FROM receivers r JOIN known_repositories k ON k.receiver_id = r.id
		WHERE r.scanner = ? AND r.name = ? ORDER BY k.repository`, []any{scanner, receiver}, scanValue[string])
}

// selectRecordedRepositories skips from one repository to the next in the primary key.
const selectRecordedRepositories = `
	WITH RECURSIVE recorded(receiver_id, repository) AS (
		SELECT r.id, (SELECT min(a.repository) FROM announcements a WHERE a.receiver_id = r.id) FROM receivers r WHERE r.scanner = ? AND r.name = ?
		UNION ALL
		SELECT n.receiver_id, (SELECT min(a.repository) FROM announcements a WHERE a.receiver_id = n.receiver_id AND a.repository > n.repository)
		FROM recorded n WHERE n.repository IS NOT NULL)
	SELECT repository FROM recorded WHERE repository IS NOT NULL ORDER BY repository`

// RecordedRepositories lists the repositories with at least one announcement record of a receiver, sorted. Records without a message
// count.
func (s *Store) RecordedRepositories(ctx context.Context, scanner, receiver string) ([]string, error) {
	return queryRows(ctx, s, "list recorded repositories", selectRecordedRepositories, []any{scanner, receiver}, scanValue[string])
}

// LatestRecord returns the latest time of an announcement record of a receiver; zero without records. It is later than now if the
// clock was set back.
func (s *Store) LatestRecord(ctx context.Context, scanner, receiver string) (time.Time, error) {
	var latest millis
	err := s.queryRow(ctx, "look up the latest record", `SELECT max(a.announced_at) FROM receivers r JOIN announcements a ON a.receiver_id = r.id
		WHERE r.scanner = ? AND r.name = ?`, scanner, receiver).Scan(&latest)
	return latest.Time, err
}

// ReceiverState returns the state that was saved last for a receiver, nil if there is none. Only the caller interprets it.
func (s *Store) ReceiverState(ctx context.Context, scanner, receiver string) (state []byte, err error) {
	err = s.queryRow(ctx, "look up receiver state", `SELECT state FROM receivers WHERE scanner = ? AND name = ?`, scanner, receiver).Scan(&state)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return state, err
}

// SaveReceiverState stores the state of a receiver.
func (s *Store) SaveReceiverState(ctx context.Context, scanner, receiver string, state []byte) error {
	return s.write(ctx, "save receiver state", func(ctx context.Context, tx *session) error {
		id, err := ensureReceiver(ctx, tx, scanner, receiver)
		if err != nil {
			return err
		}
		return s.saveNewState(ctx, tx, scanner, id, state)
	})
}

func ensureReceiver(ctx context.Context, tx *session, scanner, receiver string) (id int64, err error) {
	if scanner == "" {
		return 0, errors.New("the scanner's UID is empty")
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO receivers (scanner, name) VALUES (?, ?) ON CONFLICT DO NOTHING`, scanner, receiver); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `SELECT id FROM receivers WHERE scanner = ? AND name = ?`, scanner, receiver).Scan(&id)
	return id, err
}

func saveState(ctx context.Context, tx *session, receiver int64, state []byte) error {
	_, err := tx.ExecContext(ctx, `UPDATE receivers SET state = ? WHERE id = ?`, state, receiver)
	return err
}

// RecordAnnouncement records in one transaction what the message with the given MessageID announced to a receiver, which
// repositories the receiver knows from then on, its new state and the log entry. If it returns an error, nothing is recorded. The
// error is ErrChanged if Snapshot or Counted is of another snapshot. A finding that was announced before keeps the message and time of its
// first announcement, unless that was silent or an exception has suppressed the finding since; its other values are replaced. The receiver
// also knows the repositories of the keys from then on. A nil state does not change the receiver's state.
func (s *Store) RecordAnnouncement(ctx context.Context, scanner, receiver string, announcement Announcement) error {
	defer s.unchanged.invalidate(scanner, receiver)
	return s.write(ctx, "mark announced", func(ctx context.Context, tx *session) error {
		return s.recordAnnouncement(ctx, tx, scanner, receiver, announcement)
	})
}

// DecideAndRecord is RecordAnnouncement for the announcement that decide returns. decide runs while there is no other writer, so
// that nothing changes between reading and recording. decide may only read, and may run several times. Its error is returned, and then nothing is recorded. The
// transaction holds the write lock from its beginning, so decide reads the state that the transaction changes, even through other
// connections.
func (s *Store) DecideAndRecord(ctx context.Context, scanner, receiver string, decide func(context.Context) (Announcement, error)) error {
	defer s.unchanged.invalidate(scanner, receiver)
	return s.write(ctx, "decide and mark announced", func(ctx context.Context, tx *session) error {
		announcement, err := decide(ctx)
		if err != nil {
			return err
		}
		return s.recordAnnouncement(ctx, tx, scanner, receiver, announcement)
	})
}

func (s *Store) recordAnnouncement(ctx context.Context, tx *session, scanner, receiver string, announcement Announcement) error {
	id, err := ensureReceiver(ctx, tx, scanner, receiver)
	if err != nil {
		return err
	}
	at := orNow(announcement.At, s.now())
	if err := retract(ctx, tx, id, announcement.Retract); err != nil {
		return err
	}
	if announcement.ResetRepositories {
		if _, err := tx.ExecContext(ctx, `DELETE FROM known_repositories WHERE receiver_id = ?`, id); err != nil {
			return err
		}
	}
	if announcement.DeleteAbsent != nil {
		if err := deleteAbsent(ctx, tx, id, scanner, *announcement.DeleteAbsent); err != nil {
			return err
		}
	}
	if announcement.Snapshot != nil {
		if err := recordSnapshot(ctx, tx, id, scanner, announcement, at, s.recordBudget); err != nil {
			return err
		}
	}
	if announcement.Counted != nil {
		if err := recordCounted(ctx, tx, id, scanner, announcement); err != nil {
			return err
		}
	}
	if err := saveAnnouncements(ctx, tx, id, announcement, at); err != nil {
		return err
	}
	if err := recordThread(ctx, tx, id, announcement); err != nil {
		return err
	}
	if err := saveMessage(ctx, tx, scanner, receiver, announcement, at); err != nil || announcement.State == nil {
		return err
	}
	return saveState(ctx, tx, id, announcement.State)
}

func saveAnnouncements(ctx context.Context, tx *session, receiver int64, announcement Announcement, at time.Time) error {
	repositories := make(map[string]bool)
	for _, repository := range announcement.Repositories {
		repositories[repository] = true
	}
	records := make([][]any, 0, len(announcement.Findings))
	for _, one := range announcement.Findings {
		repositories[one.Repository] = true
		var fixedAt millis
		if one.Change == diff.ChangeFixed {
			fixedAt.Time = at
		}
		records = append(records, []any{one.Repository, one.ID, one.Package, int64(one.Severity), one.Fixable, one.KnownExploited, list[string](one.Aliases), fixedAt})
	}
	err := tx.execRows(ctx, saveRecords, records, sql.Named("receiver", receiver), sql.Named("digest", announcement.MessageID), sql.Named("at", millis{at}))
	if err != nil {
		return err
	}
	var known [][]any
	for repository := range repositories {
		known = append(known, []any{repository})
	}
	return tx.execRows(ctx, `INSERT INTO known_repositories (receiver_id, repository) SELECT @receiver, r.repository FROM records(@rows, repository text) r
		WHERE true ON CONFLICT DO NOTHING`, known, sql.Named("receiver", receiver))
}

// retract deletes the announcements that are recorded with the message. Announcements of earlier messages stay.
func retract(ctx context.Context, tx *session, receiver int64, messageID string) error {
	if messageID == "" {
		return nil
	}
	return deleteRecords(ctx, tx, selectKeysAfter+`AND digest_id = @digest`, sql.Named("receiver", receiver), sql.Named("digest", messageID))
}

const (
	areOtherReceivers    = `scanner = ? AND name NOT IN (SELECT value FROM texts(?) t)`
	selectOtherReceivers = `SELECT id FROM receivers WHERE ` + areOtherReceivers
)

// RetainReceivers deletes all records of a Scanner's receivers that are not listed: their state, known repositories and
// announcements. A receiver that is added again later is a new one. The message log stays. It starts a write transaction only if
// there is a receiver to delete.
func (s *Store) RetainReceivers(ctx context.Context, scanner string, names []string) error {
	kept := jsonArray(names)
	others, err := s.receiverIDs(ctx, selectOtherReceivers, scanner, kept)
	if err != nil || len(others) == 0 {
		return err
	}
	defer s.unchanged.deleteScanner(scanner)
	return s.deleteReceivers(ctx, areOtherReceivers, scanner, kept)
}
