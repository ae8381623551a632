package store

import (
	"context"
	"database/sql"
	"errors"
)

// Announcement records have triggers, so SQLite holds the keys of all rows that a statement deletes in memory. A key can have many KiB:
// records are therefore deleted in pages of maxPageKeys and maxPageText.

// recordKey is the primary key of an announcement record.
type recordKey struct {
	receiver            int64
	repository, id, pkg string
}

const (
	selectRecordKeys = `SELECT receiver_id, repository, canonical_id, package FROM announcements `
	deleteByKeys     = `DELETE FROM announcements INDEXED BY announcements_by_key WHERE (receiver_id, repository, canonical_id, package) IN (
		SELECT r.receiver, r.repository, r.id, r.package FROM records(@rows, receiver bigint, repository text, id text, package text) r)`
	// selectKeysAfter selects the keys of @receiver's records after a key. More conditions can follow.
	selectKeysAfter = selectRecordKeys + `WHERE receiver_id = @receiver AND (repository, canonical_id, package) > (@after_repository, @after_id, @after_package) `
	// selectKeysInRepositoryAfter is the same for the records of @repository.
	selectKeysInRepositoryAfter = selectRecordKeys + `WHERE receiver_id = @receiver AND repository = @repository AND (canonical_id, package) > (@after_id, @after_package) `
)

// recordDeletion deletes all records whose keys a selection returns, page by page. The selection begins with selectKeysAfter or
// selectKeysInRepositoryAfter. The arguments do not contain those of the key.
type recordDeletion struct {
	selection string
	args      []any
	last      recordKey
}

// page deletes the next page. It returns whether there may be more.
func (d *recordDeletion) page(ctx context.Context, tx *session) (more bool, err error) {
	args := append([]any{sql.Named("after_repository", d.last.repository), sql.Named("after_id", d.last.id), sql.Named("after_package", d.last.pkg)}, d.args...)
	d.last, more, err = deleteRecordPage(ctx, tx, d.selection+` ORDER BY repository, canonical_id, package`, args...)
	return more, err
}

// deleteRecords deletes all records that a recordDeletion selects in one transaction.
func deleteRecords(ctx context.Context, tx *session, selection string, args ...any) error {
	d := recordDeletion{selection: selection, args: args}
	for {
		if more, err := d.page(ctx, tx); err != nil || !more {
			return err
		}
	}
}

// deleteRecordsInPages does the same with a transaction for each page, so that other writers need not wait.
func (s *Store) deleteRecordsInPages(ctx context.Context, action, selection string, args ...any) error {
	d := recordDeletion{selection: selection, args: args}
	for more := true; more; {
		var next recordDeletion
		err := s.write(ctx, action, func(ctx context.Context, tx *session) (err error) {
			next = d
			more, err = next.page(ctx, tx)
			return err
		})
		if err != nil {
			return err
		}
		d = next
	}
	return nil
}

// deleteRecordPage deletes the first page of the records whose keys a query returns. It returns the last key of the page, and whether there
// may be more.
func deleteRecordPage(ctx context.Context, tx *session, keys string, args ...any) (last recordKey, more bool, err error) {
	page, more, err := readRecordKeys(ctx, tx, keys, args...)
	if err != nil || len(page) == 0 {
		return recordKey{}, false, err
	}
	rows := make([][]any, len(page))
	for i, k := range page {
		rows[i] = []any{k.receiver, k.repository, k.id, k.pkg}
	}
	err = tx.execRows(ctx, deleteByKeys, rows)
	return page[len(page)-1], more, err
}

func readRecordKeys(ctx context.Context, tx *session, keys string, args ...any) (page []recordKey, more bool, err error) {
	text := 0
	err = eachRow(ctx, tx, keys, args, func(rows *sql.Rows) error {
		var k recordKey
		if err := rows.Scan(&k.receiver, &k.repository, &k.id, &k.pkg); err != nil {
			return err
		}
		page = append(page, k)
		if text += len(k.repository) + len(k.id) + len(k.pkg); len(page) == maxPageKeys || text >= maxPageText {
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		return page, true, nil
	}
	return page, false, err
}

// tombstoneReceivers makes receivers belong to no Scanner. It gives them names that are unique there.
const tombstoneReceivers = `UPDATE receivers SET scanner = '', name = 'deleted ' || id WHERE id IN (SELECT value FROM ids(@ids) i)`

// deleteReceivers deletes the receivers that a condition selects, with all their records. They are gone at once: a receiver that is added again
// meanwhile begins anew. Their records are deleted afterwards, in pages. What is left after a crash belongs to a Scanner without a UID, which
// the sweep of Scanners deletes like any other that is gone.
func (s *Store) deleteReceivers(ctx context.Context, condition string, args ...any) error {
	var receivers []int64
	err := s.write(ctx, "delete receivers", func(ctx context.Context, tx *session) (err error) {
		if receivers, err = collect(ctx, tx, `SELECT id FROM receivers WHERE `+condition, args, scanValue[int64]); err != nil {
			return err
		}
		return tx.execIDs(ctx, tombstoneReceivers, receivers)
	})
	if err != nil {
		return err
	}
	for _, id := range receivers {
		if err := s.deleteRecordsInPages(ctx, "delete the records of a receiver", selectKeysAfter, sql.Named("receiver", id)); err != nil {
			return err
		}
		if err := s.exec(ctx, "delete a receiver", `DELETE FROM receivers WHERE id = ? AND scanner = ''`, id); err != nil {
			return err
		}
	}
	return nil
}

// receiverIDs returns the row IDs of the receivers that a statement selects.
func (s *Store) receiverIDs(ctx context.Context, statement string, args ...any) ([]int64, error) {
	return queryRows(ctx, s, "list receivers", statement, args, scanValue[int64])
}
