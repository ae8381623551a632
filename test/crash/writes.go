package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// writes records each transaction that writes the store on PostgreSQL, with the manager that made it.
type writes struct {
	dsn string
	db  *sql.DB
}

// recordWrites records the first statement of each transaction, and the one that begins a term. A transaction that is rolled back leaves no record.
var recordWrites = []string{
	`CREATE TABLE recorded_writes (number bigserial PRIMARY KEY, tx xid8 NOT NULL DEFAULT pg_current_xact_id(), who text NOT NULL, epoch_before bigint NOT NULL,
		epoch bigint NOT NULL)`,
	`CREATE FUNCTION record_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO recorded_writes (who, epoch_before, epoch) VALUES (current_setting('application_name'), OLD.epoch, NEW.epoch);
		RETURN NEW;
	END $$`,
	`CREATE TRIGGER record_write AFTER UPDATE ON store_revision FOR EACH ROW EXECUTE FUNCTION record_write()`,
}

// storeTimeout bounds the time until a manager has made the tables.
const storeTimeout = time.Minute

// record begins to record, once a manager has made the tables.
func (w *writes) record(ctx context.Context) (err error) {
	if w.db, err = sql.Open("pgx", w.dsn); err != nil {
		return err
	}
	deadline := time.Now().Add(storeTimeout)
	for {
		var epoch int64
		if err = w.db.QueryRowContext(ctx, `SELECT epoch FROM store_revision`).Scan(&epoch); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no manager has made the store: %w", err)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	for _, statement := range recordWrites {
		if _, err := w.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// judge returns the number of transactions, and that of those whose manager did not lead, because another term than its own had begun.
func (w *writes) judge(ctx context.Context) (all, deposed int, err error) {
	rows, err := w.db.QueryContext(ctx, `SELECT who, min(epoch_before), max(epoch) FROM recorded_writes GROUP BY tx, who ORDER BY min(number)`)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, rows.Close(), w.db.Close()) }()
	terms := map[string]int64{} // the epoch of each manager's term
	for rows.Next() {
		var who string
		var before, epoch int64
		if err := rows.Scan(&who, &before, &epoch); err != nil {
			return 0, 0, err
		}
		switch {
		case epoch != before: // it begins to lead
			terms[who] = epoch
			continue
		case len(terms) == 0: // it began before the first record
			terms[who] = epoch
		case terms[who] != epoch:
			deposed++
		}
		all++
	}
	return all, deposed, rows.Err()
}
