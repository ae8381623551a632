package store

import (
	"context"
	"database/sql"
	"iter"
	"sync"
	"time"
)

// loss is how many findings are missing, and when the first of them disappeared.
type loss struct {
	missing int
	since   time.Time
}

func (l loss) plus(more loss) loss {
	if l.since.IsZero() || !more.since.IsZero() && more.since.Before(l.since) {
		l.since = more.since
	}
	l.missing += more.missing
	return l
}

// lossDay identifies the findings that disappeared with one version of the data on one day, in days since 1970-01-01 UTC.
type lossDay struct {
	version string
	day     int64
}

const dayMillis = 24 * 60 * 60 * 1000

func dayOf(t time.Time) int64 { return t.UnixMilli() / dayMillis }

// lossCounts are the present and the missing findings of one engine's reports, as in the tables present_counts and loss_counts.
type lossCounts struct {
	present map[Scope]int
	lost    map[Scope]map[lossDay]loss
}

// scopes returns each credential scope that has counts.
func (c *lossCounts) scopes() iter.Seq[Scope] {
	return func(yield func(Scope) bool) {
		for scope := range c.present {
			if !yield(scope) {
				return
			}
		}
		for scope := range c.lost {
			if _, seen := c.present[scope]; !seen && !yield(scope) {
				return
			}
		}
	}
}

// recent returns what disappeared from a scope during the quarantine, by version of the data.
func (c *lossCounts) recent(scope Scope, now time.Time) map[string]loss {
	recent := map[string]loss{}
	for day, l := range c.lost[scope] {
		if now.Sub(l.since) < quarantine {
			recent[day.version] = l.plus(recent[day.version])
		}
	}
	return recent
}

// add applies the changes of one report.
func (c *lossCounts) add(d lossChange) {
	c.present[d.scope] += d.present
	for day, n := range d.missing {
		if c.lost[d.scope] == nil {
			c.lost[d.scope] = map[lossDay]loss{}
		}
		l, known := c.lost[d.scope][day]
		if l.missing += n; !known {
			l.since = d.at
		}
		if c.lost[d.scope][day] = l; l.missing <= 0 {
			delete(c.lost[d.scope], day)
		}
	}
}

// lossCache caches the counts of engines after their first read, and updates them with each report, since this process is the
// only writer. The zero value is ready for use.
type lossCache struct {
	// writing is held from before a transaction that changes counts until the cache is updated. Otherwise a reader could cache a
	// change that is then added a second time. It is locked before mutex, which guards byEngine.
	writing  sync.Mutex
	mutex    sync.Mutex
	byEngine map[string]*lossCounts
}

// change runs a transaction that changes counts, and applies the returned change to the cache. After an error, or if the change
// is nil, the cache is cleared.
func (m *lossCache) change(transaction func() (*lossChange, error)) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	change, err := transaction()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	switch {
	case err != nil || change == nil:
		clear(m.byEngine) // after an error it is unknown whether it was committed
	case m.byEngine[change.engine] != nil:
		m.byEngine[change.engine].add(*change)
	}
	return err
}

// useLossCounts calls use with the counts of an engine. It does not wait for a transaction that changes counts: meanwhile, the
// counts are read from the database and not cached.
func (s *Store) useLossCounts(ctx context.Context, engine string, use func(*lossCounts)) error {
	m := &s.losses
	if m.known(engine, use) {
		return nil
	}
	keep := s.writer != nil && m.writing.TryLock() // a read-only store does not see what another process writes
	if keep {
		defer m.writing.Unlock()
	}
	var counts *lossCounts
	err := s.read(ctx, "count lost findings of "+engine, func(ctx context.Context, q query) (err error) {
		counts, err = readLossCounts(ctx, q, engine)
		return err
	})
	if err != nil {
		return err
	}
	use(counts)
	if keep {
		m.keep(engine, counts)
	}
	return nil
}

func (m *lossCache) keep(engine string, counts *lossCounts) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.byEngine == nil {
		m.byEngine = map[string]*lossCounts{}
	}
	m.byEngine[engine] = counts
}

func (m *lossCache) known(engine string, use func(*lossCounts)) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	counts := m.byEngine[engine]
	if counts != nil {
		use(counts)
	}
	return counts != nil
}

