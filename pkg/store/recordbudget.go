package store

import (
	"context"
	"fmt"
	"time"
)

// room is how many bytes may still be stored. A nil room has no end.
type room int64

// take returns ErrOverBudget if the bytes do not fit.
func (r *room) take(bytes int64) error {
	if r == nil {
		return nil
	}
	if *r -= room(bytes); *r < 0 {
		return fmt.Errorf("%w: %d more bytes than there is room for", ErrOverBudget, -*r)
	}
	return nil
}

// freeState is how much larger a receiver's state may get at once when there is no room left: the reason why the receiver is not served,
// but no message with thousands of findings.
const freeState = 64 << 10

// countedBytes is what the findings take that the summaries of receiver r have counted.
const countedBytes = `coalesce((SELECT sum(octet_length(c.repository) + octet_length(c.findings)) FROM counted_findings c WHERE c.receiver_id = r.id), 0)`

// selectRecorded adds up what is recorded in the namespace of a Scanner, which is known from its images: without any, nothing is recorded. The
// records of a ClusterScanner's receivers are in no budget.
const selectRecorded = `SELECT coalesce(sum(b.bytes + coalesce(length(r.state), 0) + ` + countedBytes + `), 0)
		FROM receiver_records b INDEXED BY receiver_records_by_namespace ORDERED JOIN receivers r ON r.id = b.receiver_id
		WHERE b.namespace = (SELECT si.namespace FROM scanner_images si WHERE si.scanner = ? AND si.cluster = 0 LIMIT 1)`

// LimitRecords bounds the bytes that are recorded of the receivers of one namespace: what was announced to each, what its summaries counted, and its state. It
// comes before anything else; 0 is no bound. Without room UpdateAnnouncements adds no record, it only changes those that exist, a
// state takes no large message (ErrOverBudget), and a snapshot records no further repository. What a delivered message announced is
// recorded in any case.
func (s *Store) LimitRecords(bytes int64) { s.recordBudget = bytes }

// RecordsFull reports whether the records of the receivers in a Scanner's namespace use all that LimitRecords allows.
func (s *Store) RecordsFull(ctx context.Context, scanner string) (full bool, err error) {
	err = s.read(ctx, "count what is recorded of receivers", func(ctx context.Context, q query) (err error) {
		full, err = recordsFull(ctx, q, scanner, s.recordBudget)
		return err
	})
	return full, err
}

// recordsFull reports whether the records of the receivers in a Scanner's namespace use the whole budget. A budget of 0 is no bound.
func recordsFull(ctx context.Context, q query, scanner string, budget int64) (full bool, err error) {
	if budget == 0 {
		return false, nil
	}
	var bytes int64
	err = q.QueryRowContext(ctx, selectRecorded, scanner).Scan(&bytes)
	return bytes >= budget, err
}

// saveNewState is saveState of a state that may hold a new message. The error is ErrOverBudget if there is no room for the message.
func (s *Store) saveNewState(ctx context.Context, tx *session, scanner string, receiver int64, state []byte) error {
	if len(state) > freeState {
		var before int
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(length(state), 0) FROM receivers WHERE id = ?`, receiver).Scan(&before); err != nil {
			return err
		}
		full, err := recordsFull(ctx, tx, scanner, s.recordBudget)
		if err != nil {
			return err
		}
		if full && len(state)-before > freeState {
			return ErrOverBudget
		}
	}
	return saveState(ctx, tx, receiver, state)
}

// keptWithoutRoom is how long the records of fixed findings and of unused repositories are kept in a namespace whose receivers use up their
// room. Without this, nothing would be announced there until fixedFor is over.
const keptWithoutRoom = 24 * time.Hour

const selectWithoutRoom = `SELECT receiver_id FROM receiver_records WHERE namespace <> '' AND namespace IN (
	SELECT b.namespace FROM receiver_records b ORDERED JOIN receivers r ON r.id = b.receiver_id
	GROUP BY b.namespace HAVING sum(b.bytes + coalesce(length(r.state), 0) + ` + countedBytes + `) >= ?)`

// receiversWithoutRoom returns the row IDs of the receivers in namespaces whose record budget is used up.
func (s *Store) receiversWithoutRoom(ctx context.Context) ([]int64, error) {
	if s.recordBudget == 0 {
		return nil, nil
	}
	return s.receiverIDs(ctx, selectWithoutRoom, s.recordBudget)
}
