package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"
)

// maxHistoryDays is how many days the store keeps counts of, today included.
const maxHistoryDays = 90

// day is the duration of a UTC day. Days are stored as their number since 1970-01-01.
const day = 24 * time.Hour

// DailyCounts are the numbers of what the images of a namespace had on a day, when they were counted last. No suppressed finding counts.
type DailyCounts struct {
	// ToActOn is Totals.ToActOn.
	ToActOn                        int
	KnownExploited, Critical, High int
	// Images run, and Scanned of them have a result.
	Images, Scanned int
}

// DayOfHistory is what some namespaces had on one day.
type DayOfHistory struct {
	// Day is its beginning in UTC.
	Day time.Time
	DailyCounts
}

const (
	selectDay = `SELECT namespace, to_act_on, known_exploited, critical, high, images, scanned
		FROM daily_counts INDEXED BY daily_counts_by_day WHERE day = ?`

	saveDay = `INSERT INTO daily_counts (namespace, day, to_act_on, known_exploited, critical, high, images, scanned)
		SELECT r.namespace, @day, r.to_act_on, r.known_exploited, r.critical, r.high, r.images, r.scanned
		FROM records(@rows, namespace text, to_act_on bigint, known_exploited bigint, critical bigint, high bigint, images bigint, scanned bigint) r
		WHERE true ON CONFLICT (namespace, day) DO UPDATE SET to_act_on = excluded.to_act_on, known_exploited = excluded.known_exploited,
			critical = excluded.critical, high = excluded.high, images = excluded.images, scanned = excluded.scanned`

	deleteFromDay = `DELETE FROM daily_counts WHERE day = @day AND namespace IN (SELECT value FROM texts(@namespaces) t)`

	selectHistory = `SELECT c.day, integer(sum(c.to_act_on)), integer(sum(c.known_exploited)), integer(sum(c.critical)), integer(sum(c.high)),
			integer(sum(c.images)), integer(sum(c.scanned))
		FROM texts(@summarized) n ORDERED JOIN daily_counts c ON c.namespace = n.value AND c.day > @after AND c.day <= @today
		GROUP BY c.day ORDER BY c.day`

	selectOldestDay = `SELECT coalesce(min(day), ?) FROM daily_counts`
	deleteDay       = `DELETE FROM daily_counts WHERE day = ?`
)

// numberOfDay returns the number of a time's UTC day.
func numberOfDay(t time.Time) int64 { return t.UnixMilli() / day.Milliseconds() }

// RecordDay records what each namespace has today, and what all have together: there, a finding of several namespaces may count once. Today's records
// of other namespaces are deleted; without any namespace, nothing is recorded of today. It writes only what differs from what is recorded, at most
// maxRows namespaces in a transaction. It deletes what is older than maxHistoryDays. Call it in one process at a time.
func (s *Store) RecordDay(ctx context.Context, all DailyCounts, namespaces map[string]DailyCounts) error {
	today, wanted := numberOfDay(s.now()), map[string]DailyCounts{}
	if len(namespaces) > 0 {
		wanted[anyNamespace] = all
	}
	maps.Copy(wanted, namespaces)
	recorded := map[string]DailyCounts{}
	err := s.read(ctx, "read the counts of today", func(ctx context.Context, q query) error {
		clear(recorded)
		return eachRow(ctx, q, selectDay, []any{today}, func(rows *sql.Rows) error {
			var namespace string
			var c DailyCounts
			err := rows.Scan(&namespace, &c.ToActOn, &c.KnownExploited, &c.Critical, &c.High, &c.Images, &c.Scanned)
			recorded[namespace] = c
			return err
		})
	})
	if err != nil {
		return err
	}
	var changed, gone []string
	for namespace := range recorded {
		if _, has := wanted[namespace]; !has {
			gone = append(gone, namespace)
		}
	}
	for namespace, counts := range wanted {
		if before, has := recorded[namespace]; !has || before != counts {
			changed = append(changed, namespace)
		}
	}
	slices.Sort(changed)
	for page := range slices.Chunk(changed, maxRows) {
		rows := make([][]any, 0, len(page))
		for _, namespace := range page {
			c := wanted[namespace]
			rows = append(rows, []any{namespace, c.ToActOn, c.KnownExploited, c.Critical, c.High, c.Images, c.Scanned})
		}
		err := s.write(ctx, "record the counts of today", func(ctx context.Context, tx *session) error {
			return tx.execRows(ctx, saveDay, rows, sql.Named("day", today))
		})
		if err != nil {
			return err
		}
	}
	for page := range slices.Chunk(gone, maxRows) {
		if err := s.exec(ctx, "delete counts of today", deleteFromDay, sql.Named("day", today), sql.Named("namespaces", jsonArray(page))); err != nil {
			return err
		}
	}
	return s.sweepDays(ctx, today-maxHistoryDays)
}

// sweepDays deletes a day and all before it, each in a transaction of its own.
func (s *Store) sweepDays(ctx context.Context, last int64) error {
	for {
		var oldest int64
		if err := s.queryRow(ctx, "find the oldest counts", selectOldestDay, last+1).Scan(&oldest); err != nil || oldest > last {
			return err
		}
		if err := s.exec(ctx, "delete old counts", deleteDay, oldest); err != nil {
			return err
		}
	}
}

// History returns the sums of what some namespaces had on each of the last days, today included, in ascending order. A day on which nothing was
// recorded of these namespaces is left out. days is at most maxHistoryDays. A sight of
// all namespaces has what was recorded of all together. What was recorded while the clock was ahead is left out until then.
func (s *Store) History(ctx context.Context, seen Sight, days int) ([]DayOfHistory, error) {
	today := numberOfDay(s.now())
	args := []any{sql.Named("summarized", seen.summarized()), sql.Named("after", today-int64(min(days, maxHistoryDays))), sql.Named("today", today)}
	return queryRows(ctx, s, "read the history", selectHistory, args, func(rows *sql.Rows) (d DayOfHistory, err error) {
		var number int64
		err = rows.Scan(&number, &d.ToActOn, &d.KnownExploited, &d.Critical, &d.High, &d.Images, &d.Scanned)
		d.Day = time.UnixMilli(number * day.Milliseconds()).UTC()
		return d, err
	})
}