func readLossCounts(ctx context.Context, q query, engine string) (*lossCounts, error) {
	counts := &lossCounts{present: map[Scope]int{}, lost: map[Scope]map[lossDay]loss{}}
	rows, err := q.QueryContext(ctx, `SELECT scope, present FROM present_counts WHERE engine = ?`, engine)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var scope Scope
		var present int
		err := rows.Scan(&scope, &present)
		counts.present[scope] = present
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	rows, err = q.QueryContext(ctx, `SELECT scope, data_version, day, missing, since FROM loss_counts WHERE engine = ?`, engine)
	_, err = collect(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var scope Scope
		var day lossDay
		var l loss
		var since millis
		err := rows.Scan(&scope, &day.version, &day.day, &l.missing, &since)
		l.since = since.Time
		if counts.lost[scope] == nil {
			counts.lost[scope] = map[lossDay]loss{}
		}
		counts.lost[scope][day] = l
		return struct{}{}, err
	})
	return counts, err
}

// lossChange is how one report changes the counts.
type lossChange struct {
	engine  string
	scope   Scope
	at      time.Time
	present int
	missing map[lossDay]int // not nil
}

// count adds n missing findings. Findings that disappeared with an unknown version of the data do not count against any version.
func (d lossChange) count(went lossDay, n int) {
	if went.version != "" {
		d.missing[went] += n
	}
}

// save writes the changes. It writes nothing if there are none.
func (d lossChange) save(ctx context.Context, tx *sql.Tx) error {
	if d.present != 0 {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO present_counts (engine, scope, present) VALUES (?, ?, ?)
			ON CONFLICT (engine, scope) DO UPDATE SET present = present + excluded.present`, d.engine, d.scope, d.present); err != nil {
			return err
		}
	}
	for day, n := range d.missing {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO loss_counts (engine, scope, data_version, day, missing, since) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (engine, scope, data_version, day) DO UPDATE SET missing = missing + excluded.missing`,
			d.engine, d.scope, day.version, day.day, n, millis{d.at}); err != nil {
			return err
		}
	}
	if len(d.missing) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM loss_counts WHERE engine = ? AND scope = ? AND missing <= 0`, d.engine, d.scope)
	return err
}

// These statements subtract the reports of some manifests from the counts. The parameter is a JSON list of manifest row IDs.
const (
	withoutPresent = `
		UPDATE present_counts AS c SET present = c.present - d.present FROM (
			SELECT r.engine, m.scope, sum(r.present) AS present
			FROM json_each(?) j CROSS JOIN manifests m ON m.id = j.value CROSS JOIN reports r ON r.manifest_id = m.id
			GROUP BY r.engine, m.scope) AS d
		WHERE c.engine = d.engine AND c.scope = d.scope`
	withoutLosses = `
		UPDATE loss_counts AS c SET missing = c.missing - d.missing FROM (
			SELECT r.engine, m.scope, f.gone_data_version, f.gone_at / 86400000 AS day, count(*) AS missing
			FROM json_each(?) j CROSS JOIN manifests m ON m.id = j.value CROSS JOIN reports r ON r.manifest_id = m.id
			CROSS JOIN findings f ON f.report_id = r.id
			WHERE f.gone_at IS NOT NULL AND f.gone_data_version <> ''
			GROUP BY r.engine, m.scope, f.gone_data_version, f.gone_at / 86400000) AS d
		WHERE c.engine = d.engine AND c.scope = d.scope AND c.data_version = d.gone_data_version AND c.day = d.day`
)

// deleteManifests deletes manifests (a JSON list of row IDs) with everything that belongs to them.
func deleteManifests(ctx context.Context, tx *sql.Tx, ids string) error {
	for _, statement := range []string{
		withoutPresent, withoutLosses, `DELETE FROM manifests WHERE id IN (SELECT value FROM json_each(?))`,
	} {
		if _, err := tx.ExecContext(ctx, statement, ids); err != nil {
			return err
		}
	}
	return nil
}

// sweepLosses deletes counts that are zero or older than the quarantine.
func (s *Store) sweepLosses(ctx context.Context) error {
	return s.write(ctx, "sweep counts of lost findings", func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM loss_counts WHERE missing <= 0 OR since < ?`, millis{s.now().Add(-quarantine)}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM present_counts WHERE present <= 0`)
		return err
	})
}
