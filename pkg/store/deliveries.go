package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Keys in the meta table of the number of deliveries that were begun, and of the time of the last one.
const (
	deliveriesBegun = "deliveries"
	deliveryBegunAt = "delivery_begun_at"
)

// BeginDelivery stores the receiver's state before a message is sent, and returns the number of this delivery. Deliveries to all
// receivers share one sequence, in which each number is one higher than the one before.
func (s *Store) BeginDelivery(ctx context.Context, scanner, receiver string, state []byte) (number int64, err error) {
	err = s.write(ctx, "begin a delivery", func(ctx context.Context, tx *session) error {
		id, err := ensureReceiver(ctx, tx, scanner, receiver)
		if err != nil {
			return err
		}
		if err := s.saveNewState(ctx, tx, scanner, id, state); err != nil {
			return err
		}
		if err := saveMeta(ctx, tx, deliveryBegunAt, s.now().UnixMilli()); err != nil {
			return err
		}
		before, err := readMeta(ctx, tx, deliveriesBegun)
		if err != nil {
			return err
		}
		number = before + 1
		return saveMeta(ctx, tx, deliveriesBegun, number)
	})
	return number, err
}

// Deliveries returns the number of the last delivery that was begun, 0 if there was none.
func (s *Store) Deliveries(ctx context.Context) (number int64, err error) {
	err = s.read(ctx, "look up the number of deliveries", func(ctx context.Context, q query) (err error) {
		number, err = readMeta(ctx, q, deliveriesBegun)
		return err
	})
	return number, err
}

// TreatAsRestored gives the store a new ID and marks it as restored from a backup that is as old as its last delivery. It is for a
// store whose content is older than what was delivered. Nothing else may use the store meanwhile.
func (s *Store) TreatAsRestored(ctx context.Context) error {
	id, from := randomID(), time.Time{}
	err := s.write(ctx, "treat the store as restored", func(ctx context.Context, tx *session) error {
		begun, err := readMeta(ctx, tx, deliveryBegunAt)
		if err != nil {
			return err
		}
		from = time.UnixMilli(begun).UTC()
		if before := s.RestoredFrom(); !from.After(before) {
			// The time must be later than that of the previous restore, so that receivers that have handled that restore notice this one.
			from = before.Add(time.Millisecond)
		}
		if err := saveMeta(ctx, tx, restoredFrom, from.UnixMilli()); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE meta SET value = ? WHERE name = 'id'`, id)
		return err
	})
	if err == nil {
		s.identity.Store(&identity{id, from})
	}
	return err
}

func saveMeta(ctx context.Context, tx *session, name string, value int64) error {
	return saveMetaText(ctx, tx, name, strconv.FormatInt(value, 10))
}

func saveMetaText(ctx context.Context, tx *session, name, value string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}

// readMeta returns 0 if there is no such key.
func readMeta(ctx context.Context, q query, name string) (value int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = ?`, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return value, err
}

// readMetaTime returns the zero time if there is no such key. The value 0 is another time: 1970.
func readMetaTime(ctx context.Context, q query, name string) (time.Time, error) {
	var at int64
	err := q.QueryRowContext(ctx, `SELECT value FROM meta WHERE name = ?`, name).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("the value of %q: %w", name, err)
	}
	return time.UnixMilli(at).UTC(), nil
}
